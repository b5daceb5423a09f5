"""Groups of parameters: an algebra over paths, patterns, identities and predicates."""

from __future__ import annotations

import copy
import functools
import json
import operator
import os
import pickle
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyparam as lp
from lazyparam import ParamGroup
from tests.helpers import Bag, Linear, Tied, never

QUICK = settings(max_examples=100, deadline=None)


def is_bias(path: str, param: Any) -> bool:
    return path.endswith("bias")


def is_matrix(path: str, param: Any) -> bool:
    return param.ndim == 2


def fails(path: str, param: Any) -> bool:
    raise ValueError("no opinion")


class Deep:
    """A namespace, and predicates that are objects."""

    def __init__(self, suffix: str) -> None:
        self.suffix = suffix

    def __call__(self, path: str, param: Any) -> bool:
        return path.endswith(self.suffix)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Deep) and self.suffix == other.suffix

    def __hash__(self) -> int:
        return hash(self.suffix)

    @staticmethod
    def is_first(path: str, param: Any) -> bool:
        return path.startswith("layers.0.")


def model() -> Bag:
    return Bag(
        embed=lp.Param((4, 3), never, id=1),
        layers=[Linear(3, 3), Linear(3, 3)],
        training=lp.Flag(id=2),
    )


MODEL = model()
PATHS = [
    *("embed", "layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias", "training"),
]

atoms = st.one_of(
    st.just(ParamGroup.all()),
    st.just(ParamGroup.none()),
    st.lists(st.sampled_from([*PATHS, "elsewhere"]), max_size=3).map(
        lambda paths: ParamGroup.from_paths(*paths)
    ),
    st.lists(st.sampled_from(["*.weight", "layers.?.*", "e*", "[!e]*", "no", "*"]), max_size=2).map(
        lambda globs: ParamGroup.glob(*globs)
    ),
    st.lists(
        st.sampled_from([r".*\.bias", r"layers\.\d\..*", "embed|training", "a"]), max_size=2
    ).map(lambda patterns: ParamGroup.matching(*patterns)),
    st.lists(st.sampled_from([1, 2, 3]), max_size=2).map(lambda ids: ParamGroup.from_ids(*ids)),
    st.sampled_from([is_bias, is_matrix, Deep.is_first]).map(ParamGroup.where),
)


def _combined(inner: st.SearchStrategy[ParamGroup]) -> st.SearchStrategy[ParamGroup]:
    pairs = st.tuples(inner, inner)
    return st.one_of(
        inner.map(operator.invert),
        pairs.map(lambda pair: pair[0] | pair[1]),
        pairs.map(lambda pair: pair[0] & pair[1]),
        pairs.map(lambda pair: pair[0] - pair[1]),
    )


group_values = st.recursive(atoms, _combined, max_leaves=8)


def selected(group: ParamGroup) -> set[str]:
    return set(group.paths(MODEL))


# ---- the algebra ---------------------------------------------------------------------------------


@QUICK
@given(group_values, group_values, group_values)
def test_groups_are_combined_as_the_sets_they_select(
    a: ParamGroup, b: ParamGroup, c: ParamGroup
) -> None:
    everything = set(PATHS)
    assert selected(a | b) == selected(a) | selected(b)
    assert selected(a & b) == selected(a) & selected(b)
    assert selected(a - b) == selected(a) - selected(b)
    assert selected(~a) == everything - selected(a)
    assert selected(a & (b | c)) == selected((a & b) | (a & c))
    assert selected(~(a | b)) == selected(~a & ~b)
    assert selected((a - b) - c) == selected(a - (b | c))


@QUICK
@given(group_values, group_values, group_values)
def test_what_changes_nothing_is_left_out(a: ParamGroup, b: ParamGroup, c: ParamGroup) -> None:
    assert a | ParamGroup.none() == a == a & ParamGroup.all()
    assert a | ParamGroup.all() == ParamGroup.all()
    assert a & ParamGroup.none() == ParamGroup.none()
    assert a - ParamGroup.none() == a
    assert a - ParamGroup.all() == ParamGroup.none()
    assert a | a == a == a & a
    assert ~~a == a
    assert a | b == b | a
    assert hash(a | b) == hash(b | a)
    assert a & b == b & a
    assert (a | b) | c == a | (b | c)
    assert (a & b) & c == a & (b & c)


@QUICK
@given(group_values)
def test_groups_survive_text_pickle_and_json(group: ParamGroup) -> None:
    names = {"ParamGroup": ParamGroup, "tests": sys.modules["tests"]}
    assert eval(repr(group), names) == group
    assert pickle.loads(pickle.dumps(group)) == group
    assert hash(pickle.loads(pickle.dumps(group))) == hash(group)
    stored = json.loads(json.dumps(group.to_dict()))
    assert ParamGroup.from_dict(stored, trusted=True) == group
    assert copy.copy(group) is group
    assert copy.deepcopy(group) is group


