"""Checks that need a GPU, against the installed wheel: one line for each, and an exit status.

    python tools/gpu.py

Uses whichever of CuPy and torch are there, and says what it left out. The status is 0 if nothing
failed, 1 if something did, and 2 if nothing could be checked.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

import lazyparam as lp
from lazyparam.devices import backend_of

THREADS = 8
ROUNDS = 1000
CONTROLS = 50
"""Rounds of the control, in which nothing is synchronised and something has to go wrong."""

ELEMENTS = 1 << 24
STEPS = 40
"""A value is `ELEMENTS` zeros to which 1 is added so many times. Each time takes a GPU longer than
it takes a thread to ask for it, so that a millisecond of work is left when all is asked for."""

GIBIBYTE = 1 << 30


class Skip(Exception):
    """What is to be checked cannot be checked here; the text says why."""


class Library(NamedTuple):
    """What the checks ask of CuPy or torch."""

    name: str
    module: Any
    device: lp.Device
    zeros: Callable[[int], Any]
    own_stream: Callable[[], AbstractContextManager[Any]]
    """A context in which this thread works on a new stream that waits for no other."""
    capture: Callable[[], AbstractContextManager[Any]]
    """A context in which this thread's stream is captured into a graph."""
    object_of: Callable[[int], Any]
    """The library's own object for a GPU."""


def cupy_library() -> Library:
    """CuPy, as the checks use it."""
    cupy: Any = import_module("cupy")

    @contextmanager
    def capture() -> Iterator[None]:
        with cupy.cuda.Stream(non_blocking=True) as stream:
            stream.begin_capture()
            try:
                yield
            finally:
                stream.end_capture()

    return Library(
        name="cupy",
        module=cupy,
        device=lp.device("cupy:cuda:0"),
        zeros=lambda size: cupy.zeros(size, "float32"),
        own_stream=lambda: cupy.cuda.Stream(non_blocking=True),
        capture=capture,
        object_of=cupy.cuda.Device,
    )


def torch_library() -> Library:
    """Torch, as the checks use it."""
    torch: Any = import_module("torch")

    @contextmanager
    def capture() -> Iterator[None]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            yield

    return Library(
        name="torch",
        module=torch,
        device=lp.device("torch:cuda:0"),
        zeros=lambda size: torch.zeros(size, device="cuda:0"),
        own_stream=lambda: torch.cuda.stream(torch.cuda.Stream()),
        capture=capture,
        object_of=lambda index: torch.device("cuda", index),
    )


# ---- the checks: each returns what it found, or raises -------------------------------------------


def devices(library: Library) -> str:
    """(a) Device objects, texts, equality and hash; a GPU that is not there."""
    backend = backend_of(library.device)
    backend.probe(library.device)
    for index in (0, 1):
        device = lp.device(library.object_of(index))
        assert device == lp.device(f"{library.name}:cuda:{index}")
        assert lp.device(str(device)) == device
        assert {device: True}[lp.device(str(device))]
    said = set()
    for _ in range(2):
        try:
            lp.Param(3, lp.init.ones(), device=f"{library.name}:cuda:99").val()
        except lp.DeviceUnavailable as error:
            said.add(str(error))
    assert len(said) == 1, f"GPU 99 was accepted, or refused in several ways: {said}"
    value = lp.Param(3, lp.init.ones(), device=library.device).val()
    assert backend.device_of(value) == library.device
    return "understood, equal, hashable; a missing GPU is refused alike each time"


def publishing(library: Library) -> str:
    """(b) Many threads, each on a stream of its own, read a value whose kernels are slow."""
    wrong = sum(races(library) for _ in range(ROUNDS))
    backend = backend_of(library.device)
    unsynchronised = mock.patch.object(type(backend), "publish", lambda self, x, *_: x)
    with unsynchronised:
        control = sum(races(library) for _ in range(CONTROLS))
    assert not wrong, f"{wrong} of {ROUNDS * THREADS} reads saw an unfinished value"
    assert control, f"without publish {CONTROLS} rounds went well too, so this proves nothing"
    return (
        f"{ROUNDS} rounds of {THREADS} threads all right; "
        f"without publish {control} of {CONTROLS * THREADS} reads were wrong"
    )


