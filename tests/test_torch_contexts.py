"""First access wherever a program happens to be: what comes into being is a real tensor.

Each context is entered by a thread and is of that thread alone; whoever reads the parameter first
must not leave an inference tensor, a fake one, a rounded one or a traced one to all the others.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyparam as lp
from tests.helpers import Bag, never, race

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

PLAIN = lp.device("torch:cpu")
TRACKING = PLAIN.autodiff()

Work = Callable[[], object]


class Spying(TorchDispatchMode):
    """Sees every operation of its thread."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def under(*contexts: Callable[[], Any]) -> Callable[[Work], object]:
    def run(work: Work) -> object:
        entered = [context() for context in contexts]
        for context in entered:
            context.__enter__()
        try:
            return work()
        finally:
            for context in reversed(entered):
                context.__exit__(None, None, None)

    return run


def under_a_default_device(work: Work) -> object:
    torch.set_default_device("meta")
    try:
        return work()
    finally:
        torch.set_default_device(None)


def under_vmap(work: Work) -> object:
    return torch.vmap(lambda x: (work(), x * 2)[1])(torch.ones(2, 3))


def under_grad(work: Work) -> object:
    return torch.func.grad(lambda x: (work(), (x * x).sum())[1])(torch.ones(3))


def under_jacobian(work: Work) -> object:
    return torch.func.jacfwd(torch.func.jacrev(lambda x: (work(), (x * x).sum())[1]))(torch.ones(3))


def under_trace(work: Work) -> object:
    return torch.jit.trace(lambda x: (work(), x + 1)[1], torch.ones(2), check_trace=False)


CONTEXTS: dict[str, Callable[[Work], object]] = {
    "nothing": lambda work: work(),
    "no_grad": under(torch.no_grad),
    "enable_grad": under(torch.enable_grad),
    "inference_mode": under(torch.inference_mode),
    "autocast": under(lambda: torch.autocast("cpu", torch.bfloat16)),
    "meta device": under(lambda: torch.device("meta")),
    "default device": under_a_default_device,
    "fake tensors": under(FakeTensorMode),
    "dispatch mode": under(Spying),
    "vmap": under_vmap,
    "grad": under_grad,
    "jacobian": under_jacobian,
    "trace": under_trace,
    "all at once": lambda work: under_vmap(
        lambda: under(
            torch.inference_mode,
            lambda: torch.autocast("cpu", torch.bfloat16),
            lambda: torch.device("meta"),
            FakeTensorMode,
        )(work)
    ),
}


def multiplied(plan: lp.Plan) -> Any:
    """What every context above would spoil."""
    assert not torch.is_inference_mode_enabled()
    assert not torch.is_grad_enabled()
    size = plan.shape[0]
    generator = torch.Generator().manual_seed(5)
    return torch.randn(size, size, generator=generator) @ torch.eye(size)


EXPECTED = torch.randn(4, 4, generator=torch.Generator().manual_seed(5)) @ torch.eye(4)


def params(device: Any, path: Path) -> dict[str, tuple[lp.Param, Any]]:
    """One lazy parameter for each kind of recipe, and what it is to be."""
    model = Bag(t=lp.Param((4, 4), never, device=device))
    ones = torch.ones(4, 4)
    return {
        "called": (lp.Param((4, 4), multiplied, device=device), EXPECTED),
        "drawn": (lp.Param((4, 4), lp.init.ones(), device=device), ones),
        "mapped": (
            lp.Param((4, 4), multiplied, device=device).map(lambda a: a @ torch.eye(4) * 2),
            EXPECTED * 2,
        ),
        "moved": (lp.Param((4, 4), lp.init.ones()).map(lambda a: a * 2).to_device(device), ones * 2)
        if not device.is_autodiff
        else (lp.Param((4, 4), lp.init.ones(), device=device), ones),
        "cast": (model.load_file(path, dtype="cast").t, ones * 3),
        "view": (model.load_file(path, mode="view", dtype="cast").t, ones * 3),
    }


@pytest.fixture
def path(stored: Any) -> Path:
    return stored(t=np.full((4, 4), 3.0, np.float64))


