"""First access anywhere: in traces, under settings of others, from many threads, on any device."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyparam as lp

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from tests.helpers import Bag, Linear, race  # noqa: E402

ROOT = Path(__file__).parent.parent


def called(plan: lp.Plan) -> Any:
    """A draw that traces, compiles and runs functions of JAX."""
    draw = jax.random.normal(jax.random.key(1), plan.shape, plan.dtype)
    return jax.jit(lambda x: x @ jnp.eye(3, dtype=x.dtype))(draw)


def params() -> dict[str, lp.Param]:
    """One of each way to come into being."""
    made = {
        "drawn": lp.Param((3, 3), lp.init.normal(), device="jax:cpu"),
        "called": lp.Param((3, 3), called, device="jax:cpu"),
        "mapped": lp.Param((3, 3), called, device="jax:cpu").init_mapper(lambda a: a * 2 + a.T),
        "moved": lp.Param((3, 3), lp.init.normal()).to_device("jax:cpu"),
        "cast": lp.Param((3, 3), lp.init.ones())
        .to_device("jax:cpu")
        .map(lambda a: a.astype("bfloat16"), dtype="bfloat16"),
        "loaded": lp.Param((3, 3), None, device="jax:cpu").transform_for_load(
            np.ones((3, 3), np.float32)
        ),
    }
    return vars(Bag(**made).seed(1))


WAYS = list(params())


def in_jit(read: Callable[[], Any]) -> Any:
    return jax.jit(lambda x: read() + x)(1.0)


def in_grad(read: Callable[[], Any]) -> Any:
    return jax.grad(lambda x: (read() * x).sum())(1.0)


def in_vmap(read: Callable[[], Any]) -> Any:
    return jax.vmap(lambda x: read() + x)(jnp.ones(2))


def in_scan(read: Callable[[], Any]) -> Any:
    return jax.lax.scan(lambda x, _: (x + read().sum(), None), jnp.float32(0), length=2)


def in_eval_shape(read: Callable[[], Any]) -> Any:
    return jax.eval_shape(lambda x: read() + x, jax.ShapeDtypeStruct((), jnp.float32))


def in_checkpoint(read: Callable[[], Any]) -> Any:
    return jax.grad(jax.checkpoint(lambda x: (read() * x).sum()))(1.0)


def in_jvp(read: Callable[[], Any]) -> Any:
    return jax.jvp(lambda x: read() * x, (1.0,), (1.0,))


def in_all_of_them(read: Callable[[], Any]) -> Any:
    f = jax.jit(jax.vmap(jax.grad(lambda x: (jax.lax.cond(x > 0, read, read) * x).sum())))
    return f(jnp.ones(2))


TRACES = [
    *(in_jit, in_grad, in_vmap, in_scan, in_eval_shape, in_checkpoint, in_jvp, in_all_of_them),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("trace", TRACES)
def test_a_first_access_in_a_trace_leaves_a_real_array(trace: Callable, way: str) -> None:
    """jax-ml/jax#4312, #3086: what is kept from a trace is an UnexpectedTracerError later."""
    p = params()[way]
    trace(p.val)
    assert p.is_initialized
    value = p.value
    assert not isinstance(value, jax.core.Tracer)
    assert value.committed
    np.testing.assert_array_equal(np.asarray(value), np.asarray(params()[way].value))
    assert (value + 1).shape == (3, 3)


@pytest.mark.parametrize("way", WAYS)
def test_a_param_that_is_declared_in_a_trace_is_real_too(way: str) -> None:
    made = []
    jax.jit(lambda x: made.append(params()[way]) or made[0].value + x)(1.0)
    assert not isinstance(made[0].value, jax.core.Tracer)


def test_an_initialiser_that_fails_in_a_trace_leaves_the_trace_and_the_param_as_they_were() -> None:
    def fails(plan: lp.Plan) -> Any:
        raise ValueError("not today")

    p = lp.Param(3, fails, device="jax:cpu")

    @jax.jit
    def f(x):
        with pytest.raises(ValueError, match="not today"):
            p.val()
        return x + 1

    assert f(1.0) == 2
    assert not p.is_initialized


@contextmanager
def nothing() -> Iterator[None]:
    yield


CONTEXTS: dict[str, Callable[[], Any]] = {
    "guarded transfers": lambda: jax.transfer_guard("disallow"),
    "forbidden transfers": lambda: jax.transfer_guard("disallow_explicit"),
    "low precision": lambda: jax.default_matmul_precision("bfloat16"),
    "no jit": jax.disable_jit,
}
# Not in the oldest JAX that this has to work with.
if hasattr(jax, "set_mesh"):
    CONTEXTS["mesh"] = lambda: jax.set_mesh(jax.make_mesh((1,), ("x",)))
