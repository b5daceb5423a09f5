"""Devices: plain values, parsed without importing anything."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

import lazyparam as lp


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
        ("torch:mps", "torch:mps:0", "torch", "mps", 0),
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
    with pytest.raises(lp.DeviceParseError, match="a device is named by a text"):
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


def test_a_device_whose_backend_is_absent_fails_at_first_use() -> None:
    p = lp.Param(3, lp.init.zeros(), device="torch:cuda:1")
    assert p.nbytes == 12
    with pytest.raises(lp.BackendMissing, match="no backend 'torch'") as caught:
        p.val()
    assert isinstance(caught.value, ImportError)
    assert not p.is_initialized
    assert p.to_device("cpu").val().tolist() == [0, 0, 0]