def is_sound(param: lp.Param, expected: Any) -> None:
    """A tensor that trains, if it is to: outside of every context."""
    value = param.val()
    tracked = param.device.is_autodiff
    assert type(value) is torch.Tensor
    assert (value.dtype, value.device.type) == (torch.float32, "cpu")
    assert not value.is_inference()
    assert (value.requires_grad, value.is_leaf) == (tracked, True)
    assert torch.equal(value.detach(), expected)
    if tracked:
        assert param.grad() is None
        (value * 3).sum().backward()
        assert (param.grad() == 3).all()
        with torch.no_grad():
            value.add_(1)
        assert torch.equal(param.valid().val(), expected + 1)
    assert np.asarray(param).shape == (4, 4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("device", [PLAIN, TRACKING], ids=["plain", "tracking"])
@pytest.mark.parametrize("context", CONTEXTS)
def test_first_access_in_a_context_leaves_a_real_tensor(
    context: str, device: Any, path: Path
) -> None:
    """#115917, #87794, sglang#33470, diffusers#4296, memgraph#3913, jax#4312: whatever is on."""
    made = params(device, path)

    def work() -> None:
        for param, _ in made.values():
            param.val()

    CONTEXTS[context](work)
    for param, expected in made.values():
        assert param.is_initialized
        is_sound(param, expected)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("context", CONTEXTS)
def test_training_starts_in_any_context(context: str) -> None:
    """The leaf, too, is made with everything off: a value that is there is not enough."""
    p = lp.Param((4, 4), multiplied, device=PLAIN)
    p.val()
    trained = p.train()
    CONTEXTS[context](trained.val)
    is_sound(trained, EXPECTED)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("context", CONTEXTS)
def test_copies_files_and_numpy_work_in_any_context(context: str, tmp_path: Path) -> None:
    model = Bag(t=lp.Param((4, 4), multiplied, device=TRACKING))
    done: list[Any] = []

    def work() -> None:
        model.save_file(tmp_path / "m.safetensors")
        done.append(np.asarray(model.t).copy())
        done.append(np.asarray(model.t.clone(independent=True)).copy())
        done.append(np.asarray(model.load_file(tmp_path / "m.safetensors").t).copy())

    CONTEXTS[context](work)
    for array in done:
        assert array.tobytes() == EXPECTED.numpy().tobytes()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("context", CONTEXTS)
def test_a_failed_initialiser_leaves_the_context_as_it_was(context: str) -> None:
    """B47: and the parameter lazy."""

    def fail(plan: lp.Plan) -> Any:
        raise ZeroDivisionError

    p = lp.Param((4, 4), fail, device=TRACKING)
    seen = []

    def work() -> None:
        for _ in range(2):
            before = state()
            with pytest.raises(ZeroDivisionError):
                p.val()
            seen.append(state() == before)

    CONTEXTS[context](work)
    assert set(seen) == {True}
    assert not p.is_initialized


def state() -> tuple[Any, ...]:
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch._C._len_torch_function_stack(),
        torch._C._len_torch_dispatch_stack(),
        len(torch._C._functorch.get_interpreter_stack() or ()),
        torch._C._get_tracing_state() is not None,
    )


def test_what_makes_a_value_is_no_part_of_what_is_watched() -> None:
    p = lp.Param((4, 4), multiplied, device=TRACKING)
    with Spying() as spy:
        p.val()
    assert spy.seen == []


@pytest.mark.filterwarnings("ignore")
def test_what_makes_a_value_is_no_part_of_a_traced_graph() -> None:
    p = lp.Param((4, 4), multiplied, device=PLAIN)
    traced = torch.jit.trace(lambda x: x @ p.val(), torch.ones(1, 4), check_trace=False)
    assert torch.equal(traced(torch.eye(4)), EXPECTED)
    assert "randn" not in str(traced.graph)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("context", ["vmap", "grad", "jacobian"])
def test_a_value_that_a_transform_has_hold_of_is_refused(context: str) -> None:
    """It would be dead once the transform is done; the parameter stays lazy."""
    holder: list[Any] = []

    p = lp.Param((3,), lambda plan: holder[-1], device="torch:cpu")
    refused = []

    def function(x: Any) -> Any:
        holder.append(x)
        with pytest.raises(lp.InitError, match=r"inside a transform of torch\.func"):
            p.val()
        refused.append(True)
        return (x * x).sum()

    transform = {"vmap": torch.vmap, "grad": torch.func.grad, "jacobian": torch.func.jacrev}
    transform[context](function)(torch.ones(2, 3) if context == "vmap" else torch.ones(3))
    assert refused
    assert not p.is_initialized


