"""The rows that hold of every parameter, whatever library its arrays are of."""

from __future__ import annotations

import copy
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyparam as lp

from ._base import KINDS, Conformance
from ._tools import (
    LAYOUTS,
    Boom,
    Box,
    Counting,
    Held,
    Mixed,
    Pair,
    bits,
    never,
    new_file_in,
    race,
    sample,
)

SLOW = 0.006  # seconds, longer than the interpreter's own switch interval
THREADS = 8


class ParamRows(Conformance):
    """Tests through the public API, on one device."""

    # ---- being declared ------------------------------------------------------------------------

    def test_everything_but_the_value_is_free_to_ask(self, kind: str) -> None:
        """B35, B28, B29, B34: asking, printing, copying, moving never initialise."""
        p = lp.Param((2, 3), never, dtype=kind, device=self.place, requires_grad=False, id=7)
        assert (p.shape, p.size, p.nbytes) == ((2, 3), 6, 6 * np.dtype(kind).itemsize)
        assert (p.dtype, p.id, p.requires_grad) == (kind, 7, False)
        assert p.device == self.place
        assert "lazy: never" in repr(p)
        assert hash(p) == hash(p)
        assert p != lp.Param((2, 3), never, dtype=kind, device=self.place)
        for other in (
            p.clone(),
            p.clone(independent=True),
            copy.deepcopy(p),
            pickle.loads(pickle.dumps(p)),
            p.to_device(self.place),
            p.to_device("cpu"),
            p.fork(self.place),
            p.valid(),
            p.train(),
            p.no_grad(),
            p.set_requires_grad(True),
            p.materialize(),
            p.map(never),
            p.init_mapper(never),
            p.load_mapper(never),
            p.save_mapper(never),
        ):
            assert not other.is_initialized
            assert (other.shape, other.dtype, other.id) == ((2, 3), kind, 7)
        assert not p.is_initialized

    def test_counting_and_merging_a_lazy_param_leaves_it_lazy(self) -> None:
        """B23: materialize twice without an adapter: same id, still lazy."""
        p = self.lazy(never)
        merged = p.materialize().materialize()
        assert Box(p).num_params() == 6
        assert merged.id == p.id
        assert not merged.is_initialized

    def test_a_module_tells_its_devices_without_initialising(self) -> None:
        """B11: floats, ints and bools, lazy and ready, through a clone too."""
        kinds = [kind for kind in KINDS if kind not in self.lacks]
        model = Mixed(kinds, self.ready(), self.place)
        for one in (model, model.clone(), copy.deepcopy(model)):
            assert one.devices() == [self.place]
            assert not any(param.is_initialized for param in one.lazy)

    @pytest.mark.parametrize("is_ready", [False, True])
    def test_an_adapter_is_moved_and_asked_about_without_coming_into_being(
        self, is_ready: bool
    ) -> None:
        """B12, B26: the base is lazy or ready, and stays so."""
        a = lp.Param((2, 1), never, device=self.place)
        b = lp.Param((1, 3), never, device=self.place)
        base = self.ready() if is_ready else self.lazy(never)
        p = base.with_reparameterization(lp.LoraAdapter(a, b))
        model = Pair(p, base)
        assert model.devices() == [self.place]
        for moved in (
            p.to_device(self.place),
            p.fork(self.place),
            p.fork("cpu"),
            model.clone().one,
        ):
            lora: Any = moved.reparameterization(lp.LoraAdapter)
            assert not any(param.is_initialized for param in (lora.a, lora.b, a, b))
        assert base.is_initialized is is_ready

    # ---- coming into being ---------------------------------------------------------------------

    def test_a_value_is_made_at_first_need_and_is_the_same_array_ever_after(
        self, kind: str
    ) -> None:
        """B03: every kind of tensor."""
        init = Counting(self.array)
        p = lp.Param((2, 3), init, dtype=kind, device=self.place)
        assert not p.is_initialized
        first = p.val()
        assert p.is_initialized
        assert p.val() is p.value is p.base() is p.into_value() is first
        assert init.runs == 1
        assert self.backend.owns(first)
        assert self.backend.meta(first) == ((2, 3), kind)
        assert self.backend.device_of(first) == self.place

    def test_threads_that_read_together_initialise_once_and_get_one_value(self, kind: str) -> None:
        """B01, B02, B03, B05: with an initialiser that draws other numbers each time."""
        for _ in range(3):
            init = Counting(self.array, SLOW)
            p = lp.Param((2, 3), init, dtype=kind, device=self.place)
            handles = [p if at % 2 else p.clone() for at in range(THREADS)]
            values = race([handle.val for handle in handles])
            assert init.runs == 1
            assert all(value is values[0] for value in values), values

    def test_an_initialiser_is_told_what_to_make_and_where(self) -> None:
        told: list[lp.Plan] = []

        def init(plan: lp.Plan) -> Any:
            told.append(plan)
            return self.ones(plan)

        self.lazy(init).val()
        (plan,) = told
        assert (plan.shape, plan.dtype, plan.device) == ((2, 3), "float32", self.place)

    def test_initialisers_and_mappers_run_within_the_scope_of_the_device(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """On the thread that makes the value; left again when they fail."""
        inside = threading.local()
        entered: list[int] = []

        true_scope = self.backend.scope

        @contextmanager
        def spied(device: lp.Device) -> Iterator[None]:
            with true_scope(device) or nullcontext():
                entered.append(threading.get_ident())
                inside.depth = getattr(inside, "depth", 0) + 1
                try:
                    yield
                finally:
                    inside.depth -= 1

        monkeypatch.setattr(self.backend, "scope", spied)
        seen: list[int] = []

        def look(x: Any) -> Any:
            seen.append(getattr(inside, "depth", 0))
            return x

        p = self.lazy(lambda plan: look(self.ones(plan))).init_mapper(look)
        with ThreadPoolExecutor(1) as pool:
            worker = pool.submit(threading.get_ident).result()
            pool.submit(p.val).result()
            with pytest.raises(Boom):
                pool.submit(self.lazy(Counting(self.array, failures=1)).val).result()
            assert pool.submit(lambda: inside.depth).result() == 0
        assert len(seen) == 2
        assert all(depth > 0 for depth in seen)
        assert set(entered) == {worker}

    def test_whatever_the_caller_has_switched_on_the_value_is_the_same(
        self, ambient: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        """B57: first access under any mode of the library, from a thread that is in it."""
        host = sample("float32")
        p = lp.Param(host.shape, lambda plan: self.array(host, plan.device), device=self.place)
        drawn = lp.Param(host.shape, lp.init.constant(0.1), device=self.place)

        def read() -> None:
            with ambient():
                p.val()
                drawn.val()

        assert race([read]) == [None]
        assert self.bits(p) == bits(host)
        assert self.bits(drawn) == bits(np.full_like(host, 0.1))
        assert self.backend.device_of(p.val()) == self.place
        assert self.bits(p.fork("cpu").fork(self.place)) == bits(host)

    def test_a_failed_initialiser_keeps_its_error_and_can_be_tried_again(self) -> None:
        """B47: type kept, a note names the path, the recipe stays in place."""
        init = Counting(self.array, failures=1)
        model = Box(self.lazy(init))
        with pytest.raises(Boom, match="run 1") as caught:
            model.t.val()
        assert any("t" in note for note in caught.value.__notes__)
        assert not model.t.is_initialized
        assert model.t.shape == (2, 3)
        assert repr(model.t)
        assert self.backend.meta(model.t.val())[0] == (2, 3)
        assert init.runs == 2

    def test_loading_a_value_cures_a_param_whose_initialiser_fails(self) -> None:
        """B47, B24, B37."""
        p = self.lazy(never).to_device(self.place)
        loaded = p.transform_for_load(self.array(np.full((2, 3), 5, np.float32)))
        assert (self.host(loaded) == 5).all()
        assert loaded.device == self.place
        assert not p.is_initialized

    @pytest.mark.parametrize("failures", [1, 3])
    def test_only_the_thread_that_ran_a_failing_initialiser_gets_its_error(
        self, failures: int
    ) -> None:
        """B47: one waiter is promoted, the rest keep waiting."""
        init = Counting(self.array, SLOW, failures)
        outcomes = race([self.lazy(init).val] * THREADS)
        errors = [outcome for outcome in outcomes if isinstance(outcome, Boom)]
        assert sorted(map(str, errors)) == [f"run {run + 1}" for run in range(failures)]
        values = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
        assert len(values) == THREADS - failures
        assert all(value is values[0] for value in values)

    def test_a_value_of_another_shape_dtype_or_library_is_refused(self) -> None:
        """And the parameter stays lazy."""
        for wrong in (
            lambda plan: self.array(np.ones((3, 2), np.float32), plan.device),
            lambda plan: self.array(np.ones((2, 3), np.float16), plan.device),
            lambda plan: [[1.0] * 3] * 2,
            lambda plan: None,
        ):
            p = self.lazy(wrong)
            with pytest.raises(lp.InitError, match="expected"):
                p.val()
            assert not p.is_initialized

    def test_an_initialiser_that_reads_its_own_param_gets_a_named_error_at_once(self) -> None:
        """B48."""
        p: lp.Param[Any] = self.lazy(lambda plan: p.val())
        with pytest.raises(lp.LazyCycleError, match="itself"):
            p.val()
        assert not p.is_initialized

    def test_two_params_whose_initialisers_read_each_other_never_hang(self) -> None:
        """B48: on two threads."""
        pair: list[lp.Param[Any]] = []
        pair.append(self.lazy(lambda plan: pair[1].val()))
        pair.append(self.lazy(lambda plan: pair[0].val()))
        outcomes = race([pair[0].val, pair[1].val])
        assert any(isinstance(outcome, lp.LazyCycleError) for outcome in outcomes)
        assert not any(p.is_initialized for p in pair)

    def test_metadata_answers_and_other_threads_run_while_an_initialiser_does(self) -> None:
        """B49, B50: waiting lets go of the interpreter."""
        init = Held(self.array)
        p = self.lazy(init)
        readers = [threading.Thread(target=p.val, daemon=True) for _ in range(3)]
        for reader in readers:
            reader.start()
        assert init.running.wait(30)
        begin = time.perf_counter()
        assert sum(range(100_000)) == 4999950000
        for handle in (p, p.clone(), p.no_grad(), p.fork(self.place)):
            assert (handle.shape, handle.device) == ((2, 3), self.place)
            assert not handle.is_initialized
            assert repr(handle)
        with pytest.raises(TimeoutError):
            p.val(timeout=0.02)
        assert time.perf_counter() - begin < 10
        init.finish.set()
        for reader in readers:
            reader.join(30)
            assert not reader.is_alive()
        assert (self.host(p) == 1).all()

    def test_a_param_may_be_made_in_one_thread_and_read_in_another(self) -> None:
        """B57: no thread affinity."""
        with ThreadPoolExecutor(1) as pool:
            p = pool.submit(self.lazy, Counting(self.array)).result()
        with ThreadPoolExecutor(1) as pool:
            value = pool.submit(p.val).result()
        assert p.val() is value

    # ---- clones and what is derived ------------------------------------------------------------

    def test_a_clone_of_a_lazy_param_has_its_value(self) -> None:
        """B06."""
        init = Counting(self.array)
        p = self.lazy(init)
        q = p.clone()
        value = p.val()
        assert q.is_initialized
        assert self.bits(q) == self.bits(value)
        assert init.runs == 1

    @pytest.mark.parametrize("moment", ["before", "after"])
    def test_freezing_a_clone_leaves_the_other_as_it_was(self, moment: str) -> None:
        """B07: before the shared initialisation as well as after."""
        p = self.lazy(Counting(self.array))
        if moment == "after":
            p.val()
        q = p.clone().set_requires_grad(False)
        assert (p.requires_grad, q.requires_grad) == (True, False)
        assert self.bits(p) == self.bits(q)
        assert (p.requires_grad, q.requires_grad) == (True, False)

    @pytest.mark.parametrize("first", [0, 1])
    def test_a_moved_clone_has_the_same_draw_whichever_is_read_first(self, first: int) -> None:
        """B32: lazy until a value is read; then both agree bit for bit."""
        init = Counting(self.array)
        p = self.lazy(init)
        pair = [p.clone(), p.fork(self.place)]
        assert not any(one.is_initialized for one in pair)
        pair[first].val()
        assert self.bits(pair[0]) == self.bits(pair[1])
        assert init.runs == 1

    @pytest.mark.parametrize("copied", [lambda p: p.clone(independent=True), copy.deepcopy])
    def test_an_independent_clone_draws_for_itself(
        self, copied: Callable[[lp.Param[Any]], lp.Param[Any]]
    ) -> None:
        """B33: two reads differ, each is stable, and one leaves the other lazy."""
        p = self.lazy(Counting(self.array))
        q = copied(p)
        first = self.bits(q)
        assert not p.is_initialized
        assert self.bits(p) != first
        assert self.bits(q) == first

    def test_an_init_mapper_on_a_clone_maps_the_draw_and_leaves_the_original(self) -> None:
        """B36."""
        p = self.lazy(Counting(self.array))
        doubled = p.clone().init_mapper(self.mapping(lambda host: host * 2))
        assert not doubled.is_initialized
        np.testing.assert_array_equal(self.host(doubled), self.host(p) * 2)
        np.testing.assert_array_equal(self.host(doubled), self.host(p) * 2)

    @pytest.mark.parametrize("is_ready", [False, True])
    def test_mappers_may_change_shape_and_dtype_if_they_say_so(self, is_ready: bool) -> None:
        p = self.ready() if is_ready else self.lazy()
        q = p.map(self.mapping(lambda host: host.T.astype(np.float16)), (3, 2), "float16")
        assert (q.shape, q.dtype, q.is_initialized) == ((3, 2), "float16", is_ready)
        assert self.backend.meta(q.val()) == ((3, 2), "float16")
        assert p.shape == (2, 3)

    def test_clones_that_are_copied_together_stay_tied(self) -> None:
        """B52: lazy or ready, by deepcopy and by pickle."""
        for p in (lp.Param((2, 3), lp.init.ones(), device=self.place), self.ready()):
            for pair in (
                copy.deepcopy([p, p.clone()]),
                pickle.loads(pickle.dumps([p, p.clone()])),
            ):
                q, r = pair
                assert q.is_tied_to(r)
                assert not q.is_tied_to(p)
                assert q.val() is r.val()
                assert self.bits(q) == self.bits(p)

    # ---- intent --------------------------------------------------------------------------------

    def test_freezing_a_lazy_param_keeps_it_lazy_and_train_does_not_undo_it(self) -> None:
        """B14."""
        p = self.lazy().set_requires_grad(False)
        assert not p.is_initialized
        assert not p.requires_grad
        p.val()
        assert not p.valid().train().requires_grad

    def test_wanting_gradients_where_none_are_recorded_is_remembered(self) -> None:
        """B15, B16, B17: on a plain device the wish is kept and the value is as it was."""
        assert self.ready().requires_grad
        for p in (
            lp.Param.initialized(self.array(np.ones((2, 3), np.float32))),
            self.lazy(requires_grad=False),
        ):
            was_ready = p.is_initialized
            wanted = p.set_requires_grad(True)
            assert wanted.is_initialized is was_ready
            assert (wanted.requires_grad, p.requires_grad) == (True, False)
            assert wanted.train().requires_grad
            assert self.bits(wanted) == self.bits(p)

    @pytest.mark.parametrize("is_ready", [False, True])
    def test_intent_survives_whatever_is_done_while_validating(self, is_ready: bool) -> None:
        """B18, B19, B20: a map, consume and rebuild, a load."""
        p = (self.ready() if is_ready else self.lazy()).valid()
        zeros = self.array(np.zeros((2, 3), np.float32))
        for q in (
            p.map(lambda x: x),
            lp.Param.from_mapped_value(*p.consume()),
            p.transform_for_load(zeros),
        ):
            assert q.requires_grad
            assert q.train().requires_grad
            assert q.id == p.id
        assert self.bits(p.transform_for_load(zeros)) == self.bits(zeros)
        assert (self.host(p) == 1).all()

    @pytest.mark.parametrize("is_ready", [False, True])
    def test_the_whole_cycle_of_training_states(self, is_ready: bool) -> None:
        """B21: valid and train keep the intent, no_grad ends it."""
        p = self.ready() if is_ready else self.lazy()
        seen: list[bool] = []
        for step in ("valid", "train", "no_grad", "valid", "train"):
            p = getattr(p, step)()
            seen.append(p.requires_grad)
            assert (self.host(p) == 1).all()
        assert seen == [True, True, False, False, False]

    @pytest.mark.parametrize("wish", [False, True])
    @pytest.mark.parametrize("is_ready", [False, True])
    def test_intent_survives_copies_pickles_and_moves(self, is_ready: bool, wish: bool) -> None:
        """B43, mlverse/torch#491: frozen stays frozen, wanted stays wanted."""
        p = self.ready() if is_ready else lp.Param((2, 3), lp.init.ones(), device=self.place)
        p = p.set_requires_grad(wish)
        for other in (
            p.to_device("cpu"),
            p.to_device("cpu").to_device(self.place),
            p.fork(self.place),
            p.clone(),
            copy.deepcopy(p),
            pickle.loads(pickle.dumps(p)),
            p.transform_for_load(self.array(np.ones((2, 3), np.float32))),
        ):
            assert other.requires_grad is wish
            assert (self.host(other) == 1).all()

    def test_ints_and_bools_never_train_however_they_are_asked(self) -> None:
        """pytorch#99264: the wish is kept without a word, and has no effect."""
        for kind in ("int32", "bool"):
            if kind not in self.lacks:
                p = self.lazy(dtype=kind).set_requires_grad(True).train()
                assert p.requires_grad
                assert not p.is_active
                assert (self.host(p) == 1).all()

    # ---- moves ---------------------------------------------------------------------------------

    def test_a_value_moves_to_numpy_and_back_bit_for_bit(self, dtype: str) -> None:
        host = sample(dtype)
        for source in (
            lp.Param.from_tensor(host),
            lp.Param(host.shape, lambda plan: host, dtype=dtype),
        ):
            there = source.to_device(self.place)
            assert there.is_initialized is source.is_initialized
            assert (there.device, there.dtype) == (self.place, dtype)
            assert self.backend.meta(there.val()) == (host.shape, dtype)
            assert self.bits(there) == bits(host)
            back = there.to_device("cpu")
            assert back.val().dtype == host.dtype
            assert bits(back.val()) == bits(host)

    def test_any_layout_moves_there_element_by_element(self, layout: str) -> None:
        host = LAYOUTS[layout]("float32")
        moved = lp.Param.from_tensor(host).to_device(self.place)
        assert self.bits(moved) == bits(host)
        assert bits(moved.to_device("cpu").val()) == bits(host)

    def test_a_move_to_a_library_without_the_dtype_is_refused_and_never_narrowed(self) -> None:
        for dtype in sorted(self.lacks):
            moved = lp.Param.from_tensor(sample(dtype)).to_device
            with pytest.raises(lp.DeviceError):
                moved(self.place).val()
            lazy = lp.Param((2, 3), lp.init.ones(), dtype=dtype, device=self.place)
            with pytest.raises(lp.DeviceError):
                lazy.val()
            assert not lazy.is_initialized

    def test_a_lazy_param_moved_then_loaded_never_runs_its_initialiser(self) -> None:
        """B24, B37: the target's device and intent win."""
        p = lp.Param((2, 3), never, requires_grad=False).to_device(self.place)
        loaded = p.transform_for_load(self.array(np.full((2, 3), 4, np.float32)), id=99)
        assert (loaded.id, loaded.requires_grad, loaded.device) == (99, False, self.place)
        assert (self.host(loaded) == 4).all()
        assert not p.is_initialized

    # ---- memory --------------------------------------------------------------------------------

    def test_what_its_maker_keeps_cannot_reach_a_value(self) -> None:
        """B55: by an initialiser, a mapper, a load, a ready value."""
        kept: list[Any] = []

        def keep(x: Any = None) -> Any:
            kept.append(self.array(np.ones((2, 3), np.float32)))
            return kept[-1]

        for p in (
            self.lazy(keep),
            self.lazy().map(keep),
            self.ready().map(keep),
            lp.Param.from_tensor(keep()),
            lp.Param.initialized(keep()),
            self.lazy().transform_for_load(keep()),
            Box(self.lazy()).load_state_dict({"t": keep()}).t,
        ):
            p.val()
            for x in kept:
                self.spoil(x)
            assert (self.host(p) == 1).all()

    def test_writing_to_a_value_reaches_nothing_that_was_made_from_it(self) -> None:
        """B55: no fork, copy, move, map or pickle ever sees another's mutation."""
        for p in (self.ready(), self.lazy(), lp.Param((2, 3), lp.init.ones(), device=self.place)):
            value = p.val()
            others = [
                p.fork(self.place),
                p.clone(independent=True),
                copy.deepcopy(p),
                pickle.loads(pickle.dumps(p)),
                p.map(lambda x: x),
                p.init_mapper(lambda x: x),
                p.to_device("cpu"),
                p.to_device("cpu").to_device(self.place),
            ]
            for other in others:
                other.val()
            self.spoil(value)
            for other in others:
                assert (self.host(other) == 1).all()
            if not self.backend.is_mutable:
                assert (self.host(value) == 1).all()

    def test_what_is_exported_to_numpy_cannot_reach_the_value(self) -> None:
        """B55: np.asarray gives what cannot be written to, or a copy; np.array a copy."""
        p = self.ready()
        copied = np.array(p)
        copied[...] = 7
        assert (self.host(p) == 1).all()
        assert np.asarray(p, dtype=np.float64).dtype == np.float64

    def test_a_draft_becomes_a_new_param_and_the_old_one_never_changes(self) -> None:
        """B55: changing needs an explicit verb, and it forks first."""
        p = self.lazy(requires_grad=False)
        clone = p.clone()
        five = self.array(np.full((2, 3), 5, np.float32))
        with p.writable() as draft:
            self.spoil(draft.array)
            draft.array = five
        q = draft.param
        assert (self.host(q) == 5).all()
        assert (self.host(p) == 1).all()
        assert (self.host(clone) == 1).all()
        assert (q.id, q.requires_grad, q.device) == (p.id, False, self.place)

    # ---- recipes -------------------------------------------------------------------------------

    def test_a_native_draw_has_the_bits_that_it_has_on_numpy(self) -> None:
        """B56: same seed, same path, same bits, in every dtype that can be drawn."""
        for init in (lp.init.normal(), lp.init.uniform(), lp.init.kaiming_uniform()):
            for dtype in ("float32", "float16", "bfloat16", "float64"):
                if dtype not in self.lacks:
                    here, there = (
                        Box(lp.Param((16, 8), init, dtype=dtype, device=device)).seed(7).t
                        for device in ("cpu", self.place)
                    )
                    assert self.bits(there) == self.bits(here)
                    assert self.bits(there.to_device("cpu")) == self.bits(here)

    def test_the_order_and_the_number_of_readers_change_no_draw(self) -> None:
        """B56."""
        model = Mixed([], lp.Param((8, 8), lp.init.normal(), device=self.place), self.place)
        model.lazy = [lp.Param((8, 8), lp.init.normal(), device=self.place) for _ in range(4)]
        drawn: list[list[Any]] = []
        for order in (1, -1):
            params = list(model.clone(independent=True).seed(3).parameters())
            race([param.val for param in params[::order]])
            drawn.append([self.bits(param) for param in params])
        whole = model.seed(3).initialize(threads=2, progress=False)
        drawn.append([self.bits(param) for param in whole.parameters()])
        assert drawn[0] == drawn[1] == drawn[2]

    def test_a_lazy_param_pickles_as_its_recipe(self) -> None:
        """B58: bytes of recipe, not of weights; the value is the same on the other side."""
        p = lp.Param((1000, 1000), lp.init.normal(), device=self.place, requires_grad=False)
        data = pickle.dumps(p)
        assert len(data) < 1000
        q = pickle.loads(data)
        assert not q.is_initialized
        assert (q.device, q.id, q.requires_grad) == (self.place, p.id, False)
        assert self.bits(q) == self.bits(p)

    def test_a_lambda_fails_to_pickle_with_a_remedy(self) -> None:
        """B58."""
        with pytest.raises(lp.PickleError, match=r"lazyparam\.init"):
            pickle.dumps(self.lazy(lambda plan: self.ones(plan)))

    def test_a_ready_param_pickles_as_its_value(self, dtype: str) -> None:
        p = lp.Param.from_tensor(self.array(sample(dtype)))
        q = pickle.loads(pickle.dumps(p))
        assert q.is_initialized
        assert (q.device, q.dtype) == (self.place, dtype)
        assert self.backend.meta(q.val()) == (p.shape, dtype)
        assert self.bits(q) == self.bits(p)

    # ---- files ---------------------------------------------------------------------------------

    @pytest.mark.parametrize("mode", ["copy", "view"])
    def test_a_file_gives_back_what_was_saved_in_it(
        self, storable: str, mode: Any, tmp_path: Path
    ) -> None:
        """B37, B55: lazily, onto the device, and writing to a value never reaches the file."""
        host = sample(storable)
        path = new_file_in(tmp_path)
        Box(lp.Param.from_tensor(self.array(host))).save_file(path)
        written = path.read_bytes()
        target = Box(lp.Param(host.shape, never, dtype=storable, device=self.place))
        loaded = target.load_file(path, mode=mode).t
        assert not loaded.is_initialized
        assert loaded.device == self.place
        assert self.bits(loaded) == bits(host)
        other = target.load_file(path, mode=mode).t
        self.spoil(loaded.val())
        assert self.bits(other) == bits(host)
        assert path.read_bytes() == written

    def test_a_dict_of_arrays_gives_back_what_was_in_it(self, dtype: str) -> None:
        host = sample(dtype)
        state = Box(lp.Param.from_tensor(self.array(host))).state_dict()
        assert self.backend.owns(state["t"])
        target = Box(lp.Param(host.shape, never, dtype=dtype, device=self.place))
        assert self.bits(target.load_state_dict(state).t) == bits(host)

    def test_what_a_load_does_not_find_keeps_its_own_initialiser(self) -> None:
        """B54: lazily; it is never memory that nobody has written to."""
        init = Counting(self.array)
        state = {"one": self.array(np.full((2, 3), 5, np.float32))}
        model = Pair(self.lazy(never), self.lazy(init))
        with pytest.raises(lp.MissingParams, match="two"):
            model.load_state_dict(state)
        loaded = model.load_state_dict(state, allow_missing=True)
        assert (self.host(loaded.one) == 5).all()
        assert not loaded.two.is_initialized
        assert (init.runs, self.bits(loaded.two), init.runs) == (0, self.bits(model.two), 1)

    def test_threads_that_load_one_file_get_right_models(self, tmp_path: Path) -> None:
        """B57: at once, and a bystander that declares and reads others is unaffected."""
        host = sample("float32", (64, 64))
        path = new_file_in(tmp_path)
        Box(lp.Param.from_tensor(host)).save_file(path)

        def load() -> tuple[str, tuple[int, ...], bytes]:
            target = Box(lp.Param(host.shape, never, device=self.place))
            return self.bits(target.load_file(path).t)

        def bystander() -> tuple[str, tuple[int, ...], bytes]:
            for _ in range(20):
                found = self.bits(lp.Param((2, 3), lp.init.ones(), device=self.place))
            return found

        *loaded, other = race([*[load] * THREADS, bystander])
        assert all(found == bits(host) for found in loaded), loaded
        assert other == bits(np.ones((2, 3), np.float32))
