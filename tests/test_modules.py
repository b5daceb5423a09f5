"""Modules: what is walked, what stays tied, and that looking never initialises."""

from __future__ import annotations

import abc
import collections
import copy
import dataclasses
import pickle
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pytest

import lazyparam as lp
from tests.helpers import Counting, Linear, Tied, never

T = TypeVar("T")


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass(frozen=True)
class Box:
    inside: Any
    note: str = "a constant"


class Everything(lp.Module):
    def __init__(self) -> None:
        self.scale = 0.5
        self.alone = lp.Param(1, never)
        self.items = [lp.Param(2, never), Linear(2, 3), "text"]
        self.pair = Pair(lp.Param(3, never), 7)
        self.table = {"b": lp.Param(4, never), "a": {"deep": lp.Param(5, never)}, 3: (1, 2)}
        self.box = Box(lp.Param(6, never))
        self.numbers = [1, 2, 3]
        self.array = np.zeros(3)


PATHS = [
    *("alone", "items.0", "items.1.weight", "items.1.bias", "pair.left"),
    *("table.b", "table.a.deep", "box.inside"),
]


def test_containers_are_walked_in_definition_order_with_dotted_paths() -> None:
    assert [path for path, _ in Everything().named_parameters()] == PATHS


def test_a_verb_gives_a_new_tree_of_the_same_types_and_leaves_the_old_one_alone() -> None:
    old = Everything()
    before = dict(old.named_parameters())
    new = old.freeze()
    assert type(new) is Everything
    assert isinstance(new.pair, Pair)
    assert isinstance(new.box, Box)
    assert list(new.table) == ["b", "a", 3]
    assert new.box.note == "a constant"
    assert new.items[2] == "text"
    assert [path for path, _ in new.named_parameters()] == PATHS
    assert all(not param.requires_grad for param in new.parameters())
    assert dict(old.named_parameters()) == before
    assert all(param.requires_grad for param in old.parameters())
    assert new.items is not old.items
    # Constants, and containers that lead to no parameter, are shared.
    assert new.numbers is old.numbers
    assert new.array is old.array
    assert new.table[3] is old.table[3]


@pytest.mark.parametrize(
    "verb",
    [
        lambda m: m.to_device("cpu"),
        lambda m: m.fork("cpu"),
        lambda m: m.valid(),
        lambda m: m.train(),
        lambda m: m.materialize(),
        lambda m: m.no_grad(),
        lambda m: m.freeze(),
        lambda m: m.unfreeze(),
        lambda m: m.set_requires_grad(True),
        lambda m: m.clone(),
        lambda m: m.clone(independent=True),
        lambda m: m.map(lp.ModuleMapper()),
        copy.deepcopy,
        copy.copy,
        lambda m: pickle.loads(pickle.dumps(m)),
    ],
)
def test_no_verb_initialises_or_unties(verb) -> None:
    """B35, B52: with initialisers that raise."""
    model = Tied()
    new = verb(model)
    assert type(new) is Tied
    assert new.head.is_tied_to(new.embed)
    assert new.head.id == new.embed.id == model.embed.id
    assert new.num_params() == model.num_params()
    assert not any(param.is_initialized for param in new.parameters())
    assert not any(param.is_initialized for param in model.parameters())


def test_looking_at_a_model_initialises_nothing() -> None:
    """B11, B23, B35: printing, counting, listing, devices."""
    model = Everything()
    clone = model.clone()
    ready = lp.Param.from_tensor(np.ones(2))
    model.more = [lp.Param(2, never, dtype="int32"), lp.Param(2, never, dtype="bool"), ready]
    assert model.devices() == clone.devices() == [lp.device("cpu")]
    assert "lazy: never" in repr(model)
    assert "lazy: never" in str(lp.summary(model))
    assert lp.summary(model).nbytes_in_being == 16
    assert model.num_params() == sum(param.size for param in model.parameters())
    assert clone.num_params() == 1 + 2 + 9 + 3 + 4 + 5 + 6
    assert [param.is_initialized for param in model.parameters()] == [False] * 10 + [True]


def test_a_lazy_param_counts_by_its_declared_shape() -> None:
    """B23: six elements, and it stays lazy."""

    class Six(lp.Module):
        def __init__(self) -> None:
            self.p = lp.Param((2, 3), never)

    assert Six().num_params() == 6
    assert Six().freeze().num_params(trainable=True) == 0