def races(library: Library) -> int:
    """How many of the threads that first read one parameter together saw something unfinished."""

    def init(plan: lp.Plan) -> Any:
        with library.own_stream():
            x = library.zeros(ELEMENTS)
            for _ in range(STEPS):
                x = x + 1
            return x

    p = lp.Param(ELEMENTS, init, device=library.device)
    barrier = threading.Barrier(THREADS)
    right: list[bool] = []

    def read() -> None:
        barrier.wait()
        try:
            value = p.val()
            with library.own_stream():
                right.append(float(value.min()) == STEPS == float(value.max()))
        except AssertionError:
            right.append(False)

    threads = [threading.Thread(target=read) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return THREADS - sum(right)


def host_buffers(library: Library) -> str:
    """(c) The host's array is written to as soon as it has been handed over."""
    backend = backend_of(library.device)
    for size in (3, 1 << 12, ELEMENTS):
        for host in (np.ones(size, np.float32), pinned(library, size)):
            for _ in range(5):
                host[...] = 1
                x = backend.from_host(host, library.device, False)
                host[...] = 7
                assert (backend.to_host(x) == 1).all(), f"{size} elements: later ones arrived"
    return f"pageable and pinned buffers of 12 B to {ELEMENTS >> 18} MiB may be used again at once"


def pinned(library: Library, size: int) -> Any:
    """An array in page-locked memory, from which copies are truly asynchronous."""
    if library.name == "torch":
        return library.module.empty(size, dtype=library.module.float32).pin_memory().numpy()
    allocate = getattr(library.module.cuda, "alloc_pinned_memory", None)
    if allocate is None:
        return np.ones(size, np.float32)
    return np.frombuffer(allocate(4 * size), np.float32, size)


def every_bfloat16(library: Library) -> str:
    """(d) All 65,536 of them, by way of every library that is there, and back."""
    import ml_dtypes

    host = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16)
    places = [library.device, lp.device("cpu"), library.device]
    if library.name == "cupy" and gpus_of_torch():
        places[1:1] = [lp.device("torch:cuda:0"), lp.device("torch:cpu")]
    p = lp.Param.from_tensor(host)
    for place in places:
        p = p.to_device(place)
        assert p.dtype == "bfloat16"
    back = p.to_device("cpu").val()
    assert back.dtype == host.dtype
    assert back.tobytes() == host.tobytes(), "some bits changed"
    return "bit-equal: cpu -> " + " -> ".join([*map(str, places), "cpu"])


def nothing_before_use(library: Library) -> str:
    """(e) Declaring a model of 4 TB takes no byte of the GPU, and makes no context on it."""
    script = textwrap.dedent(f"""
        import ctypes, sys
        import lazyparam as lp

        def is_active():
            cuda = ctypes.CDLL("libcuda.so.1")
            assert cuda.cuInit(0) == 0
            flags, active = ctypes.c_uint(), ctypes.c_int()
            both = ctypes.byref(flags), ctypes.byref(active)
            assert cuda.cuDevicePrimaryCtxGetState(0, *both) == 0
            return bool(active.value)

        class Model(lp.Module):
            def __init__(self):
                make = lambda: lp.Param((10**6, 10**5), lp.init.normal(), device="{library.device}")
                self.layers = [make() for _ in range(10)]
                self.small = lp.Param(3, lp.init.ones(), device="{library.device}")

        model = Model().seed(1).to_device("cpu").to_device("{library.device}")
        assert repr(model) and model.num_params() == 10**12 + 3
        assert "{library.name}" not in sys.modules, "the library was imported"
        assert not is_active(), "there is a context"
        Model().small.val()
        assert is_active(), "no context after a value was made, so this proves nothing"
    """)
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise Skip(f"no libcuda to ask: {error}") from None
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr.strip().splitlines()[-1]
    return "a lazy model imports nothing and makes no context; its first value does"


def captured_graphs(library: Library) -> str:
    """(f) A value cannot come into being inside a graph; one that is there can be read."""
    ready = lp.Param(3, lp.init.ones(), device=library.device)
    ready.val()
    lazy = lp.Param(3, lambda plan: library.zeros(3), device=library.device)
    refused = False
    with library.capture():
        ready.val()
        try:
            lazy.val()
        except lp.InitInTransform:
            refused = True
    assert refused, "it came into being inside the capture"
    assert not lazy.is_initialized
    lazy.val()
    return "refused with InitInTransform, made afterwards; a ready value is read"