@QUICK
@given(group_values)
def test_a_group_asked_path_by_path_says_what_it_selects(group: ParamGroup) -> None:
    leaves = dict(MODEL.named_parameters()) | dict(lp.summary(MODEL).flags)
    assert {path for path in PATHS if group.matches(path, leaves[path])} == selected(group)


@pytest.mark.parametrize(
    "empty",
    [
        *(ParamGroup.none(), ParamGroup(), ParamGroup.glob(), ParamGroup.matching()),
        *(ParamGroup.from_paths(), ParamGroup.from_ids(), ParamGroup.of(), ParamGroup.of(Bag())),
        ~ParamGroup.all(),
        functools.reduce(operator.or_, [], ParamGroup.none()),
    ],
)
def test_naming_nothing_selects_nothing(empty: ParamGroup) -> None:
    """In Burn an empty list of patterns matches everything that has a path."""
    assert empty.paths(MODEL) == []
    assert empty == ParamGroup.none()
    assert repr(empty) == "ParamGroup.none()"


def test_what_is_excluded_stays_excluded_in_a_union() -> None:
    """Burn's ``fuse`` drops what either side excludes."""
    a = ParamGroup.glob("layers.0.*") - ParamGroup.glob("*.bias")
    b = ParamGroup.glob("layers.1.*") - ParamGroup.glob("*.weight")
    assert (a | b).paths(MODEL) == ["layers.0.weight", "layers.1.bias"]


def test_groups_print_as_expressions() -> None:
    a, b, c = ParamGroup.glob("a.*"), ParamGroup.from_paths("b"), ParamGroup.where(is_bias)
    texts = {"a": repr(a), "b": repr(b), "c": repr(c)}
    assert texts == {
        "a": "ParamGroup.glob('a.*')",
        "b": "ParamGroup.from_paths('b')",
        "c": "ParamGroup.where(tests.test_groups.is_bias)",
    }
    for group, text in (
        (a | b | c, "{a} | {b} | {c}"),
        ((a | b) & c - b, "({a} | {b}) & {c} - {b}"),
        (~(a & b), "~({a} & {b})"),
        (a - (b | c), "{a} - ({b} | {c})"),
        (a & b | ~c, "{a} & {b} | ~{c}"),
        (ParamGroup.all() - a, "~{a}"),
    ):
        assert repr(group) == text.format(**texts)
    assert repr(ParamGroup.where(lambda path, param: True)).endswith(".<lambda>)")
    assert repr(ParamGroup.where(Deep("x"))) == "ParamGroup.where(tests.test_groups.Deep)"


def test_lists_of_one_sort_become_one() -> None:
    many = functools.reduce(operator.or_, (ParamGroup.from_ids(at) for at in range(10_000)))
    assert many == ParamGroup.from_ids(*range(10_000))
    assert ParamGroup.from_paths("a", "b", "a") == ParamGroup.from_paths("b", "a")
    assert ParamGroup.from_paths("a") != ParamGroup.glob("a")
    assert ParamGroup.from_paths("a") != "a"


def test_a_group_has_no_truth_value() -> None:
    """``a and b`` would be b, without a word."""
    a, b = ParamGroup.glob("a"), ParamGroup.glob("b")
    for ask in (lambda: a and b, lambda: a or b, lambda: not a, lambda: bool(a)):
        with pytest.raises(lp.GroupError, match=r"neither true nor false.*& \| - ~"):
            ask()
    for combine in (operator.or_, operator.and_, operator.sub):
        with pytest.raises(TypeError):
            combine(a, "b")


# ---- what selects --------------------------------------------------------------------------------


def test_patterns_fit_whole_paths() -> None:
    """In Burn the text "a" selects whatever has an a somewhere in its path."""
    assert ParamGroup.matching("a").paths(MODEL) == []
    assert ParamGroup.matching("weight").paths(MODEL) == []
    assert ParamGroup.matching(r".*\.weight").paths(MODEL) == ["layers.0.weight", "layers.1.weight"]
    assert ParamGroup.matching("embed|training").paths(MODEL) == ["embed", "training"]
    assert ParamGroup.glob("a").paths(MODEL) == []
    assert ParamGroup.glob("*a*").paths(MODEL) == PATHS[1:]
    assert ParamGroup.glob("Embed").paths(MODEL) == []
    assert ParamGroup.glob("layers.[01].b*", "em?ed").paths(MODEL) == [
        *("embed", "layers.0.bias", "layers.1.bias")
    ]
    assert ParamGroup.from_paths("layers.*").paths(MODEL) == []


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("a(b", "missing ), unterminated subpattern at position 1; found 'a(b'"),
        ("*.weight", "nothing to repeat at position 0; found '*.weight'"),
        ("[a", "unterminated character set at position 0; found '[a'"),
    ],
)
def test_a_bad_pattern_is_an_error_at_once(pattern: str, text: str) -> None:
    with pytest.raises(lp.GroupError, match=re.escape(text)) as caught:
        ParamGroup.matching("fine", pattern)
    assert "ParamGroup.glob" in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize("make", [ParamGroup.from_paths, ParamGroup.glob, ParamGroup.matching])