if hasattr(jax, "enable_x64"):
    CONTEXTS["64 bits"] = lambda: jax.enable_x64(True)


@pytest.mark.parametrize("name", CONTEXTS)
@pytest.mark.parametrize("way", [way for way in WAYS if way != "called"])
def test_a_first_access_under_settings_of_the_callers_is_as_without(name: str, way: str) -> None:
    """pytorch/pytorch#115917: defaults of the thread that happens to come first decide nothing."""
    expected = np.asarray(params()[way].value)
    p = params()[way]
    with CONTEXTS[name]():
        p.val()
    np.testing.assert_array_equal(np.asarray(p.value), expected)
    assert isinstance(p.value.sharding, jax.sharding.SingleDeviceSharding)


def test_the_scope_is_gone_after_the_access() -> None:
    before = (jax.config.jax_default_device, jax.config.jax_default_matmul_precision)
    with jax.transfer_guard("disallow"), jax.default_matmul_precision("bfloat16"):
        lp.Param(3, lp.init.ones(), device="jax:cpu").val()
        assert jax.config.jax_default_matmul_precision == "bfloat16"
        with pytest.raises(Exception, match="Disallowed"):
            jnp.zeros(3) + 1
    assert before == (jax.config.jax_default_device, jax.config.jax_default_matmul_precision)


@pytest.mark.usefixtures("eager_switching")
@pytest.mark.parametrize("way", WAYS)
def test_eight_threads_some_of_them_tracing_share_one_real_value(way: str) -> None:
    """B01, B02: whichever thread makes it, in whatever context that is."""
    for _ in range(3):
        p = params()[way]
        plain = [p.val] * 2
        traced = [partial(trace, p.val) for trace in TRACES[:6]]
        outcomes = race(plain + traced)
        assert not [each for each in outcomes if isinstance(each, BaseException)]
        assert outcomes[0] is outcomes[1] is p.value
        assert not isinstance(p.value, jax.core.Tracer)


@pytest.mark.usefixtures("eager_switching")
def test_a_thread_that_traces_does_not_stall_the_others() -> None:
    """B50: while it waits, others run."""
    started, finish = threading.Event(), threading.Event()

    def slow(plan: lp.Plan) -> Any:
        started.set()
        assert finish.wait(30)
        return jnp.ones(plan.shape)

    p = lp.Param(3, slow, device="jax:cpu")

    def bystander() -> int:
        assert started.wait(30)
        other = lp.Param(3, lp.init.ones(), device="jax:cpu").val()
        assert not p.is_initialized
        assert p.shape == (3,)
        finish.set()
        return int(jax.jit(lambda x: x.sum())(other))

    outcomes = race([lambda: in_jit(p.val), p.val, lambda: in_grad(p.val), bystander])
    assert not [each for each in outcomes if isinstance(each, BaseException)]
    assert outcomes[3] == 3


@pytest.mark.usefixtures("eager_switching")
def test_first_flattens_of_one_model_from_many_threads_agree() -> None:
    """Registration, forms and values: all come into being in a race."""

    class Fresh(lp.Module):
        def __init__(self) -> None:
            self.a = lp.Param(3, called_of(3), device="jax:cpu")
            self.b = [lp.Param(3, lp.init.normal(), device="jax:cpu") for _ in range(3)]

    def called_of(width: int) -> Callable:
        return lambda plan: jax.random.normal(jax.random.key(3), (width,))

    model = Fresh()
    step = jax.jit(lambda model: jax.tree.map(lambda a: a + 1, model))
    outcomes = race([lambda: jax.tree.flatten(model), lambda: step(model)] * 4)
    assert not [each for each in outcomes if isinstance(each, BaseException)]
    assert len({hash(form) for _, form in outcomes[::2]}) == 1
    for new in outcomes[1::2]:
        np.testing.assert_array_equal(new.a.value, model.a.value + 1)


