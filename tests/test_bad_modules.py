"""Modules that cannot be walked, and errors that have to survive a pickle."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import weakref
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyparam as lp
from tests.checkpoint_files import table
from tests.helpers import Linear, never


class Tree(lp.Module):
    """A module that holds what it is given."""

    def __init__(self, **parts: Any) -> None:
        self.w = lp.Param(2, lp.init.ones())
        self.__dict__.update(parts)


@dataclasses.dataclass
class Holder:
    """A dataclass that holds something."""

    inside: Any = None


def directly() -> Tree:
    root = Tree()
    root.me = root
    return root


def through(make: Callable[[Tree], Any]) -> Callable[[], Tree]:
    def build() -> Tree:
        root = Tree()
        root.me = make(root)
        return root

    return build


def by_parent() -> Tree:
    root = Tree(child=Tree())
    root.child.parent = root
    return root


def list_in_itself() -> Tree:
    root = Tree(items=[])
    root.items.append(root.items)
    return root


CYCLES: dict[str, tuple[Callable[[], Tree], str]] = {
    "directly": (directly, "me"),
    "through a list": (through(lambda root: [1, [root]]), "me.1.0"),
    "through a tuple": (through(lambda root: (root,)), "me.0"),
    "through a dict": (through(lambda root: {"a": {"b": root}}), "me.a.b"),
    "through a dataclass": (through(Holder), "me.inside"),
    "through a module": (through(lambda root: Tree(of=root)), "me.of"),
    "through a reference to the parent": (by_parent, "child.parent"),
    "a list in itself": (list_in_itself, "items.0"),
}

VERBS: dict[str, Callable[[lp.Module], object]] = {
    "named_parameters": lambda model: list(model.named_parameters()),
    "num_params": lambda model: model.num_params(),
    "clone": lambda model: model.clone(),
    "freeze": lambda model: model.freeze(),
    "initialize": lambda model: model.initialize(),
    "state_dict": lambda model: model.state_dict(),
    "save_file": lambda model: model.save_file("/nowhere"),
    "load_state_dict": lambda model: model.load_state_dict({}),
    "visit": lambda model: model.visit(lp.ModuleVisitor()),
    "map": lambda model: model.map(lp.ModuleMapper()),
    "summary": lp.summary,
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("cycle", CYCLES)
def test_a_module_that_contains_itself_is_refused_and_the_path_is_named(
    cycle: str, verb: str
) -> None:
    build, path = CYCLES[cycle]
    model = build()
    with pytest.raises(lp.ModuleError) as caught:
        VERBS[verb](model)
    assert caught.value.path == path
    assert str(caught.value) == (
        f"{path}: this module contains itself. "
        "Keep a weak reference (weakref.ref) to a parent instead."
    )
    assert not model.w.is_initialized


@pytest.mark.parametrize("cycle", CYCLES)
def test_the_text_of_a_module_that_contains_itself_ends(cycle: str) -> None:
    build, _ = CYCLES[cycle]
    assert "w: Param(" in repr(build())


def test_a_path_that_is_no_text_is_refused() -> None:
    """A lone surrogate could be neither shown nor saved."""

    class Model(lp.Module):
        def __init__(self) -> None:
            self.table = {"\ud800": lp.Param(1, never)}

    with pytest.raises(lp.ModuleError, match="lone surrogate"):
        list(Model().named_parameters())


def test_a_weak_reference_to_a_parent_is_a_constant() -> None:
    root = Tree(child=Tree())
    root.child.parent = weakref.ref(root)
    assert [path for path, _ in root.named_parameters()] == ["w", "child.w"]
    assert root.clone().child.parent() is root


def test_a_module_in_two_places_is_no_cycle() -> None:
    shared = Tree()
    root = Tree(left=shared, right=[shared])
    assert [path for path, _ in root.named_parameters(remove_duplicate=False)] == [
        "w",
        "left.w",
        "right.0.w",
    ]
    new = root.clone()
    assert new.left is new.right[0]


@pytest.mark.parametrize("answer", [None, np.zeros(2), 3, never], ids=lambda v: type(v).__name__)
def test_a_module_mapper_that_gives_no_param_is_refused(answer: Any) -> None:
    class Wrong(lp.ModuleMapper):
        def map_float(self, path: str, param: lp.Param[Any]) -> Any:
            return answer

    model = Tree(child=[Tree()])
    with pytest.raises(
        lp.ModuleError, match="a mapper of parameters returns a parameter"
    ) as caught:
        model.map(Wrong())
    assert (caught.value.path, caught.value.expected, caught.value.found) == (
        "w",
        "Param",
        type(answer).__name__,
    )
    assert not model.w.is_initialized


def test_an_error_in_a_module_mapper_comes_out_as_it_is() -> None:
    class Wrong(lp.ModuleMapper):
        def map_float(self, path: str, param: lp.Param[Any]) -> Any:
            raise KeyError(path)

    with pytest.raises(KeyError, match="w"):
        Tree().map(Wrong())


# ---- errors --------------------------------------------------------------------------------------

KINDS = sorted(
    (
        thing
        for thing in vars(lp).values()
        if isinstance(thing, type) and issubclass(thing, lp.LazyParamError)
    ),
    key=lambda kind: kind.__name__,
)


def test_there_is_one_tree_of_errors_and_all_of_it_is_public() -> None:
    found, todo = set(), [lp.LazyParamError]
    while todo:
        kind = todo.pop()
        found.add(kind)
        todo += kind.__subclasses__()
    assert {kind for kind in found if kind.__module__.startswith("lazyparam")} == set(KINDS)
    assert all(kind.__doc__ for kind in KINDS)


FIELDS: dict[type[lp.LazyParamError], dict[str, Any]] = {
    lp.LazyCycleError: {"cells": ("a", "b")},
    **{
        kind: {"problems": ("one", "two")}
        for kind in (
            lp.RecordError,
            lp.FormatError,
            lp.ShapeMismatch,
            lp.MissingParams,
            lp.UnexpectedKeys,
        )
    },
}


@pytest.mark.parametrize("through", ["pickle", "copy", "deepcopy", "old pickle"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_error_survives_a_pickle_whole(kind: type[lp.LazyParamError], through: str) -> None:
    extra = FIELDS.get(kind, {})
    error = kind("it is wrong", path="a.b", expected=(2, 3), found="x", remedy="Mend it.", **extra)
    error.add_note("a note")
    error.of_mine = [1]  # type: ignore[attr-defined]
    again: Any = {
        "pickle": lambda: pickle.loads(pickle.dumps(error)),
        "old pickle": lambda: pickle.loads(pickle.dumps(error, 2)),
        "copy": lambda: copy.copy(error),
        "deepcopy": lambda: copy.deepcopy(error),
    }[through]()
    assert type(again) is kind
    for name in ("problem", "path", "expected", "found", "remedy", "args", *extra):
        assert getattr(again, name) == getattr(error, name), name
    assert again.__notes__ == ["a note"]
    assert again.of_mine == [1]
    assert str(again) == str(error)
    assert str(error).startswith("a.b: it is wrong; expected (2, 3); found x. Mend it.")


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_with_nothing_but_a_problem_says_the_problem(
    kind: type[lp.LazyParamError],
) -> None:
    error = kind("it is wrong")
    assert str(error) == "it is wrong"
    assert error.path is error.expected is error.found is error.remedy is None
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.path) == ("it is wrong", None)


def raisers(folder: Path) -> dict[str, Callable[[], object]]:
    """Calls that raise errors which Rust makes."""
    bad, other = folder / "bad.safetensors", folder / "other.safetensors"
    bad.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    other.write_bytes(table({"x": np.zeros(2)}))
    lazy = lp.Param(2, lambda plan: lazy.value)
    local = lp.Param(2, lambda plan: np.zeros(2))
    return {
        "declaration": lambda: lp.Param(-1),
        "device text": lambda: lp.device("gpu 0"),
        "backend": lp.Param(2, lp.init.ones(), device="nolibrary:cpu").val,
        "device": lp.Param(2, lp.init.ones(), device="numpy:gpu").val,
        "init": lp.Param(2, lambda plan: None).val,
        "cycle": lazy.val,
        "pickle": lambda: pickle.dumps(local),
        "format": lambda: Linear(3, 2).load_file(bad),
        "record": lambda: Linear(3, 2).load_file(other),
        "shape": lambda: lp.Param(2).transform_for_load(np.zeros(3, np.float32)),
        "module": lambda: directly().clone(),
    }


RAISERS = [
    "declaration",
    "device text",
    "backend",
    "device",
    "init",
    "cycle",
    "pickle",
    "format",
    "record",
    "shape",
    "module",
]


@pytest.mark.parametrize("name", RAISERS)
def test_an_error_that_was_raised_survives_a_pickle_and_reads_as_before(
    name: str, tmp_path: Path
) -> None:
    with pytest.raises(lp.LazyParamError) as caught:
        raisers(tmp_path)[name]()
    error = caught.value
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert {**vars(again), "path": again.path} == {**vars(error), "path": error.path}
    text = str(error)
    assert text
    # A sentence begins with a path or a small letter, and nothing is doubled or left open.
    assert "  " not in text.replace("\n  - ", "")
    assert ".." not in text.replace("...", "")
    assert "None" not in text.replace("NoneType", "").replace("found None", "")


@pytest.mark.parametrize("collect", [lambda p: {p}, lambda p: frozenset([p]), lambda p: deque([p])])
def test_parameters_in_a_collection_that_is_not_walked_are_refused(collect: Any) -> None:
    """They would be neither saved nor loaded, in silence."""

    class Model(lp.Module):
        def __init__(self) -> None:
            self.some = collect(lp.Param(1, never))

    with pytest.raises(lp.ModuleError, match=r"some: parameters in a .* are not found"):
        Model().freeze()


def test_a_parameter_of_the_class_is_refused() -> None:
    class Model(lp.Module):
        w = lp.Param(1, never)

    with pytest.raises(lp.ModuleError, match="w: this parameter belongs to the class Model"):
        Model()


def test_a_module_is_no_container() -> None:
    with pytest.raises(lp.ModuleError, match="a module and a container at once"):

        class Model(lp.Module, list):
            pass


def test_only_visitors_visit_and_only_mappers_map() -> None:
    with pytest.raises(lp.ModuleError, match="this takes a ModuleVisitor"):
        lp.Module().visit(print)
    with pytest.raises(lp.ModuleError, match="this takes a ModuleMapper"):
        lp.Module().map(lambda path, param: param)


@pytest.mark.parametrize("thing", [3, None, "abc"])
def test_a_summary_of_what_leads_nowhere_is_refused(thing: object) -> None:
    with pytest.raises(lp.ModuleError, match="this leads to no parameters"):
        lp.summary(thing)
