"""Devices: plain values, parsed without importing anything."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import textwrap

import pytest

import lazyparam as lp
from tests.checkpoint_files import run_python


@pytest.mark.parametrize(
    ("text", "canonical", "backend", "kind", "index"),
    [
        ("cpu", "numpy:cpu", "numpy", "cpu", None),
        ("numpy", "numpy:cpu", "numpy", "cpu", None),
        ("numpy:cpu", "numpy:cpu", "numpy", "cpu", None),
        ("cpu:0", "numpy:cpu", "numpy", "cpu", None),
        ("cuda", "cupy:cuda:0", "cupy", "cuda", 0),
        ("cuda:3", "cupy:cuda:3", "cupy", "cuda", 3),
        ("cupy:cuda:1", "cupy:cuda:1", "cupy", "cuda", 1),
        ("torch", "torch:cpu", "torch", "cpu", None),
        ("torch:cpu", "torch:cpu", "torch", "cpu", None),
        ("torch:cuda", "torch:cuda:0", "torch", "cuda", 0),
        ("torch:cuda:12", "torch:cuda:12", "torch", "cuda", 12),
        ("torch:mps", "torch:mps", "torch", "mps", None),
        ("jax:cpu", "jax:cpu:0", "jax", "cpu", 0),
        ("jax:cpu:3", "jax:cpu:3", "jax", "cpu", 3),
        ("mine:npu:1", "mine:npu:1", "mine", "npu", 1),
    ],
)
def test_a_device_has_one_canonical_text_that_parses_back(
    text: str, canonical: str, backend: str, kind: str, index: int | None
) -> None:
    device = lp.device(text)
    assert str(device) == canonical
    assert repr(device) == f"Device('{canonical}')"
    assert (device.backend, device.kind, device.index) == (backend, kind, index)
    assert lp.device(canonical) == device
    assert lp.Device(device) == device
    assert hash(lp.Device(canonical)) == hash(device)
    assert pickle.loads(pickle.dumps(device)) == device


def test_devices_compare_by_place() -> None:
    assert lp.device("cpu") != lp.device("torch:cpu")
    assert lp.device("cuda:0") == lp.device("cuda")
    assert lp.device("cuda:0") != lp.device("cuda:1")
    assert lp.device("cpu") != "cpu"
    assert len({lp.device("cpu"), lp.device("numpy:cpu"), lp.device("cuda")}) == 2


@pytest.mark.parametrize(
    "text",
    [
        *("", ":", "cuda:01", "cuda:-1", "cuda:+1", "cuda:1.0", "cuda:10000", "CPU", "my gpu"),
        *("cpu:1", "torch:cpu:1", "a:b:c:d", "a:b:c", "quantum", "cpu:", ":cpu", "cuda:0:0"),
        *("\u0663", "cuda:\u0663", "cuda: 1", "cpu\0"),
    ],
)
def test_a_text_that_is_no_device_is_refused_with_the_grammar(text: str) -> None:
    with pytest.raises(lp.DeviceParseError, match=r"does not name a device.*\[backend"):
        lp.device(text)


@pytest.mark.parametrize("thing", [None, 3, b"cpu", object()])
def test_only_a_text_or_a_device_names_a_device(thing) -> None:
    with pytest.raises(lp.DeviceParseError, match="this does not name a device"):
        lp.Device(thing)


def test_a_device_is_frozen() -> None:
    with pytest.raises(AttributeError):
        lp.device("cpu").kind = "cuda"


def test_parsing_and_declaring_import_no_library() -> None:
    code = (
        "import sys, lazyparam as lp\n"
        "p = lp.Param(3, lp.init.zeros(), device='torch:cuda:3').to_device('jax:cpu')\n"
        "assert str(p.device) == 'jax:cpu:0' and repr(p)\n"
        "lib = {'torch', 'jax', 'cupy', 'ml_dtypes'} & set(sys.modules)\n"
        "assert not lib, lib\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("library", ["torch", "jax", "cupy"])
def test_a_device_whose_library_is_not_installed_fails_at_first_use(library: str) -> None:
    """The import is blocked as if it were not installed."""
    code = f"""
        import sys
        sys.modules[{library!r}] = None
        import lazyparam as lp
        p = lp.Param(3, lp.init.zeros(), device="{library}:cuda:1")
        assert p.nbytes == 12
        for _ in range(2):
            try:
                p.val()
            except lp.BackendMissing as error:
                assert isinstance(error, ImportError), error
                assert "cannot be imported" in str(error), error
                assert error.found == "{library}:cuda:1", error
                assert error.remedy.startswith("pip install {library}"), error
            else:
                raise AssertionError("it was read")
        assert not p.is_initialized
        assert p.to_device("cpu").val().tolist() == [0, 0, 0]
    """
    done = run_python(textwrap.dedent(code))
    assert (done.returncode, done.stderr) == (0, "")


def test_equality_and_hash_ignore_the_autodiff_context() -> None:
    plain, recording = lp.device("torch:cpu"), lp.device("torch:cpu").autodiff()
    assert plain == recording
    assert hash(plain) == hash(recording)
    assert [plain.is_autodiff, recording.is_autodiff] == [False, True]
    assert not recording.inner().is_autodiff
    assert recording.autodiff().is_autodiff, "a second time changes nothing"
    assert lp.Device("torch:cpu", autodiff=True).is_autodiff
    assert (repr(recording), str(recording)) == ("Device('torch:cpu').autodiff()", "torch:cpu")


def test_a_device_takes_its_context_from_another_as_far_as_its_library_has_one() -> None:
    """B25: what is moved keeps the context that it was built with."""
    recording = lp.device("torch:cpu").autodiff()
    assert lp.device("jax:cpu").with_autodiff_context_from(recording).is_autodiff
    assert not recording.with_autodiff_context_from(lp.device("jax:cpu")).is_autodiff
    assert not lp.device("cpu").with_autodiff_context_from(recording).is_autodiff


def test_the_context_of_a_device_survives_pickling_and_copying() -> None:
    """B43."""
    for device in (lp.device("torch:cpu"), lp.device("torch:cpu").autodiff()):
        for twin in (pickle.loads(pickle.dumps(device)), copy.deepcopy(device)):
            assert (twin, twin.is_autodiff) == (device, device.is_autodiff)


@pytest.mark.parametrize("text", ["cpu", "cuda:1"])
def test_autodiff_on_a_library_without_gradients_is_refused(text: str) -> None:
    for attempt in (lambda: lp.device(text).autodiff(), lambda: lp.Device(text, autodiff=True)):
        with pytest.raises(lp.AutodiffUnsupported, match="has no gradients") as caught:
            attempt()
        assert isinstance(caught.value, TypeError)


def test_a_param_of_numpy_has_no_gradient_to_give() -> None:
    for param in (lp.Param(2, lp.init.ones()), lp.Param.from_data([1.0, 2.0])):
        with pytest.raises(lp.AutodiffUnsupported, match="does not record gradients"):
            param.train().grad()
