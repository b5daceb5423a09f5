"""The rows for a backend whose arrays record gradients by themselves."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import lazyparam as lp

from ._backend import BackendConformance
from ._tools import Counting, Host, never, race


class Dense(lp.Module):
    """A dense layer."""

    def __init__(self, weight: lp.Param[Any], bias: lp.Param[Any]) -> None:
        self.weight = weight
        self.bias = bias

    def __call__(self, x: Any) -> Any:
        return x @ self.weight.value.T + self.bias.value


class GradientConformance(BackendConformance):
    """As :class:`BackendConformance`, for a backend that `records_gradients`.

    Its arrays need the operators ``*``, ``+``, ``@``, ``.T`` and ``.sum()``.
    """

    tests_gradients = True

    def is_tracked(self, x: Any) -> bool:
        """Whether an array of the library records gradients."""
        return bool(x.requires_grad)

    def backward(self, loss: Any) -> None:
        """Let the gradients of a scalar flow back to the leaves."""
        loss.backward()

    # ---- for the tests ----

    @property
    def tracking(self) -> lp.Device:
        return self.place.autodiff()

    def gradient(self, p: lp.Param[Any]) -> Host:
        """The gradient that `p` has, on the host."""
        found = p.grad()
        assert found is not None
        assert not self.is_tracked(found)
        return self.host(found)

    def differentiate(self, p: lp.Param[Any]) -> Host:
        """The gradient of the sum of three times `p`."""
        self.backward((p.val() * 3).sum())
        return self.gradient(p)

    def either(self, is_ready: bool) -> lp.Param[Any]:
        return self.ready().train() if is_ready else self.lazy(device=self.tracking)

    # ---- devices -------------------------------------------------------------------------------

    def test_a_device_in_a_context_of_gradients_is_the_same_place(self) -> None:
        """Equality and hash ignore it; text, copies and pickles do not lose it."""
        assert self.tracking == self.place
        assert hash(self.tracking) == hash(self.place)
        assert (self.tracking.is_autodiff, self.place.is_autodiff) == (True, False)
        assert self.tracking.autodiff().is_autodiff
        assert not self.tracking.inner().is_autodiff
        assert pickle.loads(pickle.dumps(self.tracking)).is_autodiff
        assert copy.deepcopy(self.tracking).is_autodiff

    # ---- what is tracked -----------------------------------------------------------------------

    def test_threads_that_read_together_get_one_leaf(self) -> None:
        """B01, B02: its gradient is found through every clone."""
        init = Counting(self.array, 0.006)
        p = self.lazy(init, device=self.tracking)
        values = race([(p if at % 2 else p.clone()).val for at in range(8)])
        assert init.runs == 1
        assert all(value is values[0] for value in values)
        assert self.is_tracked(values[0])
        assert (self.differentiate(p) == 3).all()
        assert (self.gradient(p.clone()) == 3).all()

    @pytest.mark.parametrize("moment", ["before", "after"])
    def test_freezing_a_clone_leaves_the_gradient_of_the_other(self, moment: str) -> None:
        """B07: before the shared initialisation as well as after."""
        p = self.lazy(device=self.tracking)
        if moment == "after":
            p.val()
        q = p.clone().set_requires_grad(False)
        assert not self.is_tracked(q.val())
        assert self.is_tracked(p.val())
        assert (self.differentiate(p) == 3).all()
        assert q.grad() is None

    def test_devices_then_a_move_to_the_same_then_training_gives_right_gradients(self) -> None:
        """B13: both are lazy until the forward pass."""
        model = Dense(
            lp.Param((1, 2), self.ones, device=self.tracking),
            lp.Param(1, self.ones, device=self.tracking),
        )
        moved = model.to_device(model.devices()[0])
        assert not any(param.is_initialized for param in moved.parameters())
        self.backward(moved(self.array(np.ones((1, 2), np.float32))).sum())
        assert self.gradient(moved.weight).tolist() == [[1, 1]]
        assert self.gradient(moved.bias).tolist() == [1]

    def test_a_frozen_lazy_param_is_untracked_when_it_is_read(self) -> None:
        """B14."""
        p = self.lazy(device=self.tracking).set_requires_grad(False)
        assert not p.is_initialized
        assert not self.is_tracked(p.val())
        assert not self.is_tracked(p.valid().train().val())

    def test_a_wish_takes_effect_where_gradients_are_recorded(self) -> None:
        """B15, B16, B17: untracked on the plain device, tracked after train."""
        untracked = self.array(np.ones((2, 3), np.float32))
        for p in (
            lp.Param.initialized(untracked).set_requires_grad(True),
            lp.Param.from_tensor(untracked),
            self.lazy(requires_grad=False).set_requires_grad(True),
        ):
            assert p.requires_grad
            assert not self.is_tracked(p.val())
            assert self.is_tracked(p.train().val())
            assert (self.differentiate(p.train()) == 3).all()

    @pytest.mark.parametrize("is_ready", [False, True])
    def test_what_is_done_while_validating_is_untracked_and_train_tracks_it(
        self, is_ready: bool
    ) -> None:
        """B18, B19, B20: a map, consume and rebuild, a load."""
        p = self.either(is_ready).valid()
        for q in (
            p.map(lambda x: x),
            lp.Param.from_mapped_value(*p.consume()),
            p.transform_for_load(self.array(np.zeros((2, 3), np.float32))),
        ):
            assert not self.is_tracked(q.val())
            assert q.requires_grad
            assert self.is_tracked(q.train().val())

    @pytest.mark.parametrize("is_ready", [False, True])
    def test_the_whole_cycle_of_training_states_tracks_as_it_says(self, is_ready: bool) -> None:
        """B21."""
        p = self.either(is_ready)
        seen = [(self.is_tracked(p.val()), p.requires_grad)]
        for step in ("valid", "train", "no_grad", "valid", "train"):
            p = getattr(p, step)()
            seen.append((self.is_tracked(p.val()), p.requires_grad))
        on, off, frozen = (True, True), (False, True), (False, False)
        assert seen == [on, off, on, frozen, frozen, frozen]

    @pytest.mark.parametrize("is_ready", [False, True])
    def test_a_mapped_value_is_the_leaf(self, is_ready: bool) -> None:
        """B22: the gradient lands on what the mapper gave."""
        p = self.either(is_ready)
        q = p.init_mapper(lambda x: x * 2)
        assert (self.host(q) == 2).all()
        self.backward(q.val().sum())
        assert (self.gradient(q) == 1).all()
        assert p.grad() is None

    def test_a_moved_param_keeps_the_context_that_it_was_built_with(self) -> None:
        """B25, B30, B31: plain stays plain, tracking stays tracking, mapped or not."""
        plain = self.lazy()
        assert not self.is_tracked(plain.to_device(self.tracking).val())
        assert not self.is_tracked(plain.fork(self.tracking).val())
        for p in (
            self.lazy(device=self.tracking),
            self.lazy(device=self.tracking).init_mapper(lambda x: x * 2),
        ):
            both = (p.fork(self.place), p.to_device(self.place))
            assert not any(moved.is_initialized for moved in both)
            assert all(self.is_tracked(moved.val()) for moved in both)
        assert self.is_tracked(self.ready().train().fork(self.place).val())

    def test_a_fork_is_a_leaf_of_its_own(self) -> None:
        """pytorch#8287, #12627: the gradient of a moved parameter is found."""
        p = self.lazy(device=self.tracking)
        p.val()
        q = p.fork(self.place)
        assert (self.differentiate(q) == 3).all()
        assert p.grad() is None
        assert self.is_tracked(p.to_device("cpu").to_device(self.tracking).train().val())

    def test_frozen_stays_frozen_over_many_moves(self) -> None:
        """mlverse/torch#491."""
        p = self.lazy(device=self.tracking, requires_grad=False)
        for place in ("cpu", self.tracking, self.place, self.tracking) * 3:
            p = p.to_device(place)
            assert not p.requires_grad
        assert not self.is_tracked(p.train().val())

    def test_a_tracked_param_that_is_copied_or_pickled_is_tracked_again(self) -> None:
        """B43."""
        for p in (lp.Param((2, 3), lp.init.ones(), device=self.tracking), self.ready().train()):
            for other in (p.clone(), copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
                assert other.is_active
                assert self.is_tracked(other.val())

    def test_an_int_param_is_never_tracked(self) -> None:
        """B28, B29, pytorch#99264: nor does a move initialise it."""
        for kind in ("int32", "bool"):
            if kind not in self.lacks:
                for device, other in ((self.place, self.tracking), (self.tracking, self.place)):
                    p = self.lazy(never, dtype=kind, device=device)
                    for moved in (p.to_device(other), p.fork(other)):
                        assert not moved.is_initialized
                        assert moved.device.is_autodiff is device.is_autodiff
                p = self.lazy(dtype=kind, device=self.tracking)
                assert not p.is_active
                assert not self.is_tracked(p.val())
                assert p.grad() is None

    def test_what_the_initialiser_computed_is_no_part_of_the_graph(self) -> None:
        """A value made from another one's is a leaf, and has no gradient for its source."""
        source = self.lazy(device=self.tracking)
        p = self.lazy(lambda plan: source.val() * 2, device=self.tracking)
        assert (self.host(p) == 2).all()
        assert (self.differentiate(p) == 3).all()
        assert source.grad() is None

    def test_gradients_are_found_by_parameter_and_leave_no_trace(self) -> None:
        """By id, so a module that was made from this one finds them too; frozen ones are absent."""
        frozen = self.lazy(device=self.tracking, requires_grad=False)
        model = Dense(self.lazy(device=self.tracking), lp.Param(2, self.ones, device=self.tracking))
        loss = (model(self.array(np.ones((1, 3), np.float32))) + frozen.val().sum()).sum()
        found = lp.gradients(loss, model)
        assert (self.host(found[model.weight]) == 1).all()
        assert (self.host(found[model.clone().bias]) == 1).all()
        assert found.get(frozen) is None
        assert len(model.grads()) == 0

    def test_an_optimiser_gets_the_leaves_of_what_is_to_be_trained(self) -> None:
        """Each once, the values themselves: a step is seen by the module."""
        weight = self.lazy(device=self.tracking)
        frozen = self.lazy(device=self.tracking, requires_grad=False)
        (leaf,) = Dense(weight, frozen).leaves()
        assert leaf is weight.val()
        assert Dense(weight, weight.clone()).leaves()[1:] == []

    def test_asking_for_a_gradient_initialises_nothing(self) -> None:
        p = self.lazy(device=self.tracking)
        assert p.grad() is None
        assert not p.is_initialized

    def test_a_tracked_value_is_exported_detached(self) -> None:
        p = self.either(True)
        assert self.is_tracked(p.val())
        assert np.asarray(p).tolist() == [[1, 1, 1]] * 2
        assert self.host(p.val()).tolist() == [[1, 1, 1]] * 2
        assert (self.host(p.to_device("cpu")) == 1).all()