@pytest.mark.parametrize("wrong", [["a", "b"], 3, None, b"a", re.compile("a")])
def test_paths_and_patterns_are_texts(make: Any, wrong: Any) -> None:
    with pytest.raises(lp.GroupError, match=r"takes texts; found .*\*texts"):
        make(wrong)


@pytest.mark.parametrize("wrong", ["1", 1.0, True, None, [1]])
def test_identities_are_numbers(wrong: Any) -> None:
    with pytest.raises(lp.GroupError, match="takes identities"):
        ParamGroup.from_ids(wrong)


@pytest.mark.parametrize("wrong", ["*.weight", None, [], 3])
def test_a_predicate_is_a_function(wrong: Any) -> None:
    with pytest.raises(lp.GroupError, match="this is no predicate"):
        ParamGroup.where(wrong)


def test_identities_outlast_moves_loads_and_copies() -> None:
    """T21 of Burn: there a load swaps identities and groups built before go stale."""
    part = ParamGroup.of(MODEL.layers[0])
    assert part == ParamGroup.from_ids(MODEL.layers[0].weight, MODEL.layers[0].bias)
    arrays = {path: np.zeros(p.shape, p.dtype) for path, p in MODEL.named_parameters()}
    for after in (
        *(MODEL, MODEL.to_device("cpu"), MODEL.freeze(), MODEL.valid(), MODEL.clone()),
        *(MODEL.load_state_dict(arrays), MODEL.clone(independent=True)),
        *(pickle.loads(pickle.dumps(MODEL.load_state_dict(arrays))),),
    ):
        assert part.paths(after) == ["layers.0.weight", "layers.0.bias"]
    assert ParamGroup.of(MODEL).paths(MODEL) == PATHS
    assert ParamGroup.of(MODEL.training, MODEL.embed).paths(MODEL) == ["embed", "training"]
    assert ParamGroup.of(MODEL.layers).paths(model()) == []


def test_a_predicate_sees_paths_and_parameters_and_nothing_initialises() -> None:
    assert ParamGroup.where(is_matrix).paths(MODEL) == [
        *("embed", "layers.0.weight", "layers.1.weight")
    ]
    assert not any(param.is_initialized for param in MODEL.parameters())


def test_a_flag_is_not_selected_by_what_only_parameters_have() -> None:
    """B04: a predicate on shapes works on a model with flags; its complement has the flags."""
    assert "training" not in ParamGroup.where(is_matrix).paths(MODEL)
    assert "training" in (~ParamGroup.where(is_matrix)).paths(MODEL)
    assert ParamGroup.where(lambda path, leaf: leaf.kind == "flag").paths(MODEL) == ["training"]
    with pytest.raises(AttributeError, match="nothing"):
        ParamGroup.where(lambda path, leaf: leaf.nothing).paths(MODEL)
    with pytest.raises(AttributeError, match="elsewhere"):
        ParamGroup.where(lambda path, leaf: path.elsewhere).paths({"flag": lp.Flag()})


def test_an_error_in_a_predicate_says_about_which_parameter() -> None:
    with pytest.raises(ValueError, match="no opinion") as caught:
        ParamGroup.where(fails).paths(MODEL)
    assert caught.value.__notes__ == ["while asking tests.test_groups.fails about 'embed'"]


def test_tied_parameters_are_one_that_answers_to_each_path() -> None:
    """B52: so a group and its complement never share a value."""
    tied = Tied()
    one_path, other_path = ParamGroup.from_paths("embed"), ParamGroup.from_paths("head")
    assert one_path.paths(tied) == other_path.paths(tied) == ["embed", "head"]
    assert not {"embed", "head"} & set((~other_path).paths(tied))
    assert (one_path & other_path).paths(tied) == ["embed", "head"]
    assert (one_path - other_path).paths(tied) == []
    assert other_path.matches("head", tied.head)
    assert not other_path.matches("embed", tied.embed)
    flag = lp.Flag()
    assert ParamGroup.glob("b").paths({"a": flag, "b": flag, "c": lp.Flag()}) == ["a", "b"]


