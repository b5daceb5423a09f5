"""The CuPy backend on a fake that is stricter than any GPU; see ``fake_cupy``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lazyparam as lp
from lazyparam.devices import backend_of
from tests import fake_cupy as cupy
from tests.cupy_on_fake import BACKEND, fake_gpus
from tests.helpers import Box, race

pytestmark = pytest.mark.thread_unsafe(reason="the fake is one machine for all threads")

GPU0, GPU1 = lp.device("cupy:cuda:0"), lp.device("cupy:cuda:1")


@pytest.fixture(autouse=True)
def machine() -> Iterator[cupy.Machine]:
    with fake_gpus(2) as plugged:
        yield plugged


def on(index: int, host: Any) -> cupy.ndarray:
    """What `host` holds, on a GPU, with the work on it done."""
    with cupy.Device(index) as here:
        there = cupy.array(np.asarray(host))
        here.synchronize()
    return there


def elements(x: cupy.ndarray) -> np.ndarray:
    """What the memory holds, whatever is still to be done on it."""
    return x._host.copy()


def twos(plan: lp.Plan) -> cupy.ndarray:
    return cupy.ones(plan.shape, plan.dtype) * 2


# ---- the fake itself: it must show what it is there to show -----------------------------------


def test_the_fake_shows_a_read_before_the_work_is_done() -> None:
    x = cupy.ones(3)
    with pytest.raises(cupy.Race), cupy.Stream(non_blocking=True):
        x.get()
    assert x.get().tolist() == [1, 1, 1]


def test_the_fake_shows_a_host_buffer_that_is_used_again_too_early() -> None:
    host = np.ones(3)
    x = cupy.array(host)
    host[:] = 7
    assert x.get().tolist() == [7, 7, 7]


def test_the_fake_shows_an_array_used_on_another_device() -> None:
    x = on(1, [1.0])
    with pytest.raises(cupy.Mixed):
        x * 2


def test_the_fake_shows_a_device_object_that_two_threads_are_in() -> None:
    """cupy#5006."""
    one = cupy.Device(1)
    with one, ThreadPoolExecutor(1) as pool, pytest.raises(cupy.Mixed):
        pool.submit(one.__enter__).result()


def test_the_fake_shows_memory_that_is_freed_while_it_is_read() -> None:
    x = on(0, np.ones(4))
    with cupy.Device(1):
        y = x.copy()
        del x
        cupy.Device(0).synchronize()
        cupy.Device(1).synchronize()
    assert elements(y).tolist() != [1, 1, 1, 1]


def test_a_device_of_cupy_cannot_be_hashed() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(cupy.Device(0))


# ---- devices -----------------------------------------------------------------------------------


def test_a_device_object_of_cupy_names_a_device() -> None:
    """Although it cannot be hashed; ours can."""
    assert lp.device(cupy.Device(1)) == GPU1
    assert hash(lp.device(cupy.Device(1))) == hash(GPU1)
    with cupy.Device(1):
        assert lp.device("cuda") == GPU0
        assert lp.device(cupy.Device()) == GPU1


def test_a_gpu_that_is_not_there_is_refused_at_first_use_alike_each_time() -> None:
    """cupy#9091: asking twice is answered twice the same."""
    p = lp.Param(3, twos, device="cuda:2")
    said = set()
    for _ in range(2):
        with pytest.raises(lp.DeviceUnavailable, match="cupy:cuda:0 to cupy:cuda:1") as caught:
            p.val()
        said.add(str(caught.value))
    assert len(said) == 1
    assert not p.is_initialized
    with pytest.raises(lp.DeviceUnavailable):
        BACKEND.probe(lp.device("cupy:tpu:0"))


def test_a_machine_without_a_gpu_says_so_and_keeps_the_librarys_error() -> None:
    """cupy#9091."""
    with fake_gpus(0):
        p = lp.Param(3, lp.init.ones(), device="cuda")
        for _ in range(2):
            with pytest.raises(lp.DeviceUnavailable, match="CuPy finds no GPU") as caught:
                p.val()
            assert isinstance(caught.value.__cause__, cupy.CUDARuntimeError)
        assert p.to_device("cpu").val().tolist() == [1, 1, 1]


def test_declaring_moving_and_printing_touch_no_gpu(machine: cupy.Machine) -> None:
    """dask-cuda#32, #719: no context, no byte, before a value is needed."""
    p = lp.Param((1000, 1000), twos, device="cuda:1")
    model = Box(p.to_device("cuda:0").fork("cuda:1").init_mapper(lambda x: x * 2))
    assert repr(model)
    assert model.num_params() == 10**6
    assert model.devices() == [GPU1]
    assert machine.entered == []
    assert machine.allocated == [0, 0]


