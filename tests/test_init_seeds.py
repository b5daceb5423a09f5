"""Seeded models: a value depends on the seed and the path, and on nothing else.

Row B56. Elsewhere layers change each other's values, orders and threads matter, and paths collide:
each test names where.
"""

from __future__ import annotations

import copy
import itertools
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyparam as lp
from lazyparam.init import Key, fill
from tests.helpers import Bag, Box, Linear, Tied, race, values

NORMAL = lp.init.normal()


def net() -> Bag:
    """Every initialiser that draws, nested parts, and a tie."""
    shared = lp.Param((5, 3), lp.init.uniform(-1, 1))
    return Bag(
        embed=shared,
        layers=[Linear(7, 7, NORMAL) for _ in range(3)],
        experts={"a": lp.Param((6, 9), lp.init.orthogonal()), 0: lp.Param(33, NORMAL)},
        wide=lp.Param((40, 5), lp.init.sparse(0.2), dtype="float64"),
        half=lp.Param((31,), lp.init.trunc_normal(), dtype="bfloat16"),
        scale=lp.Param(4, lp.init.ones()),
        head=shared,
    )


def bits(param: lp.Param[Any]) -> bytes:
    data: bytes = param.value.tobytes()
    return data


def is_free(module: lp.Module) -> bool:
    return not any(param.is_initialized for param in module.parameters())


EXPECTED = values(net().seed(42))

# ---- what a value does not depend on -------------------------------------------------------------


def test_seeding_brings_nothing_into_being() -> None:
    model = net()
    seeded = model.seed(1).seed(2).clone().seed(3)
    assert is_free(model)
    assert is_free(seeded)
    pickle.loads(pickle.dumps(seeded))
    copy.deepcopy(seeded)
    repr(seeded)
    assert is_free(seeded)


def test_a_value_is_the_fill_of_seed_and_path() -> None:
    """B56: other processes can make the same values without the model."""
    model = net().seed(42)
    layer = model.layers[1].weight
    assert bits(layer) == fill(NORMAL, Key(42, "layers", 1, "weight"), (7, 7)).tobytes()
    assert bits(model.experts[0]) == fill(NORMAL, Key(42, "experts", 0), 33).tobytes()
    wide = fill(lp.init.sparse(0.2), Key(42, "wide"), (40, 5), "float64")
    assert bits(model.wide) == wide.tobytes()


@given(order=st.permutations(range(12)))
@settings(max_examples=25, deadline=None)
def test_the_order_in_which_values_come_into_being_does_not_matter(order: list[int]) -> None:
    """pytorch/pytorch#47835, #65049, #94132, facebookresearch/ParlAI#4526: a layer more or another
    order gives other values. B56.
    """
    model = net().seed(42)
    params = list(model.parameters())
    assert len(params) == len(order)
    for at in order:
        params[at].value
    assert values(model) == EXPECTED


@given(order=st.permutations(["a", "b", "c", "d"]), others=st.sets(st.sampled_from("uvwxyz")))
@settings(max_examples=25, deadline=None)
def test_the_order_of_declarations_and_siblings_do_not_matter(
    order: list[str], others: set[str]
) -> None:
    """pytorch/pytorch#47835, #65049, #94132, facebookresearch/ParlAI#4526,
    tensorflow/tensorflow#54442, google/flax#72, #77: one layer more, and all others are drawn anew.
    """
    small = Bag(**{name: lp.Param(9, NORMAL) for name in "abcd"}).seed(7)
    names = sorted([*order, *others], key=lambda name: (hash(name), name))
    for arrangement in (order + sorted(others), names):
        large = Bag(**{name: lp.Param(9, NORMAL) for name in arrangement}).seed(7)
        found = values(large)
        assert {name: found[name] for name in "abcd"} == values(small)


@pytest.mark.parametrize("threads", [None, 1, 2, 3, 8])
def test_any_number_of_threads_initialises_to_the_same_bits(threads: int | None) -> None:
    """LaurentMazare/tch-rs#263, pytorch/pytorch#3794, #53983: threads change values. B56."""
    assert values(net().seed(42).initialize(threads=threads)) == EXPECTED


def test_many_threads_that_read_at_once_get_the_same_bits() -> None:
    """LaurentMazare/tch-rs#263, pytorch/pytorch#4777: and so do races. B56."""
    for _ in range(5):
        model = net().seed(42)
        found = race([partial(values, model)] * 6)
        assert found == [EXPECTED] * 6