def test_tied_parameters_are_listed_and_counted_once_by_default() -> None:
    """B52: the first path is theirs."""
    model = Tied()
    assert next(path for path, _ in model.named_parameters()) == "embed"
    assert "head" not in dict(model.named_parameters())
    assert "head" in dict(model.named_parameters(remove_duplicate=False))
    assert model.num_params() == 12 + 2 * 12
    assert model.num_params(remove_duplicate=False) == 12 + 2 * 12 + 12
    rows = {row.path: row for row in lp.summary(model).rows}
    assert rows["head"].tied_to == "embed"
    assert lp.summary(model).num_params == model.num_params()


def test_tied_handles_keep_their_own_intent_through_a_move() -> None:
    """B07, B52: one of the two is frozen."""
    model = Tied(Counting())
    model.head = model.head.no_grad()
    moved = model.fork("cpu")
    assert (moved.embed.requires_grad, moved.head.requires_grad) == (True, False)
    assert moved.head.is_tied_to(moved.embed)
    assert not moved.freeze().embed.requires_grad
    assert moved.unfreeze().head.requires_grad


def test_a_mapper_is_called_once_for_tied_parameters_and_they_stay_tied() -> None:
    """B52: through a map that gives new values."""
    calls = []

    class Double(lp.ModuleMapper):
        def map_float(self, path: str, param: lp.Param) -> lp.Param:
            calls.append(path)
            return param.map(lambda a: a * 2)

    model = Tied(Counting())
    doubled = model.map(Double())
    assert calls.count("embed") == 1
    assert "head" not in calls
    assert doubled.head.is_tied_to(doubled.embed)
    np.testing.assert_array_equal(doubled.head.val(), model.embed.val() * 2)


def test_a_shared_submodule_stays_shared() -> None:
    class Twice(lp.Module):
        def __init__(self) -> None:
            self.first = Linear(2, 2)
            self.again = self.first
            self.listed = [self.first]

    new = Twice().freeze()
    assert new.again is new.first is new.listed[0]


def test_a_visitor_sees_kinds_containers_and_every_path() -> None:
    events = []

    class Visitor(lp.ModuleVisitor):
        def enter_module(self, name: str, container_type: str) -> None:
            events.append(f"<{name} {container_type}>")

        def exit_module(self, name: str, container_type: str) -> None:
            events.append(f"</{name}>")

        def visit_float(self, path: str, param: lp.Param) -> None:
            events.append(f"float {path}")

        def visit_int(self, path: str, param: lp.Param) -> None:
            events.append(f"int {path}")

        def visit_bool(self, path: str, param: lp.Param) -> None:
            events.append(f"bool {path}")

    class Model(lp.Module):
        def __init__(self) -> None:
            self.mask = lp.Param(1, never, dtype="bool")
            self.layers = [Linear(1, 1)]
            self.ids = lp.Param(1, never, dtype="int64")

    Model().visit(Visitor())
    assert events == [
        "bool mask",
        "<layers list>",
        "<0 Linear>",
        "float layers.0.weight",
        "float layers.0.bias",
        "</0>",
        "</layers>",
        "int ids",
    ]


def test_visitors_and_mappers_do_nothing_by_default() -> None:
    model = Everything()
    model.numbers = {"c": lp.Param(1, never, dtype="complex64"), "b": lp.Param(1, never, "bool")}
    model.visit(lp.ModuleVisitor())
    mapped = model.map(lp.ModuleMapper())
    assert mapped is not model
    assert list(mapped.parameters()) == list(model.parameters())


def test_a_mapper_is_told_where_it_is() -> None:
    where = []

    class Mapper(lp.ModuleMapper):
        def enter_module(self, name: str, container_type: str) -> None:
            where.append(name)

        def exit_module(self, name: str, container_type: str) -> None:
            assert where.pop() == name

        def map_float(self, path: str, param: lp.Param) -> lp.Param:
            assert path.split(".")[:-1] == where
            return param

    Everything().map(Mapper())
    assert where == []