def test_a_value_comes_into_being_on_the_declared_device_of_any_thread() -> None:
    """pytorch#58626, fairseq#3560, cupy#72: a fresh thread begins on device 0."""
    p = lp.Param(3, twos, device="cuda:1")
    with ThreadPoolExecutor(1) as pool:
        value = pool.submit(p.val).result()
        assert pool.submit(cupy.Device).result().id == 0
    assert value.device.id == 1
    assert BACKEND.device_of(value) == GPU1


def test_the_current_device_of_a_thread_is_as_it_was_after_every_outcome() -> None:
    def fail(plan: lp.Plan) -> None:
        assert cupy.Device().id == 1
        raise ZeroDivisionError

    for init in (twos, fail, lambda plan: "nothing"):
        with suppress(ZeroDivisionError, lp.InitError):
            lp.Param(3, init, device="cuda:1").val()
        assert cupy.Device().id == 0


def test_each_entry_has_a_device_object_of_its_own() -> None:
    """cupy#5006: eight threads that make values on one device at once do not mix theirs up."""
    params = [lp.Param(64, twos, device=f"cuda:{at % 2}") for at in range(8)]
    for _ in range(20):
        values = race([p.clone(independent=True).val for p in params])
        assert [value.device.id for value in values] == [0, 1] * 4, values


def test_a_value_on_another_device_than_declared_is_refused() -> None:
    def elsewhere(plan: lp.Plan) -> cupy.ndarray:
        with cupy.Device(0):
            return cupy.ones(plan.shape, plan.dtype)

    p = lp.Param(3, elsewhere, device="cuda:1")
    with pytest.raises(lp.InitError, match="expected cupy:cuda:1; found cupy:cuda:0"):
        p.val()
    assert not p.is_initialized


def test_a_value_on_several_devices_is_refused() -> None:
    with pytest.raises(lp.InitError, match="on several devices"):
        lp.Param(3, lambda plan: cupy.DistributedArray(plan.shape, plan.dtype), device="cuda").val()


def test_arrays_of_another_library_are_refused() -> None:
    with pytest.raises(lp.InitError, match=r"expected a cupy.ndarray"):
        lp.Param(3, lambda plan: np.ones(plan.shape, plan.dtype), device="cuda").val()


def test_mixing_libraries_in_an_initialiser_fails_with_the_librarys_error() -> None:
    """And leaves the parameter lazy."""
    p = lp.Param(3, lambda plan: cupy.ones(plan.shape, plan.dtype) + np.ones(3), device="cuda")
    with pytest.raises(TypeError, match="Unsupported type"):
        p.val()
    assert not p.is_initialized


# ---- streams -----------------------------------------------------------------------------------


def test_a_value_is_published_when_the_work_on_it_is_done() -> None:
    """cupy#8068, #5069, cuml#8086: other threads read it on streams of their own."""
    for _ in range(50):
        p = lp.Param(256, twos, device="cuda:1")

        def read(p: lp.Param = p) -> np.ndarray:
            with cupy.Device(1), cupy.Stream(non_blocking=True):
                return p.val().get()

        for host in race([read] * 4):
            assert isinstance(host, np.ndarray), host
            assert (host == 2).all()


def test_work_on_a_stream_of_the_initialisers_own_is_waited_for() -> None:
    """It is no longer the current one when the value is published."""

    def init(plan: lp.Plan) -> cupy.ndarray:
        with cupy.Stream(non_blocking=True):
            return twos(plan)

    assert (elements(lp.Param(8, init, device="cuda").val()) == 2).all()
    kept = []

    def keeps(plan: lp.Plan) -> cupy.ndarray:
        kept.append(init(plan))
        return kept[0]

    assert (elements(lp.Param(8, keeps, device="cuda").val()) == 2).all()


def test_without_publishing_the_race_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the two tests above would prove nothing."""
    monkeypatch.setattr(BACKEND, "publish", lambda x, device, sole, ours: x)
    value = lp.Param(8, twos, device="cuda").val()
    with pytest.raises(cupy.Race), cupy.Stream(non_blocking=True):
        value.get()


@pytest.mark.parametrize("device", [GPU0, GPU1], ids=str)
def test_a_value_that_is_drawn_read_cast_copied_or_moved_is_done_when_it_is_shared(
    device: lp.Device, tmp_path
) -> None:
    Box(lp.Param(64, lp.init.constant(2))).save_file(tmp_path / "m.safetensors")
    loaded = Box(lp.Param(64, device=device)).load_file(tmp_path / "m.safetensors").t
    half = Box(lp.Param(64, device=device, dtype="float16"))
    for p in (
        lp.Param(64, lp.init.constant(2), device=device),
        loaded,
        half.load_file(tmp_path / "m.safetensors", dtype="cast").t,
        loaded.clone(independent=True),
        lp.Param(64, lp.init.constant(1), device=device).map(lambda x: x + x),
        lp.Param.from_tensor(np.full(64, 2.0)).to_device(device),
        lp.Param(64, twos, device="cuda:0").to_device(device),
        lp.Param(64, twos, device="cuda:1").to_device(device),
    ):
        assert (elements(p.val()) == 2).all()
        assert p.val().device.id == device.index


def test_a_host_buffer_may_be_used_again_as_soon_as_from_host_returns() -> None:
    """sglang#32896."""
    for dtype in (np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn):
        host = np.ones(16, dtype)
        there = BACKEND.from_host(host, GPU0, sole=False)
        host[:] = 0
        assert (elements(there).astype(np.float32) == 1).all()


