"""Arguments of initialisers, keys and fills that make no sense: each is an error of ours, at once.

It says what was expected or what to do, and comes through a pickle whole.
"""

from __future__ import annotations

import inspect
import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lazyparam as lp
from lazyparam import init
from lazyparam.init import Key, fill
from tests.helpers import Box

LONE = "a\ud800"
"""A lone surrogate: a str that no encoding has bytes for."""


def refused(work: Callable[[], object]) -> lp.DeclarationError:
    """The error that this raises."""
    with pytest.raises(lp.DeclarationError) as caught:
        work()
    error = caught.value
    assert error.expected is not None or error.remedy is not None
    assert len(str(error)) < 500, "a huge number is cut"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    return error


# ---- every argument of every initialiser ---------------------------------------------------------

KINDS = {
    **dict.fromkeys(("mean", "std", "low", "high", "gain", "scale", "sparsity", "a"), "number"),
    **dict.fromkeys(("mode", "nonlinearity", "distribution", "layout", "compat"), "word"),
    **dict.fromkeys(("groups", "fan"), "count"),
    "value": "constant",
}
NEVER = [object(), b"x", [1], (), {}, int, LONE, np.arange(2), 10**40, -(10**40), 10**5000]
WRONG: dict[str, list[Any]] = {
    "number": [*NEVER, "x", "", "1.5", True, 1j, math.nan],
    "word": [*NEVER, "x1", 1, 1.5, True, 1j, math.nan],
    "count": [*NEVER, "x", "", True, 1j, -1, 0, 1.5, 2.0, math.nan, math.inf],
    "constant": [*NEVER, "x", "", "1.5", None],
}
ARGUMENTS = [
    (name, argument.name, argument.default is None)
    for name in init.__all__
    if name not in ("Init", "Key", "fill")
    for argument in inspect.signature(getattr(init, name)).parameters.values()
]


@pytest.mark.parametrize(("name", "argument", "is_optional"), ARGUMENTS)
def test_no_argument_of_an_initialiser_takes_what_makes_no_sense(
    name: str, argument: str, is_optional: bool
) -> None:
    others: dict[str, Any] = {}
    if name == "sparse":
        others = {"sparsity": 0.5}
    elif argument == "a":
        others = {"nonlinearity": "leaky_relu"}
    wrong = WRONG[KINDS[argument]]
    for value in wrong if is_optional else [*wrong, None]:
        refused(lambda: getattr(init, name)(**{**others, argument: value}))  # noqa: B023


@pytest.mark.parametrize("make", [init.kaiming_uniform, init.kaiming_normal])
def test_a_slope_is_refused_where_it_would_be_ignored(make: Callable[..., init.Init]) -> None:
    """PyTorch's ``kaiming_uniform_(w, a=math.sqrt(5))`` means a leaky_relu, its default."""
    for others in ({}, {"nonlinearity": "tanh"}, {"compat": "torch"}, {"nonlinearity": "linear"}):
        error = refused(lambda: make(a=math.sqrt(5), **others))  # noqa: B023
        assert error.remedy is not None
        assert 'nonlinearity="leaky_relu"' in error.remedy
    error = refused(lambda: make(nonlinearity="leaky_relu", a=0.1, gain=2.0))
    assert error.remedy == "Leave one of them out."
    as_torch = make(nonlinearity="leaky_relu", a=math.sqrt(5), compat="torch")
    assert as_torch.args["gain"] == pytest.approx(math.sqrt(1 / 3), rel=1e-15)


def test_an_initialiser_by_name_has_one_of_the_names() -> None:
    for name in ("nope", "", LONE, 3, None, init.zeros, 10**5000):
        refused(lambda: init.Init(name))  # noqa: B023
    refused(lambda: init.Init("normal", **{LONE: 1}))
    refused(lambda: init.Init("normal", value=1))


# ---- keys and seeds ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seed",
    [-1, 2**128, 10**5000, 1.0, math.nan, "1", LONE, None, True, b"1", [1], object()],
    ids=lambda seed: type(seed).__name__,
)
def test_a_seed_is_a_number_of_128_bits_everywhere(seed: Any) -> None:
    for attempt in (lambda: Key(seed), lambda: Box(lp.Param(1, init.normal())).seed(seed)):
        assert refused(attempt).expected == "an int from 0 to 2**128 - 1"


@pytest.mark.parametrize(
    "part",
    [1.5, math.nan, None, True, b"a", (1,), object(), 2**63, 10**5000, LONE, np.int64(1)],
    ids=lambda part: type(part).__name__,
)
def test_a_part_of_a_path_is_a_name_or_a_place(part: Any) -> None:
    refused(lambda: Key(1, "w", part))