def test_groups_work_on_any_tree() -> None:
    assert ParamGroup.glob("*.1").paths({"x": [lp.Param(1, never), lp.Param(1, never)]}) == ["x.1"]
    with pytest.raises(lp.ModuleError, match="leads to no parameters"):
        ParamGroup.all().paths(3)


# ---- stored --------------------------------------------------------------------------------------


def test_a_lambda_is_refused_by_name_where_it_cannot_be_stored() -> None:
    def local(path: str, param: Any) -> bool:
        return True

    for predicate in (lambda path, param: True, local):
        group = ParamGroup.glob("*") | ParamGroup.where(predicate)
        for store in (group.to_dict, lambda group=group: pickle.dumps(group)):
            with pytest.raises(lp.PickleError, match=r"predicate .*<loca.*top level of a module"):
                store()
        assert copy.deepcopy(group) == group


def test_a_predicate_may_be_an_object_which_pickles_and_is_no_json() -> None:
    group = ParamGroup.where(Deep("bias"))
    assert pickle.loads(pickle.dumps(group)) == group
    assert group.paths(MODEL) == ["layers.0.bias", "layers.1.bias"]
    with pytest.raises(lp.PickleError):
        group.to_dict()


def test_stored_predicates_run_only_if_the_data_is_trusted() -> None:
    stored = {"and": [{"glob": ["*"]}, {"where": ["os:system"]}]}
    with pytest.raises(lp.GroupError, match=r"os:system.*trusted=True"):
        ParamGroup.from_dict(stored)
    group = ParamGroup.from_dict(stored, trusted=True)
    assert group == ParamGroup.glob("*") & ParamGroup.where(os.system)
    for missing in ("tests.test_groups:missing", "no_such_module:f", ":", "", "tests.test_groups"):
        with pytest.raises(lp.GroupError, match="no such predicate"):
            ParamGroup.from_dict({"where": [missing]}, trusted=True)


def test_json_is_short_and_readable() -> None:
    group = ParamGroup.glob("*.q_proj.*") - ParamGroup.from_paths("a") | ParamGroup.where(is_bias)
    assert group.to_dict() == {
        "or": [
            {"and": [{"glob": ["*.q_proj.*"]}, {"not": [{"paths": ["a"]}]}]},
            {"where": ["tests.test_groups:is_bias"]},
        ]
    }
    assert ParamGroup.all().to_dict() == {"everything": []}


@pytest.mark.parametrize(
    "wrong",
    [
        *(None, [], "all", 3, {}, {"all": []}, {"glob": "*"}, {"everything": [1]}, {"and": []}),
        *({"or": []}, {"not": []}, {"not": [{"glob": []}, {"glob": []}]}, {"where": [3]}),
        *({"glob": ["*"], "paths": ["a"]}, {"or": [{"glob": ["*"]}, {}]}, {3: []}, {"where": []}),
    ],
)
def test_what_is_no_group_is_refused(wrong: Any) -> None:
    """Also ``{"and": []}``: a list emptied by hand must not become everything."""
    with pytest.raises(lp.GroupError, match="no group; expected what ParamGroup"):
        ParamGroup.from_dict(wrong, trusted=True)


def test_stored_patterns_are_checked_as_any_others() -> None:
    with pytest.raises(lp.GroupError, match="at position 0"):
        ParamGroup.from_dict({"matching": ["("]})
    with pytest.raises(lp.GroupError, match="takes texts"):
        ParamGroup.from_dict({"not": [{"paths": [3]}]})
    with pytest.raises(lp.GroupError, match="takes identities"):
        ParamGroup.from_dict({"ids": ["3"]})


def test_a_group_means_the_same_in_another_process() -> None:
    group = ParamGroup.glob("layers.*") - ParamGroup.where(is_bias)
    code = (
        "import json, pickle, sys; from lazyparam import ParamGroup\n"
        "group = pickle.loads(sys.stdin.buffer.read())\n"
        "again = ParamGroup.from_dict(group.to_dict(), trusted=True)\n"
        "print(json.dumps([repr(group), group == again]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=pickle.dumps(group),
        capture_output=True,
        check=True,
        cwd=os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
    )
    assert json.loads(done.stdout) == [repr(group), True]


@QUICK
@given(group_values)
def test_a_summary_shows_what_a_group_selects(group: ParamGroup) -> None:
    shown = lp.summary(MODEL, group)
    assert {row.path for row in shown.rows} | {path for path, _ in shown.flags} == selected(group)
