"""What type checkers are to see; `make lint` checks it, nothing runs it."""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np

import lazyparam as lp


def draw(plan: lp.Plan) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.zeros(plan.shape)


class Model(lp.Module):
    def __init__(self) -> None:
        self.weight = lp.Param(3, draw)


native = lp.Param((2, 3), lp.init.zeros(), dtype="float16", device="cpu")
assert_type(native, "lp.Param[np.ndarray[Any, Any]]")
assert_type(native.val(), "np.ndarray[Any, Any]")
assert_type(native.shape, tuple[int, ...])
assert_type(lp.Param(3, draw).value, "np.ndarray[Any, np.dtype[np.float64]]")
assert_type(lp.Param.from_tensor(np.zeros(2)).no_grad().base().dtype, np.dtype[np.float64])

model = Model()
assert_type(model.freeze(), Model)
assert_type(model.plan_load("x"), lp.LoadPlan[Model])
assert_type(model.plan_load("x").commit(), Model)
assert_type(model.load_file("x").initialize(), Model)
assert_type(lp.summary(model), lp.Summary)
group = lp.ParamGroup.glob("*.weight") - lp.ParamGroup.of(model)
assert_type(group, lp.ParamGroup)
assert_type(model.freeze(group), Model)
assert_type(model.with_training_state(model.training_state("*")), Model)
assert_type(lp.Flag(True).valid(), lp.Flag)
assert_type(lp.device("cpu"), lp.Device)

with native.writable() as draft:
    assert_type(draft, lp.Draft)