def test_modules_may_be_dataclasses_slotted_frozen_abstract_or_generic() -> None:
    @dataclasses.dataclass
    class Data(lp.Module):
        weight: lp.Param
        name: str = "x"

    @dataclasses.dataclass(frozen=True, repr=False)
    class Frozen(lp.Module):
        weight: lp.Param

    @dataclasses.dataclass(slots=True, repr=False)
    class Slotted(lp.Module):
        weight: lp.Param
        rest: list

    class Plain(lp.Module):
        __slots__ = ("unset", "weight")

        def __init__(self, weight: lp.Param) -> None:
            self.weight = weight

    class Abstract(lp.Module, abc.ABC):
        @abc.abstractmethod
        def __call__(self) -> None: ...

    class Concrete(Abstract, Generic[T]):
        def __init__(self, weight: lp.Param) -> None:
            self.weight = weight

        def __call__(self) -> None: ...

    p = lp.Param(2, never)
    for module in (
        Data(p),
        Frozen(p),
        Slotted(p, [p.clone()]),
        Plain(p),
        Concrete[int](p),
    ):
        frozen = module.freeze()
        assert type(frozen) is type(module)
        assert [path for path, _ in frozen.named_parameters()] == ["weight"]
        assert not frozen.weight.requires_grad
        assert module.weight is p
        assert "weight" in repr(module)
    assert Slotted(p, [p.clone()]).freeze().rest[0].requires_grad is False
    assert p.requires_grad
    with pytest.raises(TypeError, match="abstract"):
        Abstract()


def test_subclasses_of_containers_keep_their_type() -> None:
    class Stack(list):
        pass

    class Model(lp.Module):
        def __init__(self) -> None:
            self.stack = Stack([lp.Param(1, never)])
            self.ordered = collections.OrderedDict(x=lp.Param(2, never))
            self.default = collections.defaultdict(list, y=lp.Param(3, never))

    new = Model().freeze()
    assert type(new.stack) is Stack
    assert type(new.ordered) is collections.OrderedDict
    assert new.default["z"] == []
    assert [p.requires_grad for p in new.parameters()] == [False] * 3


def test_the_constructor_of_a_module_never_runs_again() -> None:
    made = []

    class Model(lp.Module):
        def __init__(self) -> None:
            made.append(1)
            self.p = lp.Param(1, never)

    Model().freeze().to_device("cpu").valid().clone()
    assert made == [1]


def test_errors_know_the_path_of_the_parameter() -> None:
    """B47: from the moment the outermost module is made, and after every verb."""

    def fail(plan: lp.Plan) -> np.ndarray:
        raise ValueError("no")

    class Model(lp.Module):
        def __init__(self) -> None:
            self.blocks: list[Linear] = []
            self.blocks.append(Linear(1, 1, fail))

    model = Model()
    for weight in (model.blocks[0].weight, model.freeze().blocks[0].weight):
        assert weight.path == "blocks.0.weight"
        with pytest.raises(ValueError, match="no") as caught:
            weight.val()
        assert caught.value.__notes__ == ["while initialising blocks.0.weight"]
        assert weight.shape == (1, 1)
        assert "lazy" in repr(weight)


def test_a_failed_initialiser_is_tried_again_and_a_load_cures_it() -> None:
    """B47: the recipe stays in place."""
    init = Counting(failures=1)
    model = Linear(2, 2, init)
    with pytest.raises(Exception, match="run 1"):
        model.weight.val()
    assert not model.weight.is_initialized
    cured = model.load_state_dict({"weight": np.eye(2), "bias": np.ones(2)}, dtype="cast")
    assert cured.weight.val().tolist() == [[1, 0], [0, 1]]
    assert model.weight.val().shape == (2, 2)
    assert init.runs == 2


def test_the_summary_adds_up() -> None:
    model = Tied(Counting())
    model.embed.val()
    summary = lp.summary(model.freeze())
    assert summary.nbytes == 4 * model.num_params()
    assert summary.nbytes_in_being == 48
    assert summary.num_trainable == 0
    text = str(summary)
    assert text.splitlines()[0].split() == [
        *("path", "shape", "dtype", "device", "bytes", "trainable", "state")
    ]
    assert "tied to embed" in text
    assert text.splitlines()[-1] == "36 elements, 0 trainable; 144 B, 48 B in being"


def test_a_summary_of_any_container_will_do() -> None:
    assert lp.summary([lp.Param(3, never)]).rows[0].path == "0"
    assert lp.summary({}).rows == ()
    assert "0 elements" in str(lp.summary({}))


def test_a_module_without_parameters_is_a_module() -> None:
    class Empty(lp.Module):
        pass

    assert repr(Empty()) == "Empty()"
    assert Empty().num_params() == 0
    assert Empty().devices() == []
    assert type(Empty().freeze()) is Empty
    assert Empty().initialize() is not None
    assert Empty().state_dict() == {}