def other_threads(library: Library) -> str:
    """(g) Python threads run on while a large array goes to the GPU."""
    host = np.ones(GIBIBYTE // 4, np.float32)
    backend = backend_of(library.device)
    backend.from_host(host[:8], library.device, False)
    ticks, done = [0], threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks[0] += 1
            time.sleep(0.0005)

    # Long enough that no thread is made to let go: it runs if the copy lets go, or not at all.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e6)
    ticker = threading.Thread(target=tick)
    try:
        ticker.start()
        begin, before = time.perf_counter(), ticks[0]
        backend.from_host(host, library.device, False)
        seconds, ran = time.perf_counter() - begin, ticks[0] - before
    finally:
        done.set()
        sys.setswitchinterval(interval)
        ticker.join()
    assert ran >= 5, f"another thread ran {ran} times in {seconds:.2f} s"
    rate = host.nbytes / seconds / 1e9
    return f"{host.nbytes >> 20} MiB in {seconds:.2f} s ({rate:.1f} GB/s), another ran {ran} times"


def conformance(library: Library) -> str:
    """(h) The public conformance suite on the GPU."""
    for needed in ("pytest", "ml_dtypes"):
        if not find_spec(needed):
            raise Skip(f"{needed} is not installed")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_gpu.py").write_text(textwrap.dedent(SUITES[library.name]))
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "."],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
    lines = done.stdout.strip().splitlines() or [done.stderr.strip()]
    if done.returncode:
        print(done.stdout, file=sys.stderr)
    assert done.returncode == 0, lines[-1]
    return lines[-1]


SUITES = {
    "cupy": """
        from lazyparam.backends._cupy import _words
        from lazyparam.testing import BackendConformance

        class TestCupy(BackendConformance):
            device = "cupy:cuda:0"

            def overwrite(self, x):
                # CuPy has no kernels for fp8 and its like.
                _words(x)[...] = 0
    """,
    "torch": """
        from lazyparam.testing import GradientConformance

        class TestTorch(GradientConformance):
            device = "torch:cuda:0"
            lacks = frozenset({"float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"})
    """,
}

CHECKS = {
    "a devices": devices,
    "b publishing": publishing,
    "c host buffers": host_buffers,
    "d bfloat16": every_bfloat16,
    "e before use": nothing_before_use,
    "f graphs": captured_graphs,
    "g other threads": other_threads,
    "h conformance": conformance,
}


# ---- running them --------------------------------------------------------------------------------


def gpus_of_cupy() -> int:
    """How many GPUs CuPy finds; 0 if there is no CuPy."""
    if not find_spec("cupy"):
        return 0
    cupy: Any = import_module("cupy")
    try:
        return int(cupy.cuda.runtime.getDeviceCount())
    except RuntimeError:
        return 0


def gpus_of_torch() -> int:
    """How many GPUs torch finds; 0 if there is no torch."""
    if not find_spec("torch"):
        return 0
    torch: Any = import_module("torch")
    return int(torch.cuda.device_count())


def run(library: Library) -> bool:
    """Do all checks with a library, a line for each; whether none failed."""
    well = True
    for name, check in CHECKS.items():
        begin = time.perf_counter()
        try:
            mark, outcome = "ok  ", check(library)
        except Skip as reason:
            mark, outcome = "skip", str(reason)
        except Exception as error:
            mark, outcome, well = "FAIL", f"{type(error).__name__}: {error}", False
        seconds = time.perf_counter() - begin
        print(f"{mark}  {library.name:5}  {name:16}  {outcome}  [{seconds:.1f} s]", flush=True)
    return well


def main() -> int:
    """All checks with all libraries; the exit status."""
    print(f"lazyparam {lp.__version__} of {Path(lp.__file__).parent}")
    libraries = []
    for name, gpus, make in (
        ("cupy", gpus_of_cupy, cupy_library),
        ("torch", gpus_of_torch, torch_library),
    ):
        if not find_spec(name):
            print(f"skip  {name:5}  it is not installed")
        elif not (count := gpus()):
            print(f"skip  {name:5}  it finds no GPU")
        else:
            version = import_module(name).__version__
            print(f"      {name:5}  {version}, GPUs: {count}")
            libraries.append(make())
    if not libraries:
        print("nothing was checked: this needs a GPU, and CuPy or torch")
        return 2
    # All of them, also after a failure.
    outcomes = [run(library) for library in libraries]
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
