"""The contract of a backend object: arrays there and back, their memory, casts, devices."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager

import numpy as np
import pytest

import lazyparam as lp

from ..backends import Backend
from ..devices import backend_holding, backend_of
from ._base import Conformance
from ._tools import LAYOUTS, NARROW_INTS, bits, kind_of, sample


class ArrayRows(Conformance):
    """Tests of the backend object itself."""

    def test_the_backend_is_found_by_its_device_and_by_its_arrays(self) -> None:
        assert isinstance(self.backend, Backend)
        assert self.place.backend == self.backend.name
        assert lp.device(str(self.place)) == self.place
        assert backend_of(self.place) is self.backend
        assert backend_holding(self.array(sample("float32"))) is self.backend

    def test_it_owns_its_arrays_and_nothing_else(self) -> None:
        assert self.backend.owns(self.array(sample("float32")))
        for other in ([1.0], 1.0, None, "cpu", object(), self.place):
            assert not self.backend.owns(other)

    def test_an_array_tells_its_shape_dtype_and_device(self, dtype: str) -> None:
        for shape in ((), (0, 3), (2, 3)):
            x = self.array(sample(dtype, shape))
            assert self.backend.meta(x) == (shape, dtype)
            assert self.backend.device_of(x) == self.place
            self.backend.check(x)

    def test_a_dtype_goes_there_and_back_bit_for_bit(self, dtype: str) -> None:
        """pytorch#109873, ml_dtypes#81, pytorch#114673: no dtype becomes another."""
        host = sample(dtype)
        wanted = bits(host)
        for sole in (False, True):
            x = self.backend.from_host(host.copy(), self.place, sole)
            assert self.bits(x) == wanted

    def test_a_dtype_that_the_library_has_not_is_refused_and_never_narrowed(self) -> None:
        for dtype in sorted(self.lacks):
            with pytest.raises(lp.DeviceError):
                self.array(sample(dtype))

    def test_any_layout_of_the_host_arrives_element_by_element(self, layout: str) -> None:
        """pytorch#188023, scikit-learn#34307, jax#40789, numpy#23349, safetensors#825."""
        for dtype in ("float32", "bfloat16", "bool"):
            if dtype not in self.lacks:
                host = LAYOUTS[layout](dtype)
                x = self.array(host)
                assert self.backend.meta(x)[0] == host.shape
                assert self.bits(x) == bits(host)

    def test_what_comes_from_the_host_has_memory_of_its_own(self) -> None:
        """jax#37830, sglang#32896: writing to the source afterwards changes nothing."""
        for shape in ((3,), (64, 1024)):
            host = np.ones(shape, np.float32)
            x = self.array(host)
            host[...] = 7
            assert (self.host(x) == 1).all()

    def test_a_copy_is_equal_and_has_memory_of_its_own(self, dtype: str) -> None:
        host = sample(dtype)
        x = self.array(host)
        copied = self.backend.copy(x)
        assert self.backend.meta(copied) == (host.shape, dtype)
        assert self.bits(copied) == bits(host)
        self.spoil(copied)
        assert self.bits(x) == bits(host)

    def test_a_published_array_is_equal_and_nobody_elses(self, dtype: str) -> None:
        """B55: its maker, who may have kept it, cannot write to it."""
        host = sample(dtype)
        for sole, ours in ((False, False), (True, False), (True, True)):
            x = self.array(host)
            published = self.backend.publish(x, self.place, sole, ours)
            assert self.backend.meta(published) == (host.shape, dtype)
            if not sole:
                self.spoil(x)
            assert self.bits(published) == bits(host)

    def test_a_cast_between_floats_and_back_gives_the_elements_that_it_can_hold(self) -> None:
        host = np.array([[-2.0, -0.0, 0.5, 1.5]], np.float32)
        for dtype in ("float16", "bfloat16", "float64"):
            if dtype not in self.lacks:
                cast = self.backend.cast(self.array(host), dtype)
                assert self.backend.meta(cast) == (host.shape, dtype)
                assert self.bits(self.backend.cast(cast, "float32")) == bits(host)

    def test_a_cast_between_kinds_is_refused(self) -> None:
        for held, dtype in (("float32", "int32"), ("int32", "float32"), ("bool", "uint8")):
            with pytest.raises(lp.InitError):
                self.backend.cast(self.array(np.ones(2, held)), dtype)

    def test_an_int_that_does_not_fit_is_refused_not_wrapped(self) -> None:
        has = [dtype for dtype in NARROW_INTS if dtype not in self.lacks]
        wide, narrow = has[-1], has[0]
        for number in (np.iinfo(narrow).max + 1, np.iinfo(narrow).min - 1):
            with pytest.raises(lp.InitError, match=str(number)):
                self.backend.cast(self.array(np.array([0, number], wide)), narrow)
        cast = self.backend.cast(self.array(np.array([0, 5], wide)), narrow)
        assert self.host(cast).tolist() == [0, 5]
        assert kind_of(self.backend.meta(cast)[1]) == "int"

    def test_a_device_that_is_not_there_is_refused_alike_each_time(self) -> None:
        """cupy#9091: a failed look for a device leaves nothing behind."""
        self.backend.probe(self.place)
        absent = lp.device(f"{self.backend.name}:nowhere:0")
        said: set[str] = set()
        for _ in range(2):
            with pytest.raises(lp.DeviceUnavailable) as caught:
                self.backend.probe(absent)
            said.add(str(caught.value))
        assert len(said) == 1
        self.backend.probe(self.place)

    def test_what_names_no_device_is_left_to_others(self) -> None:
        for thing in (None, 3, "cpu", object(), self.array(sample("float32"))):
            assert self.backend.parse(thing) is None

    def test_the_scope_may_be_entered_by_several_threads_at_once(self) -> None:
        """cupy#5006: what one thread enters, another one does not leave."""
        inside = threading.Barrier(2, timeout=30)
        failed: list[BaseException] = []

        def enter() -> None:
            try:
                scope = self.backend.scope(self.place)
                if scope is None:
                    return
                assert isinstance(scope, AbstractContextManager)
                with scope:
                    inside.wait()
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=enter) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