@pytest.mark.usefixtures("eager_switching")
def test_two_models_on_two_libraries_load_at_once(tmp_path: Path) -> None:
    """B57, huggingface/diffusers#4296: 16 concurrent loads, none disturbs another."""
    path = tmp_path / "model.safetensors"
    source = Bag(layers=[Linear(8, 8, lp.init.normal()) for _ in range(4)])
    source.save_file(path)
    expected = {name: np.asarray(param.value) for name, param in source.named_parameters()}

    def load(device: str, threads: int) -> Bag:
        model = Bag(layers=[Linear(8, 8) for _ in range(4)]).to_device(device)
        return model.load_file(path).initialize(threads=threads)

    others = ["cpu", "jax:cpu"]
    try:
        import torch  # noqa: F401

        from lazyparam.backends import _torch  # noqa: F401

        others.append("torch:cpu")
    except ImportError:
        pass
    work = [(device, 1 + at % 2) for at, device in enumerate(others * 6)][:16]
    with ThreadPoolExecutor(8) as pool:
        models = list(pool.map(lambda pair: load(*pair), work))
    for (device, _), model in zip(work, models, strict=True):
        assert model.devices() == [lp.device(device)]
        for name, param in model.named_parameters():
            np.testing.assert_array_equal(np.asarray(param), expected[name])


# ---- several devices ---------------------------------------------------------------------------


def with_four_devices(code: str) -> None:
    """Run `code` in a process where JAX has four CPU devices."""
    head = """
        import os
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
        import copy, pickle, sys
        import numpy as np, jax, jax.numpy as jnp, lazyparam as lp
        from jax.sharding import NamedSharding, PartitionSpec as P
        cpus = jax.local_devices(backend="cpu")
        def refuses(kind, match, f):
            try:
                f()
            except kind as error:
                assert match in str(error), error
            else:
                raise AssertionError(f"no {kind.__name__}")
        def on(value):
            assert value.committed and not isinstance(value, jax.core.Tracer)
            (place,) = value.devices()
            return cpus.index(place)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr


def test_values_are_made_on_the_declared_device_whatever_is_the_default_of_the_thread() -> None:
    """pytorch/pytorch#58626, facebookresearch/fairseq#3560: in a trace and a new thread too."""
    with_four_devices(
        """
        from concurrent.futures import ThreadPoolExecutor
        def param(init):
            return lp.Param(3, init, device="jax:cpu:3")
        compiled = jax.jit(jnp.ones, static_argnums=0)
        for init in (lp.init.ones(), lambda plan: jnp.ones(3), lambda plan: compiled(3)):
            for context in (cpus[0], cpus[1], cpus[3]):
                with jax.default_device(context):
                    p, q = param(init), param(init)
                    assert on(p.value) == 3
                    jax.jit(lambda x: (q.val(), x)[1])(1.0)
                    assert on(q.value) == 3
            with ThreadPoolExecutor(1) as pool:
                assert on(pool.submit(param(init).val).result()) == 3
        assert str(lp.device(cpus[2])) == "jax:cpu:2"
        given = lp.Param.from_tensor(jax.device_put(jnp.ones(2), cpus[2]))
        assert given.device == lp.device("jax:cpu:2")
        """
    )


def test_moves_between_devices_of_jax_keep_what_there_is_and_commit() -> None:
    """huggingface/transformers#33744: also lazily; the old parameter stays where it was."""
    with_four_devices(
        """
        p = lp.Param((2, 3), lp.init.normal(), dtype="bfloat16", device="jax:cpu:1")
        moved = p.to_device("jax:cpu:2").to_device("jax:cpu:3")
        assert not moved.is_initialized
        assert (on(moved.value), on(p.value)) == (3, 1)
        assert np.array_equal(np.asarray(moved.value), np.asarray(p.value))
        ready = p.fork("jax:cpu:0")
        assert ready.is_initialized and on(ready.value) == 0
        assert on(p.clone(independent=True).value) == on(copy.deepcopy(p).value) == 1
        refuses(lp.DeviceUnavailable, "0 to jax:cpu:3", lambda: p.to_device("jax:cpu:4").val())
        cast = lp.Param.from_tensor(jax.device_put(jnp.ones(3), cpus[2])).transform_for_load(
            np.ones(3, np.float16), dtype="float16")
        assert on(cast.value) == 2 and cast.dtype == "float16"
        """
    )


def test_a_value_on_another_device_than_declared_is_refused() -> None:
    """A kernel on an array of another device would not even fail."""
    with_four_devices(
        """
        p = lp.Param(3, lambda plan: jax.device_put(jnp.ones(3), cpus[1]), device="jax:cpu:2")
        refuses(lp.InitError, "another device", p.val)
        assert not p.is_initialized
        """
    )