@pytest.mark.parametrize("name", [LONE, 3, b"w", True, ("a", "b"), object()], ids=repr)
def test_a_name_of_a_draw_is_a_text(name: Any) -> None:
    error = refused(lambda: lp.Param(3, init.normal(), rng_name=name))
    assert error.found == repr(name)


@pytest.mark.parametrize("attach", [setattr, lambda module, name, p: module.d.update({name: p})])
def test_a_model_whose_path_is_no_text_is_refused(attach: Callable[..., None]) -> None:
    model = lp.Module()
    model.d = {}
    attach(model, LONE, lp.Param(3, init.normal()))
    for attempt in (lambda: model.seed(1), model.initialize):
        with pytest.raises(lp.ModuleError, match="lone surrogate") as caught:
            attempt()
        assert caught.value.remedy is not None


# ---- fills ---------------------------------------------------------------------------------------

KEY = Key(1)
NORMAL = init.normal()
FILLS: dict[str, tuple[Callable[[Any], object], list[Any]]] = {
    "init": (lambda x: fill(x, KEY, 3), [None, "normal", init.normal, lambda plan: 0, 3]),
    "key": (lambda x: fill(NORMAL, x, 3), [None, 42, "w", (42, "w"), Key]),
    "shape": (
        lambda x: fill(NORMAL, KEY, x),
        [
            *(None, "3", 1.5, (2, 1.5), -1, (2, -1), True, 2**63, 2**64, (2**70,), 10**5000, {3}),
            (2**40, 2**40),
        ],
    ),
    "dtype": (
        lambda x: fill(NORMAL, KEY, 3, x),
        [None, "float33", LONE, 3, 10**5000, object(), "int32"],
    ),
    "box": (
        lambda x: fill(NORMAL, KEY, (4, 5), box=x),
        [
            *(3, "ab", (), np.s_[0:1], np.s_[0:1, 2], np.s_[0:1, ...], np.s_[0:1, "a":]),
            *(np.s_[::2, :], np.s_[::-1, :], np.s_[:, :, :], 10**5000),
        ],
    ),
    "box of a scalar": (lambda x: fill(NORMAL, KEY, (), box=x), [np.s_[0:1], np.s_[:, :]]),
    "bounds of a box": (
        lambda x: fill(NORMAL, KEY, 5, box=x),
        [np.s_["a":], np.s_[:1.5], np.s_[::2], np.s_[::-1], np.s_[::0], np.s_[:, :], np.s_[::"a"]],
    ),
    "batch_axes": (
        lambda x: fill(NORMAL, KEY, (4, 5), batch_axes=x),
        [
            None,
            0,
            ["a"],
            [0.5],
            [None],
            [True],
            [0, 0],
            [0, -2],
            [2],
            [-3],
            [2**70],
            [10**5000],
            "0",
        ],
    ),
    "batch_axes of a declaration": (
        lambda x: lp.Param((4, 5), NORMAL, batch_axes=x),
        [0, ["a"], [0.5], [None], [True], [0, 0], [0, -2], [2], [-3], [2**70], [10**5000], "0"],
    ),
}


@pytest.mark.parametrize("what", FILLS)
def test_a_fill_takes_nothing_that_makes_no_sense(what: str) -> None:
    attempt, wrong = FILLS[what]
    for value in wrong:
        refused(lambda: attempt(value))  # noqa: B023


@pytest.mark.parametrize(
    "threads",
    [0, -1, -(2**70), 2**70, 10**5000, 1.5, math.nan, True, "2", LONE, [2], object()],
    ids=lambda threads: type(threads).__name__,
)
def test_a_number_of_threads_is_at_least_one(threads: Any) -> None:
    for attempt in (
        lambda: fill(NORMAL, KEY, 3, threads=threads),
        lambda: Box(lp.Param(3, NORMAL)).initialize(threads=threads),
    ):
        assert refused(attempt).problem == "at least one thread has to work"


def test_what_an_index_of_the_users_raises_comes_out() -> None:
    class Index:
        def __index__(self) -> int:
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        fill(NORMAL, KEY, 5, box=slice(0, Index()))  # type: ignore[misc]


FEW = """
import resource
from pathlib import Path
import lazyparam as lp

def draw(threads):
    return lp.init.fill(lp.init.normal(), lp.init.Key(1), 1 << 25, threads=threads)

expected = draw(1)
pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + expected.nbytes + (64 << 20)
hard = resource.getrlimit(resource.RLIMIT_AS)[1]
resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
drawn = draw(10_000)
resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
assert (drawn == expected).all()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")
def test_a_fill_goes_on_with_the_threads_that_the_system_allows() -> None:
    """It has room for the stacks of some thirty threads; hundreds are asked for."""
    command = [sys.executable, "-c", FEW]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