def test_a_move_between_gpus_reads_its_source_before_that_is_freed() -> None:
    """cupy#8068: a freed block is the next one's."""
    for make in (lambda x: x, lambda x: x[:, ::2], lambda x: x.T):
        host = np.arange(12.0).reshape(3, 4)
        x = make(on(0, host))
        moved = BACKEND.to_device(x, GPU1)
        del x
        cupy.Device(0).synchronize()
        cupy.Device(1).synchronize()
        np.testing.assert_array_equal(elements(moved), make(host))
        assert moved.device.id == 1


def test_the_stream_of_the_caller_stays_the_current_one() -> None:
    with cupy.Stream(non_blocking=True) as mine:
        lp.Param(8, twos, device="cuda").val()
        assert cupy.cuda.get_current_stream() is mine


@pytest.mark.parametrize("init", [twos, lp.init.ones()], ids=["called", "drawn"])
def test_a_value_cannot_come_into_being_while_its_stream_is_captured(init: Any) -> None:
    """pytorch#87794: what a captured graph allocates is the graph's."""
    p = lp.Param(3, init, device="cuda")
    ready = lp.Param(3, twos, device="cuda")
    ready.val()
    with cupy.Stream() as stream:
        stream.begin_capture()
        with pytest.raises(lp.InitInTransform, match="before the capture begins"):
            p.val()
        assert ready.val() is ready.val()
        stream.end_capture()
    assert not p.is_initialized
    assert p.val().shape == (3,)


# ---- memory ------------------------------------------------------------------------------------


def spoiled(x: cupy.ndarray) -> None:
    x[...] = 7
    x.device.synchronize()


def test_what_nobody_else_can_write_to_is_kept_without_a_copy() -> None:
    made = []

    def init(plan: lp.Plan) -> cupy.ndarray:
        array = cupy.ones(plan.shape, plan.dtype)
        made.append(array._host.ctypes.data)
        return array

    assert lp.Param(1000, init, device="cuda").val()._host.ctypes.data == made[0]


@pytest.mark.parametrize(
    "share",
    [
        pytest.param(lambda x: x, id="the same"),
        pytest.param(lambda x: x[:], id="a view"),
        pytest.param(lambda x: x.reshape(3), id="a reshaped view"),
        pytest.param(lambda x: cupy.ndarray((3,), "f4", memptr=x.data), id="over its pointer"),
        pytest.param(
            lambda x: cupy.ndarray((3,), "f4", memptr=cupy.MemoryPointer(x.data.mem)),
            id="over its memory",
        ),
    ],
)
def test_what_its_maker_can_still_write_to_is_copied(share: Any) -> None:
    """B55 as far as CuPy can: its arrays are writable, but nobody else has the parameter's."""
    kept = on(0, np.ones(3, np.float32))
    p = lp.Param(3, lambda plan: share(kept), device="cuda")
    value = p.val()
    spoiled(kept)
    assert elements(value).tolist() == [1, 1, 1]


def test_memory_of_another_library_is_copied() -> None:
    """cupy#8801, jax#19123: DLPack and the CUDA array interface share what another one owns."""
    foreign = []

    def init(plan: lp.Plan) -> cupy.ndarray:
        memory = cupy.UnownedMemory(12)
        foreign.append(memory.buffer.view(np.float32))
        foreign[0][:] = 1
        return cupy.ndarray(plan.shape, plan.dtype, memptr=cupy.MemoryPointer(memory))

    value = lp.Param(3, init, device="cuda").val()
    foreign[0][:] = 7
    assert elements(value).tolist() == [1, 1, 1]


def test_an_array_of_a_derived_class_becomes_a_plain_one() -> None:
    class Mine(cupy.ndarray):
        pass

    def init(plan: lp.Plan) -> cupy.ndarray:
        array = Mine(plan.shape, plan.dtype)
        array.fill(1)
        return array

    value = lp.Param(3, init, device="cuda").val()
    assert type(value) is cupy.ndarray
    assert elements(value).tolist() == [1, 1, 1]