COPIES: dict[str, Callable[[Bag], Bag]] = {
    "clone": lambda model: model.clone(),
    "independent clone": lambda model: model.clone(independent=True),
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "pickle of a clone": lambda model: pickle.loads(pickle.dumps(model.clone())),
    "fork": lambda model: model.fork("numpy:cpu"),
    "to_device": lambda model: model.to_device("numpy:cpu"),
    "train": lambda model: model.valid().train(),
    "freeze": lambda model: model.freeze(),
    "materialize": lambda model: model.materialize(),
}


@pytest.mark.parametrize("how", COPIES)
def test_copies_of_a_seeded_model_have_its_values(how: str) -> None:
    """B56: clone order and device."""
    model = net().seed(42)
    copied = COPIES[how](model)
    assert is_free(copied)
    assert values(copied) == EXPECTED
    assert is_free(model) or how in ("clone", "to_device", "train", "freeze", "materialize", "fork")
    assert values(model) == EXPECTED


@pytest.mark.parametrize("how", COPIES)
def test_seeding_a_copy_is_seeding_the_model(how: str) -> None:
    assert values(COPIES[how](net()).seed(42)) == EXPECTED


SCRIPT = """
import pickle, sys
data, expected = pickle.load(sys.stdin.buffer)
model = pickle.loads(data)
assert not any(param.is_initialized for param in model.parameters())
from tests.test_init_seeds import net, values
assert values(model) == expected, "pickled"
assert values(net().seed(42)) == expected, "made here"
"""


def test_a_new_process_gives_the_same_bits() -> None:
    """B56: pickled lazies, and models made anew, under other hash seeds."""
    message = pickle.dumps((pickle.dumps(net().seed(42)), EXPECTED))
    environment = {**os.environ, "PYTHONHASHSEED": "5"}
    root = Path(__file__).parent.parent
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(
        command, input=message, capture_output=True, env=environment, cwd=root, timeout=60
    )
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.thread_unsafe(reason="forks while other threads run")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning")  # of JAX, if it is here
def test_a_forked_process_gives_the_same_bits() -> None:
    """B56, for an unseeded model too: its keys are decided at the declaration."""
    seeded, unseeded = net().seed(42), net()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            with os.fdopen(writing, "wb") as pipe:
                pickle.dump((values(seeded), values(unseeded)), pipe)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        found = pickle.load(pipe)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert is_free(seeded)
    assert found == (EXPECTED, values(unseeded))


# ---- ties, derived parameters, names -------------------------------------------------------------


def test_tied_parameters_go_by_their_first_path_and_stay_tied() -> None:
    model = Tied(NORMAL).seed(42)
    assert model.head.value is model.embed.value
    assert bits(model.head) == fill(NORMAL, Key(42, "embed"), (4, 3)).tobytes()
    one = net().seed(42)
    assert one.embed.value is one.head.value


def double(x: np.ndarray) -> np.ndarray:
    return x * 2


def test_derived_parameters_follow_their_source() -> None:
    """A derived parameter and its source stay related; alone it is drawn by its own path."""
    source = lp.Param(9, NORMAL)
    model = Bag(source=source, derived=source.map(double)).seed(42)
    assert is_free(model)
    drawn = fill(NORMAL, Key(42, "source"), 9)
    assert bits(model.derived) == (drawn * 2).tobytes()
    assert bits(model.source) == drawn.tobytes()
    alone = Bag(derived=source.map(double)).seed(42)
    assert bits(alone.derived) == (fill(NORMAL, Key(42, "derived"), 9) * 2).tobytes()
    assert not source.is_initialized


def test_what_is_derived_first_names_its_source() -> None:
    source = lp.Param(9, NORMAL)
    model = Bag(derived=source.map(double), source=source).seed(42)
    drawn = fill(NORMAL, Key(42, "derived"), 9)
    assert bits(model.source) == drawn.tobytes()
    assert bits(model.derived) == (drawn * 2).tobytes()


def test_an_init_mapper_sees_the_seeded_draw() -> None:
    model = Box(lp.Param(9, NORMAL).init_mapper(double)).seed(42)
    assert bits(model.t) == (fill(NORMAL, Key(42, "t"), 9) * 2).tobytes()