def test_a_functional_model_is_transformed_around_its_params() -> None:
    """Per-sample gradients by torch.func, the parameters coming into being inside."""
    p = lp.Param((4, 4), multiplied, device=PLAIN)

    def loss(x: Any) -> Any:
        return (x @ p.val()).sum()

    found = torch.vmap(torch.func.grad(loss))(torch.ones(3, 4))
    assert torch.allclose(found, EXPECTED.sum(1).expand(3, 4))


MIXED = [name for name in CONTEXTS if name not in ("trace", "dispatch mode", "all at once")][:8]


@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("eager_switching")
def test_threads_that_are_each_in_another_context_share_one_sound_value(
    proof: Callable[[int, int], int], path: Path
) -> None:
    """#115917, memgraph#3913: eight threads at once, whoever comes first; nobody hangs."""
    assert len(MIXED) == 8
    for _ in range(proof(12, 200)):
        for device in (PLAIN, TRACKING):
            made = params(device, path)

            def reading(context: str, made: Any = made) -> Callable[[], list[Any]]:
                values: list[Any] = []
                read = lambda: values.extend(p.val() for p, _ in made.values())  # noqa: E731

                def run() -> list[Any]:
                    before = state()
                    CONTEXTS[context](read)
                    assert state() == before
                    return values

                return run

            results = race([reading(context) for context in MIXED])
            for result in results:
                assert isinstance(result, list), result
            for at, (param, expected) in enumerate(made.values()):
                assert all(values[at] is results[0][at] for values in results)
                is_sound(param, expected)


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("eager_switching")
def test_a_bystander_keeps_what_it_has_switched_on() -> None:
    """B57: the context is of the thread that makes the value, of no other."""
    stop = threading.Event()
    spoiled: list[Any] = []

    def bystander() -> None:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16), torch.device("meta"):
            before = state()
            while not stop.is_set():
                if state() != before or torch.ones(1).device.type != "meta":
                    spoiled.append(state())

    thread = threading.Thread(target=bystander)
    thread.start()
    for _ in range(50):
        lp.Param((4, 4), multiplied, device=TRACKING).val()
    stop.set()
    thread.join()
    assert spoiled == []


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("eager_switching")
def test_two_models_on_two_libraries_load_at_once(path: Path) -> None:
    """B57: sixteen loads of a tied model, half of them on torch, each of them right."""

    class Pair(lp.Module):
        def __init__(self, device: str) -> None:
            self.t = lp.Param((4, 4), never, device=device)
            self.u = self.t.clone()

    def loading(at: int) -> Callable[[], Any]:
        def run() -> Any:
            device = ("numpy:cpu", "torch:cpu")[at % 2]
            with torch.inference_mode(at % 4 == 1):
                model = Pair(device).load_file(
                    path, rename={"t": "u"} if at % 3 else None, dtype="cast"
                )
                assert model.t.val() is model.u.val()
            return np.asarray(model.t).tobytes()

        return run

    expected = np.full((4, 4), 3.0, np.float32).tobytes()
    assert race([loading(at) for at in range(16)]) == [expected] * 16


def test_a_compiled_function_reads_params_as_they_are() -> None:
    """In another process: the compiler is imported there, and takes its seconds there."""
    script = """
    import torch, lazyparam as lp
    from torch._dynamo.utils import counters

    TRACKING = lp.device("torch:cpu").autodiff()
    runs = []

    def init(plan):
        assert torch._C._dynamo.eval_frame.get_eval_frame_callback() is None
        runs.append(1)
        return torch.randn(plan.shape).mul_(2)

    class Model(lp.Module):
        def __init__(self):
            self.weight = lp.Param((3, 3), init, device=TRACKING)
            self.bias = lp.Param(3, lp.init.ones(), device=TRACKING)

        def __call__(self, x):
            return x @ self.weight.value + self.bias.val()

    model = Model()
    compiled = torch.compile(model.__call__, backend="eager")
    x = torch.ones(2, 3)
    compiled(x).sum().backward()
    assert len(runs) == 1
    assert type(model.weight.val()) is torch.Tensor
    assert model.weight.val().is_leaf
    assert (model.weight.grad() == 2).all()
    assert torch.allclose(compiled(x), model(x))
    with torch.no_grad():
        model.weight.val().zero_()
    assert compiled(x).tolist() == [[1, 1, 1], [1, 1, 1]]
    breaks = " ".join(counters["graph_break"])
    assert "lazyparam" not in breaks.replace("class `Param`", ""), breaks
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=110)
