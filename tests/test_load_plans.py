"""Plans: what a load would do is known, and checked as a whole, before anything is read."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lazyparam as lp
from tests.checkpoint_files import sparse, table
from tests.helpers import Box, Linear, Tied, never, race

WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)
BIAS = np.array([7, 8], np.float32)


class Net(lp.Module):
    """Two layers and a counter."""

    def __init__(self, init: Any = never) -> None:
        self.layers = [Linear(3, 2, init), Linear(2, 2, init)]
        self.steps = lp.Param((), init, dtype="int64")


NET = {
    "layers.0.weight": WEIGHT,
    "layers.0.bias": BIAS,
    "layers.1.weight": WEIGHT[:, :2].copy(),
    "layers.1.bias": BIAS,
    "steps": np.array(9, np.int64),
}


counts_bytes = pytest.mark.thread_unsafe(reason="counts the bytes that the process reads")


def bytes_read() -> int:
    """Bytes that this process has asked the system for, from its beginning."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


def test_the_report_tells_everything_that_a_load_would_do(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    stored = {
        **NET,
        "layers.0.weight": WEIGHT.astype(np.float16),
        "layers.1.bias": np.zeros(5, np.float32),
        "extra.weight": np.zeros((64, 32), np.float32),
    }
    del stored["steps"]
    path.write_bytes(table(stored))
    model = Net()
    model.again = model.layers[0].weight.clone()
    plan = model.plan_load(path)
    assert [(m.path, m.name, m.stored_dtype, m.dtype, m.nbytes) for m in plan.loaded] == [
        ("layers.0.weight", "layers.0.weight", "float16", "float32", 12),
        ("layers.0.bias", "layers.0.bias", "float32", "float32", 8),
        ("layers.1.weight", "layers.1.weight", "float32", "float32", 16),
    ]
    assert plan.missing == ("steps",)
    assert plan.unexpected == ("extra.weight",)
    assert plan.mismatched == {
        "layers.1.bias": "expected shape (2,), found (5,) in 'layers.1.bias'"
    }
    assert plan.cast == plan.loaded[:1]
    assert plan.tied == {"again": "layers.0.weight"}
    assert plan.nbytes == 12 + 8 + 16
    assert len(plan.problems) == 3
    assert str(plan).splitlines() == [
        f"load plan for {path}: 3 loaded (36 B), 1 missing, 1 unexpected, 1 mismatched, 1 cast,"
        " 1 tied",
        "  missing     steps",
        "  unexpected  extra.weight",
        "  mismatched  layers.1.bias: expected shape (2,), found (5,) in 'layers.1.bias'",
        "  cast        layers.0.weight: float16 -> float32",
        "  tied        again -> layers.0.weight",
        "  problem     mismatched 'layers.1.bias': expected shape (2,), found (5,) in"
        " 'layers.1.bias'",
        "  problem     missing 'steps'",
        "  problem     unexpected 'extra.weight'",
    ]


def test_a_plan_without_problems_says_so_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(table(NET))
    plan = Net().plan_load(path)
    assert plan.problems == ()
    assert str(plan) == (
        f"load plan for {path}: 5 loaded (64 B), 0 missing, 0 unexpected, 0 mismatched, 0 cast,"
        " 0 tied"
    )


MISSING, UNEXPECTED, MISMATCHED = "layers.0.bias", "extra", "layers.1.bias"

# What is wrong with the file, what is allowed -> the error, or None.
KINDS: list[tuple[set[str], dict[str, Any], type[lp.RecordError] | None]] = [
    (set(), {}, None),
    ({MISSING}, {}, lp.MissingParams),
    ({UNEXPECTED}, {}, lp.UnexpectedKeys),
    ({MISMATCHED}, {}, lp.ShapeMismatch),
    ({MISSING, UNEXPECTED}, {}, lp.RecordError),
    ({MISSING, MISMATCHED}, {}, lp.RecordError),
    ({MISSING, UNEXPECTED}, {"strict": False}, None),
    ({MISSING, UNEXPECTED}, {"allow_missing": True}, lp.UnexpectedKeys),
    ({MISSING, UNEXPECTED}, {"allow_unexpected": True}, lp.MissingParams),
    ({MISSING, UNEXPECTED}, {"allow_missing": True, "allow_unexpected": True}, None),
    ({MISSING, UNEXPECTED}, {"strict": False, "allow_missing": False}, lp.MissingParams),
    ({MISSING, UNEXPECTED}, {"strict": False, "allow_unexpected": False}, lp.UnexpectedKeys),
    ({MISMATCHED}, {"strict": False}, lp.ShapeMismatch),
    ({MISMATCHED}, {"allow_missing": True, "allow_unexpected": True}, lp.ShapeMismatch),
    ({MISMATCHED}, {"skip_mismatched": True}, None),
    ({MISSING, MISMATCHED}, {"skip_mismatched": True}, lp.MissingParams),
]


@pytest.mark.parametrize(("wrong", "allowed", "kind"), KINDS)
def test_what_is_wrong_is_refused_by_kind_unless_it_is_allowed(
    wrong: set[str], allowed: dict[str, Any], kind: type[lp.RecordError] | None, tmp_path: Path
) -> None:
    """B39: unused, missing and mismatched, each refused by name and each allowed on request."""
    path = tmp_path / "model.safetensors"
    stored = dict(NET)
    if MISSING in wrong:
        del stored[MISSING]
    if UNEXPECTED in wrong:
        stored[UNEXPECTED] = BIAS
    if MISMATCHED in wrong:
        stored[MISMATCHED] = np.zeros((2, 1), np.float32)
    path.write_bytes(table(stored))
    model = Net()
    if kind is not None:
        with pytest.raises(lp.RecordError) as caught:
            model.load_file(path, **allowed)
        assert type(caught.value) is kind
        named = {name for name in wrong if repr(name) in str(caught.value)}
        assert len(caught.value.problems) == len(named)
        refused = {
            lp.MissingParams: MISSING,
            lp.UnexpectedKeys: UNEXPECTED,
            lp.ShapeMismatch: MISMATCHED,
        }
        assert named == ({refused[kind]} if kind in refused else wrong)
        return
    loaded = model.load_file(path, **allowed)
    for name, param in loaded.named_parameters():
        if name in wrong:
            assert param.is_tied_to(dict(model.named_parameters())[name])
        else:
            assert np.array_equal(param.value, stored[name])


def test_a_mismatched_target_that_is_skipped_keeps_its_value(tmp_path: Path) -> None:
    """B39: the target then keeps its value."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(table({**NET, "layers.1.bias": np.zeros(5, np.float32)}))
    model = Net(lp.init.ones()).initialize()
    loaded = model.load_file(path, skip_mismatched=True)
    assert loaded.layers[1].bias.value is model.layers[1].bias.value
    assert loaded.layers[0].bias.value.tolist() == [7, 8]


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("layers.0.wieght", "layers.0.weight"),
        ("model.layers.0.weight", "layers.0.weight"),
        ("transformer.very.long.prefix.of.it.layers.0.weight", "layers.0.weight"),
        ("layers_0_weight", "layers.0.weight"),
    ],
)
def test_a_name_that_is_nearly_right_is_pointed_out(
    wrong: str, nearest: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    stored = dict(NET)
    stored[wrong] = stored.pop(nearest)
    path.write_bytes(table(stored))
    with pytest.raises(lp.RecordError) as caught:
        Net().load_file(path)
    assert f"missing {nearest!r} (nearest: {wrong!r})" in caught.value.problems
    assert f"unexpected {wrong!r} (nearest: {nearest!r})" in caught.value.problems


def test_a_name_that_resembles_nothing_is_not_guessed_at(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(table({**NET, "qqqq": BIAS}))
    with pytest.raises(lp.UnexpectedKeys) as caught:
        Net().load_file(path)
    assert caught.value.problems == ("unexpected 'qqqq'",)


# ---- rename --------------------------------------------------------------------------------------


def test_rename_by_mapping_leaves_other_names_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    stored = {**NET, "old": NET["steps"]}
    del stored["steps"]
    path.write_bytes(table(stored))
    plan = Net().plan_load(path, rename={"old": "steps", "not there": "x"})
    assert [match.name for match in plan.loaded if match.path == "steps"] == ["old"]
    assert plan.commit().steps.value == 9


def test_rename_by_function_sees_every_name_once(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(table({f"model.{name}": array for name, array in NET.items()}))
    seen: list[str] = []

    def rename(name: str) -> str:
        seen.append(name)
        return name.removeprefix("model.")

    loaded = Net().load_file(path, rename=rename)
    assert sorted(seen) == sorted(f"model.{name}" for name in NET)
    assert loaded.layers[0].bias.value.tolist() == [7, 8]


@pytest.mark.parametrize(
    "rename",
    [lambda name: None if name == "junk" else name, {"junk": None}],
    ids=["function", "mapping"],
)
def test_renaming_to_none_leaves_a_tensor_out(rename: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(table({**NET, "junk": BIAS}))
    plan = Net().plan_load(path, rename=rename)
    assert plan.unexpected == ()
    assert plan.commit().steps.value == 9


def test_two_names_for_one_path_are_refused_and_both_are_named(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(table({**NET, "steps_old": NET["steps"]}))
    with pytest.raises(lp.RecordError) as caught:
        Net().load_file(path, strict=False, rename={"steps_old": "steps"})
    (problem,) = caught.value.problems
    assert problem.startswith("rename gives two tensors one path, 'steps': ")
    assert "'steps'" in problem
    assert "'steps_old'" in problem


@pytest.mark.parametrize("answer", [3, b"steps", ("steps",), True], ids=repr)
def test_a_rename_that_answers_with_no_name_is_refused(answer: object, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(table(NET))
    with pytest.raises(lp.RecordError, match="rename") as caught:
        Net().plan_load(path, rename=lambda name: answer)  # type: ignore[arg-type, return-value]
    assert type(answer).__name__ in str(caught.value)


def test_an_error_in_a_rename_function_comes_out_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(table(NET))
    with pytest.raises(ZeroDivisionError):
        Net().plan_load(path, rename=lambda name: str(1 / 0))


# ---- when things happen --------------------------------------------------------------------------


@counts_bytes
@pytest.mark.parametrize("mode", ["copy", "view", "auto"])
def test_planning_and_committing_read_the_header_and_no_data(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    size = 1 << 40
    sparse(path, size)
    model = lp.Module()
    model.t = lp.Param(size // 4, never)
    before, begin = bytes_read(), time.monotonic()
    loaded = model.plan_load(path, mode=mode).commit()
    assert bytes_read() - before < 4 << 20, "a terabyte of data was there to read"
    assert time.monotonic() - begin < 5
    assert loaded.t.nbytes == size
    assert not loaded.t.is_initialized


@counts_bytes
def test_a_tensor_that_nobody_asks_for_is_never_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    big = np.zeros(4 << 20, np.float32)
    path.write_bytes(table({"big": big, "small": BIAS}))
    model = lp.Module()
    model.big, model.small = lp.Param(big.shape, never), lp.Param(2, never)
    loaded = model.load_file(path, mode="copy")
    before = bytes_read()
    assert loaded.small.value.tolist() == [7, 8]
    assert bytes_read() - before < 1 << 20
    _ = loaded.big.value
    assert bytes_read() - before >= big.nbytes


def states(model: lp.Module) -> list[tuple[Any, ...]]:
    """Everything that a load might have changed."""
    return [
        (name, id(p), p.id, p.state, p.dtype, str(p.device), p.is_initialized)
        for name, p in model.named_parameters(remove_duplicate=False)
    ]


@pytest.mark.parametrize("good", [True, False], ids=["committed", "refused"])
@pytest.mark.parametrize("ready", [False, True], ids=["lazy", "ready"])
def test_the_module_that_was_planned_for_is_untouched(
    good: bool, ready: bool, tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(table(NET if good else {**NET, "layers.0.bias": WEIGHT}))
    model = Net(lp.init.ones())
    if ready:
        model.initialize()
    before = states(model)
    plan = model.plan_load(path, dtype="float64", device="cpu")
    assert states(model) == before
    if good:
        assert plan.commit().initialize().layers[0].weight.dtype == "float64"
    else:
        with pytest.raises(lp.ShapeMismatch):
            plan.commit()
    assert states(model) == before
    assert model.layers[0].bias.value.tolist() == [1, 1]


def test_a_plan_can_be_committed_again_and_each_time_gives_a_module_of_its_own(
    tmp_path: Path,
) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(table(NET))
    plan = Net().plan_load(path, mode="copy")
    one, two = plan.commit(), plan.commit()
    assert one is not two
    assert not one.steps.is_tied_to(two.steps)
    assert one.layers[0].weight.value is not two.layers[0].weight.value
    assert np.array_equal(one.layers[0].weight.value, two.layers[0].weight.value)


def test_a_refused_plan_stays_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(table({"steps": NET["steps"]}))
    plan = Net().plan_load(path)
    texts = set()
    for _ in range(2):
        with pytest.raises(lp.MissingParams) as caught:
            plan.commit()
        texts.add(str(caught.value))
    assert len(texts) == 1


def test_an_empty_file_and_an_empty_module_fit(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(table({}))
    plan = lp.Module().plan_load(path)
    assert plan.problems == ()
    assert list(plan.commit().parameters()) == []


def test_many_threads_may_plan_and_load_at_once(tmp_path: Path) -> None:
    """B57: 16 concurrent loads of a tied model give 16 right models."""
    path = tmp_path / "model.safetensors"
    rng = np.random.default_rng(0)
    model = Tied()
    stored = {
        name: rng.standard_normal(param.shape).astype(np.float32)
        for name, param in model.named_parameters()
    }
    path.write_bytes(table(stored))
    results = race([lambda: model.load_file(path).initialize(threads=2)] * 16)
    for result in results:
        assert isinstance(result, Tied)
        assert result.head.value is result.embed.value
        for name, param in result.named_parameters():
            assert np.array_equal(param.value, stored[name])
    assert not any(param.is_initialized for param in model.parameters())


def test_a_tensor_that_is_left_out_for_a_tie_is_noted(stored: Callable[..., Path]) -> None:
    """B52: one value is loaded for all; nobody is to find out by surprise."""
    path = stored(embed=np.ones((4, 3), "f4"), head=np.full((4, 3), 7, "f4"))

    class Model(lp.Module):
        def __init__(self) -> None:
            self.embed = lp.Param((4, 3), never)
            self.head = self.embed.clone()

    plan = Model().plan_load(path)
    assert plan.warnings == ("'head' is not read: 'head' is tied to what 'embed' is for",)
    assert "note        'head' is not read" in str(plan)
    assert (plan.commit().head.val() == 1).all()
    with pytest.raises(lp.ShapeMismatch, match="found int32 in 'head'"):
        Model().load_file(stored(embed=np.ones((4, 3), "f4"), head=np.ones((4, 3), "i4")))


def test_a_rename_that_names_nothing_in_the_file_is_noted(stored: Callable[..., Path]) -> None:
    path = stored(w=np.ones(3, "f4"))
    plan = Box(lp.Param(3, never)).plan_load(path, rename={"t": "w"})
    assert plan.warnings == (
        "rename names 't', which is not in the file (its keys are names in the file)",
    )
    with pytest.raises(lp.RecordError, match="Note: rename names 't'"):
        plan.commit()
    for rename in (["w"], 3):
        with pytest.raises(lp.RecordError, match="this renames nothing"):
            Box(lp.Param(3, never)).load_file(path, rename=rename)


def test_an_error_in_a_rename_function_says_for_which_tensor(stored: Callable[..., Path]) -> None:
    def rename(name: str) -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        Box(lp.Param(3, never)).load_file(stored(w=np.ones(3, "f4")), rename=rename)
    assert caught.value.__notes__ == ["while renaming 'w'"]


def test_plans_show_as_their_report(stored: Callable[..., Path]) -> None:
    plan = Box(lp.Param(3, never)).plan_load(stored(t=np.ones(3, "f4")))
    assert repr(plan) == str(plan)