def test_a_name_survives_renames() -> None:
    def named() -> lp.Param[Any]:
        return lp.Param(9, NORMAL, rng_name="layers.0.weight")

    one, other = Bag(a=named()).seed(42), Bag(b=[{"c": named()}]).seed(42)
    assert bits(one.a) == bits(other.b[0]["c"])
    assert bits(one.a) == fill(NORMAL, Key(42, "layers.0.weight"), 9).tobytes()
    again = pickle.loads(pickle.dumps(Bag(a=named()))).seed(42)
    assert bits(again.a) == bits(one.a), "the name is pickled"
    assert bits(one.seed(43).a) == bits(one.a), "it is there already"
    assert bits(Bag(a=named()).seed(43).a) != bits(one.a)
    assert bits(Bag(a=named().clone(independent=True)).seed(42).a) == bits(one.a)


def test_batch_axes_make_a_stack_of_separate_parameters() -> None:
    stacked = Box(lp.Param((3, 4, 5), NORMAL, batch_axes=[0])).seed(42)
    separate = Bag(t=[lp.Param((4, 5), NORMAL) for _ in range(3)]).seed(42)
    for at in range(3):
        assert stacked.t.value[at].tobytes() == bits(separate.t[at])
    last = Box(lp.Param((4, 5, 3), NORMAL, batch_axes=(-1,))).seed(42)
    np.testing.assert_array_equal(np.moveaxis(last.t.value, -1, 0), stacked.t.value)
    again = pickle.loads(pickle.dumps(Box(lp.Param((3, 4, 5), NORMAL, batch_axes=[0]))))
    assert bits(again.seed(42).t) == bits(stacked.t), "the axes are pickled"


def test_fans_of_a_stack_are_those_of_a_slice() -> None:
    """Section 5: experts."""
    init = lp.init.lecun_normal()
    stacked = Box(lp.Param((3, 4, 5), init, batch_axes=[0])).seed(42)
    assert stacked.t.value[1].tobytes() == fill(init, Key(42, "t", 1), (4, 5)).tobytes()


# ---- what a value depends on ---------------------------------------------------------------------

PATHS: list[tuple[str | int, ...]] = [
    *((), ("",), ("", ""), ("a.b",), ("a", "b"), ("b", "a"), ("ab",), ("a", "b", "")),
    *((0,), ("0",), (-1,), ("-1",), (0, 0), ("0.0",), (2**63 - 1,), (-(2**63),)),
    *(("ab", "cdef"), ("abc", "def"), ("é",), ("e\u0301",), ("\0",), ("A",), ("😀",)),
]


def test_paths_that_differ_anywhere_give_other_values() -> None:
    """google/flax#3497, #1723, jax-ml/jax#21405: joined or added up, paths collide; Unicode is not
    normalised.
    """
    keys = [Key(seed, *path) for path in PATHS for seed in (0, 1, 2**64, 2**127)]
    assert len({fill(NORMAL, key, 4).tobytes() for key in keys}) == len(keys)
    assert len(set(keys)) == len(keys)
    for one, other in itertools.combinations(keys, 2):
        assert one != other


def test_dots_in_names_and_numbers_in_text_are_other_paths() -> None:
    """google/flax#3497, #1723: the same, in models."""
    dotted = Bag(d={"a.b": lp.Param(9, NORMAL)}).seed(1)
    nested = Bag(d={"a": {"b": lp.Param(9, NORMAL)}}).seed(1)
    assert bits(dotted.d["a.b"]) != bits(nested.d["a"]["b"])
    number, text = Bag(d={0: lp.Param(9, NORMAL)}), Bag(d={"0": lp.Param(9, NORMAL)})
    listed = Bag(d=[lp.Param(9, NORMAL)])
    assert bits(number.seed(1).d[0]) != bits(text.seed(1).d["0"])
    assert bits(number.seed(1).d[0]) == bits(listed.seed(1).d[0])


@given(seed=st.integers(0, 2**128 - 1), path=st.lists(st.one_of(st.integers(-9, 9), st.text())))
@settings(max_examples=30, deadline=None)
def test_keys_compare_hash_print_and_pickle(seed: int, path: list[str | int]) -> None:
    key = Key(seed, *path)
    assert (key.seed, key.path) == (seed, tuple(path))
    for same in (pickle.loads(pickle.dumps(key)), eval(repr(key)), copy.deepcopy(key)):
        assert same == key
        assert hash(same) == hash(key)
    assert Key(seed, *path, 0) != key


@pytest.mark.parametrize("place", [2**63, -(2**63) - 1])
def test_places_have_64_bits_and_longer_numbers_are_names(place: int) -> None:
    model = Bag(d={place: lp.Param(9, NORMAL)}).seed(1)
    assert bits(model.d[place]) == fill(NORMAL, Key(1, "d", str(place)), 9).tobytes()


