"""The rows for a backend with two devices to test on."""

from __future__ import annotations

import copy
import pickle
from typing import Any, ClassVar

import numpy as np
import pytest

import lazyparam as lp

from ._backend import BackendConformance
from ._tools import Box, Counting, bits, race, sample


class MultiDeviceConformance(BackendConformance):
    """As :class:`BackendConformance`, for a backend with a second device at hand.

    Attributes:
        other_device: the name of another device of the same backend.
    """

    other_device: ClassVar[str]

    @property
    def elsewhere(self) -> lp.Device:
        return lp.device(self.other_device)

    def test_two_devices_are_two(self) -> None:
        assert self.place != self.elsewhere
        assert len({self.place, self.elsewhere}) == 2

    def test_an_array_moves_between_devices_bit_for_bit(self, dtype: str) -> None:
        """Into memory of its own."""
        host = sample(dtype)
        x = self.array(host)
        moved = self.backend.to_device(x, self.elsewhere)
        assert self.backend.device_of(moved) == self.elsewhere
        assert self.backend.meta(moved) == (host.shape, dtype)
        self.spoil(x)
        assert self.bits(moved) == bits(host)

    def test_a_value_on_another_device_than_declared_is_refused(self) -> None:
        p = self.lazy(lambda plan: self.array(np.ones(plan.shape, plan.dtype), self.elsewhere))
        with pytest.raises(lp.InitError, match=f"expected {self.place}.*found {self.elsewhere}"):
            p.val()
        assert not p.is_initialized

    def test_threads_make_values_on_the_devices_that_were_declared(self) -> None:
        """pytorch#58626, fairseq#3560: not where the thread happens to be."""
        places = [self.place, self.elsewhere] * 4
        values = race([self.lazy(device=place).val for place in places])
        assert [self.backend.device_of(value) for value in values] == places

    @pytest.mark.parametrize("first", [0, 1])
    def test_a_clone_that_moved_has_the_same_draw_whichever_is_read_first(self, first: int) -> None:
        """B32: and the initialiser runs once."""
        init = Counting(lambda host: self.array(host, self.place))
        p = self.lazy(init)
        pair = [p, p.clone().to_device(self.elsewhere)]
        assert not any(one.is_initialized for one in pair)
        try:
            pair[first].val()
        except lp.InitError:
            # An initialiser that does not look at its plan makes its value at home only.
            assert first == 1
        pair[0].val()
        assert self.bits(pair[0]) == self.bits(pair[1])
        assert self.backend.device_of(pair[1].val()) == self.elsewhere

    def test_a_moved_param_is_there_after_copies_and_pickles(self) -> None:
        """B43."""
        p = lp.Param((2, 3), lp.init.normal(), device=self.place).to_device(self.elsewhere)
        for is_ready in (False, True):
            if is_ready:
                p.val()
            for other in (p.clone(), copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
                assert other.device == self.elsewhere
                assert self.backend.device_of(other.val()) == self.elsewhere

    def test_same_seed_same_bits_on_each_device(self) -> None:
        """B56, peft#2787."""

        def drawn(device: lp.Device) -> Any:
            return self.bits(Box(lp.Param((8, 8), lp.init.normal(), device=device)).seed(1).t)

        assert drawn(self.place) == drawn(self.elsewhere)