def test_writing_to_a_value_reaches_no_fork_and_no_independent_clone() -> None:
    p = lp.Param(3, twos, device="cuda")
    value = p.val()
    others = [p.fork("cuda"), p.clone(independent=True), p.fork("cuda:1"), p.to_device("cpu")]
    for other in others:
        other.val()
    spoiled(value)
    for other in others:
        assert np.asarray(other).tolist() == [2, 2, 2]


# ---- dtypes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"])
def test_dtypes_of_ml_dtypes_travel_as_ints_bit_for_bit(dtype: str) -> None:
    """pytorch#109873, ml_dtypes#81: and keep their name on the device."""
    held = np.dtype(getattr(ml_dtypes, dtype))
    bits = np.arange(16, dtype=f"u{held.itemsize}").reshape(4, 4)
    host = bits.view(held)
    for index, make in enumerate((lambda x: x, lambda x: x.T, lambda x: x[::-1, ::2])):
        there = BACKEND.from_host(make(host), lp.device(f"cuda:{index % 2}"), sole=False)
        assert BACKEND.meta(there) == (make(host).shape, dtype)
        for x in (there, BACKEND.copy(there), BACKEND.to_device(there, GPU1)):
            back = BACKEND.to_host(x)
            assert back.dtype == held
            assert back.tobytes() == make(host).tobytes()
    assert BACKEND.to_host(on(0, bits).view(held).T).tobytes() == host.T.tobytes()


def test_a_dtype_that_cupy_has_not_is_refused() -> None:
    for host in (np.array(["a"]), np.zeros(2, np.longdouble), np.array([None])):
        with pytest.raises(lp.DeviceError, match="CuPy has no dtype"):
            BACKEND.from_host(host, GPU0, sole=False)


@pytest.mark.parametrize(
    ("held", "dtype"),
    [
        ("float32", "float16"),
        ("float32", "bfloat16"),
        ("bfloat16", "float32"),
        ("float32", "float8_e4m3fn"),
        ("float8_e4m3fn", "bfloat16"),
        ("int64", "int8"),
        ("complex64", "complex128"),
    ],
)
def test_a_cast_gives_the_elements_that_numpy_gives(held: str, dtype: str) -> None:
    host = np.array([-3, -0.0, 1.5, 100]).astype(getattr(ml_dtypes, held, held))
    for index in (0, 1):
        x = BACKEND.from_host(host, lp.device(f"cuda:{index}"), sole=False)
        cast = BACKEND.cast(x, dtype)
        assert BACKEND.device_of(cast).index == index
        back = BACKEND.to_host(cast)
        wanted = host.astype(getattr(ml_dtypes, dtype, dtype))
        assert back.dtype == wanted.dtype
        assert back.tobytes() == wanted.tobytes()


def test_a_cast_between_kinds_or_to_too_narrow_ints_is_refused() -> None:
    for host, dtype, problem in (
        (np.ones(2), "int32", "one kind of numbers"),
        (np.ones(2, bool), "uint8", "one kind of numbers"),
        (np.array([1, 300]), "uint8", "300 does not fit uint8"),
        (np.array([-1, 3]), "uint64", "-1 does not fit uint64"),
    ):
        with pytest.raises(lp.InitError, match=problem):
            BACKEND.cast(on(0, host), dtype)


# ---- how it is found ---------------------------------------------------------------------------


def test_the_fake_is_served_under_the_real_name() -> None:
    assert backend_of(GPU0) is BACKEND
    assert lp.Param.from_tensor(on(1, [1.0])).device == GPU1


def test_a_version_before_14_casts_bfloat16_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(type(BACKEND).cast.__globals__, "_HAS_BFLOAT16", False)
    x = BACKEND.from_host(np.ones(2, ml_dtypes.bfloat16), GPU0, sole=True)
    assert BACKEND.to_host(BACKEND.cast(x, "float32")).tolist() == [1, 1]


def test_eight_threads_that_first_touch_one_param_make_one_value(machine: cupy.Machine) -> None:
    """B02, B05: with kernels that take a while, each thread on a stream of its own."""
    machine.kernel_seconds = 0.002
    runs = []

    def init(plan: lp.Plan) -> cupy.ndarray:
        runs.append(threading.get_ident())
        return twos(plan)

    for _ in range(10):
        runs.clear()
        p = lp.Param(32, init, device="cuda:1")
        values = race([(p if at % 2 else p.clone()).val for at in range(8)])
        assert len(runs) == 1
        assert all(value is values[0] for value in values)
        assert (elements(values[0]) == 2).all()