def test_another_seed_gives_other_values() -> None:
    found = [values(net().seed(seed)) for seed in (42, 43, 42 + 2**64)]
    for path in EXPECTED.keys() - {"scale"}:
        assert len({one[path] for one in found}) == 3, path
    assert values(net().seed(1).seed(42)) == EXPECTED, "the last seed counts"


def test_adjacent_seeds_and_paths_are_not_correlated() -> None:
    """pytorch/torchtitan#3106, pytorch/pytorch#196562: 16 draws of 4096 numbers, all pairs."""
    draws = [
        fill(NORMAL, Key(seed, "layers", at, "w"), 4096) for seed in range(4) for at in range(4)
    ]
    correlations = np.corrcoef(np.stack(draws))[np.triu_indices(16, 1)]
    assert np.abs(correlations).max() < 4.5 / 64


# ---- what stays as it is -------------------------------------------------------------------------


def test_what_is_there_already_stays() -> None:
    model = net()
    before = values(model)
    seeded = model.seed(42)
    assert all(param.is_initialized for param in seeded.parameters())
    assert values(seeded) == before
    partly = net()
    partly.layers[0].weight.value
    mixed = values(partly.seed(42))
    assert mixed["layers.0.weight"] == bits(partly.layers[0].weight)
    assert {**mixed, "layers.0.weight": b""} == {**EXPECTED, "layers.0.weight": b""}
    assert len(mixed) == len(EXPECTED)


def test_the_model_itself_is_left_alone() -> None:
    model = Box(lp.Param(9, NORMAL))
    kept = model.clone(independent=True)
    seeded = model.seed(42)
    seeded.t.value
    assert is_free(model)
    assert bits(model.t) == bits(kept.t) != bits(seeded.t)


def test_loaded_parameters_stay_as_they_are(stored: Callable[..., Path]) -> None:
    """huggingface/transformers#9205, #21913, #26258, #27709: lazy still, and never drawn."""
    array = np.arange(9, dtype=np.float32)
    model = Bag(t=lp.Param(9, NORMAL), other=lp.Param(9, NORMAL))
    loaded = model.load_file(stored(t=array), strict=False).seed(42)
    assert is_free(loaded)
    np.testing.assert_array_equal(loaded.t.value, array)
    assert bits(loaded.other) == fill(NORMAL, Key(42, "other"), 9).tobytes()
    state = model.load_state_dict({"t": array}, strict=False).seed(42)
    np.testing.assert_array_equal(state.t.value, array)


def test_functions_are_left_alone() -> None:
    ran = []

    def init(plan: lp.Plan) -> np.ndarray:
        ran.append(plan)
        return np.full(plan.shape, 3, plan.dtype)

    seeded = Box(lp.Param(4, init)).seed(42)
    assert not ran
    assert seeded.t.value.tolist() == [3] * 4
    assert len(ran) == 1


def test_a_parameter_without_an_initialiser_stays_without() -> None:
    seeded = Box(lp.Param(4)).seed(42)
    with pytest.raises(lp.InitError, match="no initialiser"):
        seeded.t.value


def test_identity_and_intent_survive() -> None:
    model = Bag(a=lp.Param(4, NORMAL, id=7, requires_grad=False), b=lp.Param(4, NORMAL))
    seeded = model.seed(42)
    assert (seeded.a.id, seeded.b.id) == (7, model.b.id)
    assert [(p.shape, p.dtype, p.requires_grad) for p in seeded.parameters()] == [
        (p.shape, p.dtype, p.requires_grad) for p in model.parameters()
    ]


# ---- without a seed ------------------------------------------------------------------------------


def test_unseeded_declarations_differ_from_each_other() -> None:
    params = [lp.Param(8, NORMAL) for _ in range(50)]
    assert len({bits(param) for param in params}) == 50


def test_an_unseeded_value_is_decided_at_the_declaration() -> None:
    """Clones, copies and pickles of a lazy parameter all have the same value."""
    param = lp.Param(8, NORMAL)
    others = [
        param.clone(),
        param.clone(independent=True),
        copy.copy(param),
        copy.deepcopy(param),
        pickle.loads(pickle.dumps(param)),
        pickle.loads(pickle.dumps(param)),
    ]
    assert not param.is_initialized
    assert {bits(other) for other in others} == {bits(param)}
