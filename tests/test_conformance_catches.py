"""The conformance suite fails for backends that break a promise: each fault, and who finds it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyparam as lp
from lazyparam import devices
from tests.test_conformance import TestThirdParty as _OfGrids
from tests.test_conformance import install_grid
from tests.third_party import Grid, GridBackend

pytestmark = pytest.mark.thread_unsafe(reason="the backend is changed for all threads")


class Aliases(GridBackend):
    """Keeps the host's memory."""

    def from_host(self, array: Any, device: lp.Device, sole: bool) -> Grid:
        return Grid(np.asarray(array))


class Narrows(GridBackend):
    """Takes what it has no dtype for as something narrower, as JAX does."""

    def from_host(self, array: Any, device: lp.Device, sole: bool) -> Grid:
        return super().from_host(array.real if array.dtype.kind == "c" else array, device, sole)


class Keeps(GridBackend):
    """Publishes what its maker can still write to."""

    def publish(self, x: Grid, device: lp.Device, sole: bool, ours: bool) -> Grid:
        return x


class Shares(GridBackend):
    """Copies without copying."""

    def copy(self, x: Grid) -> Grid:
        return Grid(x.elements)


class Wraps(GridBackend):
    """Casts ints that do not fit, and one kind to another."""

    def cast(self, x: Grid, dtype: str) -> Grid:
        return Grid(x.elements.astype(dtype))


class Flattens(GridBackend):
    """Loses the shape of arrays without axes, as ``np.ascontiguousarray`` does."""

    def from_host(self, array: Any, device: lp.Device, sole: bool) -> Grid:
        return super().from_host(np.ascontiguousarray(array), device, sole)


class Claims(GridBackend):
    """Takes everything for its own."""

    def owns(self, x: object) -> bool:
        return True


class Accepts(GridBackend):
    """Finds every device usable."""

    def probe(self, device: lp.Device) -> None:
        return


class OneForAll(GridBackend):
    """Has one scope object, which one thread at a time can be in."""

    _lock = threading.Lock()

    @contextmanager
    def _entered(self) -> Iterator[None]:
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("somebody is in")
        try:
            yield
        finally:
            self._lock.release()

    def scope(self, device: lp.Device) -> AbstractContextManager[None]:
        return self._entered()


class Records(GridBackend):
    """Says that it records gradients, and is not tested for it."""

    records_gradients = True

    def grad(self, x: Grid) -> None:
        return None


FAULTS = [
    (Aliases, "test_what_comes_from_the_host_has_memory_of_its_own"),
    (Narrows, "test_a_dtype_that_the_library_has_not_is_refused_and_never_narrowed"),
    (Narrows, "test_a_move_to_a_library_without_the_dtype_is_refused_and_never_narrowed"),
    (Keeps, "test_what_its_maker_keeps_cannot_reach_a_value"),
    (Keeps, "test_writing_to_a_value_reaches_nothing_that_was_made_from_it"),
    (Shares, "test_writing_to_a_value_reaches_nothing_that_was_made_from_it"),
    (Wraps, "test_an_int_that_does_not_fit_is_refused_not_wrapped"),
    (Wraps, "test_a_cast_between_kinds_is_refused"),
    (Claims, "test_it_owns_its_arrays_and_nothing_else"),
    (Claims, "test_a_value_of_another_shape_dtype_or_library_is_refused"),
    (Accepts, "test_a_device_that_is_not_there_is_refused_alike_each_time"),
    (OneForAll, "test_the_scope_may_be_entered_by_several_threads_at_once"),
    (Records, "test_a_backend_that_records_gradients_is_tested_as_one"),
]


@pytest.fixture
def _installed(tmp_path: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        install_grid(tmp_path)
        patch.syspath_prepend(str(tmp_path))
        devices._brought.cache_clear()
        yield
    devices._brought.cache_clear()
    devices._loaded.cache_clear()


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(
    ("faulty", "test"), FAULTS, ids=lambda thing: getattr(thing, "__name__", "")
)
def test_a_fault_is_found(
    faulty: type[GridBackend], test: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = _OfGrids()
    getattr(suite, test)()
    monkeypatch.setattr(
        devices,
        "_loaded",
        lambda name, load=devices._loaded: faulty() if name == "grid" else load(name),
    )
    # Whatever it fails with: on a sound backend it has just passed.
    with pytest.raises((Exception, pytest.fail.Exception)):
        getattr(suite, test)()


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize("layout", ["without axes"])
def test_a_lost_axis_is_found(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        devices,
        "_loaded",
        lambda name, load=devices._loaded: Flattens() if name == "grid" else load(name),
    )
    with pytest.raises(AssertionError):
        _OfGrids().test_any_layout_of_the_host_arrives_element_by_element(layout)