def test_arrays_on_several_devices_are_no_values_but_may_stand_in_a_module() -> None:
    """Sharded training puts them there; they are computed with, and not saved as they are."""
    with_four_devices(
        """
        class Box(lp.Module):
            def __init__(self): self.t = lp.Param((4, 2), lp.init.ones(), device="jax:cpu")
        mesh = jax.sharding.Mesh(np.array(cpus), ("x",))
        sharded = NamedSharding(mesh, P("x"))
        over_all = jax.device_put(jnp.ones(4), sharded)
        refuses(lp.InitError, "several devices", lambda: lp.Param.from_tensor(over_all))
        box = jax.device_put(Box(), sharded)
        assert isinstance(box.t, lp.Place) and len(box.t.value.devices()) == 4
        assert jax.jit(lambda box: box.t.value.sum())(box) == 8
        doubled = jax.jit(lambda box: jax.tree.map(lambda a: a * 2, box))(box)
        refuses(lp.RecordError, "cannot be stored", lambda: doubled.save_file("never"))
        whole = jax.device_put(doubled, cpus[1])
        assert isinstance(whole.t, lp.Param) and whole.t.device == lp.device("jax:cpu:1")
        assert float(whole.t.value.sum()) == 16
        shardings = jax.tree.map(lambda _: sharded, box)
        assert len(jax.jit(lambda box: box, in_shardings=(shardings,))(box).t.value.devices()) == 4
        """
    )


@pytest.mark.skipif(not hasattr(jax, "set_mesh"), reason="this JAX has no such contexts")
def test_under_a_mesh_values_are_still_made_on_one_device() -> None:
    """In a trace under a mesh JAX has no way out for functions; the error says what to do."""
    with_four_devices(
        """
        with jax.set_mesh(jax.make_mesh((4,), ("x",))):
            drawn = lp.Param(3, lp.init.ones(), device="jax:cpu:2")
            called = lp.Param(3, lambda plan: jnp.ones(3), device="jax:cpu:2")
            assert on(drawn.value) == on(called.value) == 2
            assert jnp.ones(4).sharding.mesh.size == 4
            drawn = lp.Param(3, lp.init.ones(), device="jax:cpu:2")
            jax.jit(lambda x: (drawn.val(), x)[1])(1.0)
            assert on(drawn.value) == 2
            called = lp.Param(3, lambda plan: jnp.ones(3), device="jax:cpu:2")
            traced = jax.jit(lambda x: (called.val(), x)[1])
            refuses(lp.InitError, "initialize() the module before", lambda: traced(1.0))
            assert not called.is_initialized
        assert on(called.value) == 2
        """
    )


def test_what_a_tree_brings_without_a_device_lands_on_the_parameters() -> None:
    """JAX makes arrays on its default device; a model on another stays there."""
    with_four_devices(
        """
        class Box(lp.Module):
            def __init__(self): self.t = lp.Param(3, lp.init.ones(), device="jax:cpu:3")
        box = Box()
        assert on(jax.tree.map(lambda a: a + 1, box).t.value) == 3
        assert on(jax.tree.map(lambda _: jnp.zeros(3), box).t.value) == 3
        assert on(jax.grad(lambda box: box.t.value.sum())(box).t.value) == 3
        assert on(jax.jit(lambda box: box)(box).t.value) == 3
        assert on(jax.tree.map(lambda a: jax.device_put(a, cpus[1]), box).t.value) == 1
        """
    )


def test_a_value_is_unpickled_onto_its_own_device() -> None:
    """jax-ml/jax#14184: JAX's own pickles forget it."""
    with_four_devices(
        """
        p = lp.Param((2, 3), lp.init.normal(), dtype="bfloat16", device="jax:cpu:2")
        p.val()
        for q in (pickle.loads(pickle.dumps(p)), copy.deepcopy(p)):
            assert q.is_initialized and on(q.value) == 2
            assert np.array_equal(np.asarray(q.value), np.asarray(p.value))
        """
    )


def test_eight_threads_use_four_devices_at_once() -> None:
    with_four_devices(
        """
        from concurrent.futures import ThreadPoolExecutor
        sys.setswitchinterval(1e-6)
        inits = [lp.init.normal()] * 16 + [lambda plan: jnp.ones((8, 8)) @ jnp.ones((8, 8))] * 16
        params = [
            lp.Param((8, 8), init, device=f"jax:cpu:{at % 4}") for at, init in enumerate(inits)
        ]
        with ThreadPoolExecutor(8) as pool:
            values = list(pool.map(lambda p: p.val(), params * 2))
        assert [on(value) for value in values] == [at % 4 for at in range(64)]
        """
    )
