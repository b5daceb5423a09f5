"""Adapters: attach LoRA to the 1 GB model, apply it, merge it, load and switch it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import numpy as np

import lazyparam as lp

from . import llama
from .harness import Cost, Scale, WrongResult, apart, cost, take_turns
from .llama import Llama, Size
from .table import Row, duration, over_rounds, ratios, size, times

RANK = 8
TARGET = "*_proj.weight"
NAMES = [f"{part}_proj" for part in ("q", "k", "v", "o", "gate", "up", "down")]

Sample: TypeAlias = Mapping[str, float]

HAS_PEFT = find_spec("peft") is not None and find_spec("torch") is not None
HAS_TORCH = find_spec("torch") is not None


# ---- attaching -----------------------------------------------------------------------------------


def attach(of: Size) -> Cost:
    """LoRA on every projection; nothing of the base may come into being."""
    declared = Llama(of)
    lp.apply_lora(Llama(llama.QUICK), r=RANK, target=TARGET)
    adapted, spent = cost(partial(lp.apply_lora, declared, r=RANK, target=TARGET))
    if llama.runs or any(param.is_initialized for param in adapted.parameters()):
        raise WrongResult("attaching brought a parameter into being")
    if not isinstance(adapted.model.layers[0].mlp.up_proj.weight, lp.AdaptedParam):
        raise WrongResult("nothing was attached")
    return spent


def attach_peft(of: Size) -> Cost:
    """The same on torch's meta device, the adapters too."""
    peft = import_module("peft")
    config = peft.LoraConfig(r=RANK, target_modules=NAMES)
    peft.get_peft_model(torch_model(llama.QUICK, "meta"), config, low_cpu_mem_usage=True)
    model = torch_model(of, "meta")
    _, spent = cost(partial(peft.get_peft_model, model, config, low_cpu_mem_usage=True))
    return spent


def torch_model(of: Size, device: str) -> Any:
    """The projections of the Llama as torch modules."""
    torch = import_module("torch")

    def tree(node: object) -> Any:
        if isinstance(node, list):
            return torch.nn.ModuleList(map(tree, node))
        if isinstance(node, llama.Weight):
            rows, *columns = node.weight.shape
            if not columns:
                return torch.nn.Identity()
            return torch.nn.Linear(columns[0], rows, bias=False, device=device)
        return torch.nn.ModuleDict({name: tree(child) for name, child in vars(node).items()})

    return tree(Llama(of))


# ---- applying ------------------------------------------------------------------------------------


def best(work: Callable[[], Any], seconds: float = 0.3) -> float:
    """The least time that `work` took in some rounds."""
    work()
    least, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        work()
        least = min(least, time.perf_counter() - start)
    return least


def apply(of: Size, rows: int) -> Sample:
    """One projection of one batch: with adapters one by one, and by the effective weight."""
    device = "torch:cpu" if HAS_TORCH else "cpu"
    weight = lp.Param((of.hidden, of.width), lp.init.normal(std=0.02), device=device)
    model = trained(lp.apply_lora({"w": weight}, r=RANK))
    if HAS_TORCH:
        import_module("torch").set_num_threads(1)
    param = model["w"]
    x = lp.Param((rows, of.width), lp.init.normal(), device=device).val()

    def dense() -> Any:
        param.release()
        return x @ param.val().T

    difference = abs(lp.linear(x, param) - dense()).max()
    if float(difference) > 1e-3:
        raise WrongResult(f"the two forms differ by {float(difference)}")
    kept = best(lambda: x @ param.val().T)
    sample = {"factored": best(lambda: lp.linear(x, param)), "dense": best(dense), "kept": kept}
    if HAS_TORCH:
        training = lp.Module.train(model)["w"]
        sample["factored with gradients"] = best(lambda: lp.linear(x, training).sum().backward())
        sample["dense with gradients"] = best(lambda: (x @ training.val().T).sum().backward())
    return sample


def trained(model: Any) -> Any:
    """With factors that are not zero."""

    class Fill(lp.ModuleMapper):
        def map_float(self, path: str, param: lp.Param) -> lp.Param:
            if ".lora" not in path:
                return param
            fresh = lp.Param(param.shape, lp.init.normal(std=0.1), device="cpu").val()
            return param.transform_for_load(fresh)

    return lp.Module.map(model, Fill())


# ---- merging -------------------------------------------------------------------------------------


def merge(of: Size) -> Sample:
    """The largest matrix of the model, and the same by hand in NumPy."""
    weight = lp.Param((of.vocabulary, of.width), lp.init.normal())
    model = trained(lp.apply_lora({"w": weight}, r=RANK))
    lora = model["w"].reparameterization("lora")
    base, a, b = model["w"].base(), lora.a.val(), lora.b.val()
    merged = lp.merge(model)["w"].val()
    if not np.array_equal(merged, base + (a * lora.scale) @ b):
        raise WrongResult("the merged value is another")
    return {
        "ours": best(lambda: lp.merge(model)["w"].val(), 2),
        "by hand": best(lambda: base + (a @ b) * lora.scale, 2),
        "undo": best(lambda: lp.unmerge(lp.merge(model, undoable=True)), 2),
        "nbytes": weight.nbytes,
    }


# ---- loading and switching -----------------------------------------------------------------------


def save(of: Size, folder: Path) -> None:
    """Two adapters for the whole model."""
    for name in ("one", "two"):
        lp.save_adapter(trained(lp.apply_lora(Llama(of), r=RANK, target=TARGET)), folder / name)


def swap(of: Size, folder: Path) -> Sample:
    """Load a second adapter, then switch to and fro."""
    model = lp.load_adapter(Llama(of), folder / "one", "one")
    start = time.perf_counter()
    both = lp.load_adapter(model, folder / "two", "two", active=False)
    loaded = time.perf_counter() - start
    for path, param in both.named_parameters():
        if ".two." in path:
            param.val()
    read = time.perf_counter() - start
    choices = cycle(("one", "two"))
    switched = best(lambda: lp.activate(both, next(choices)))

    def in_context() -> None:
        with lp.active_adapters(next(choices)):
            pass

    if llama.runs:
        raise WrongResult("a base came into being")
    return {"load": loaded, "read": read, "switch": switched, "context": best(in_context)}


def swap_peft(of: Size, folder: Path) -> Sample:
    """The same with PEFT, on a model whose weights are zeros."""
    peft = import_module("peft")
    torch = import_module("torch")
    with torch.no_grad():
        model = torch_model(of, "meta").to_empty(device="cpu")
        for param in model.parameters():
            param.zero_()
    model = peft.PeftModel.from_pretrained(model, str(folder / "one"), adapter_name="one")
    start = time.perf_counter()
    model.load_adapter(str(folder / "two"), "two")
    read = time.perf_counter() - start
    choices = cycle(("one", "two"))
    return {"read": read, "switch": best(lambda: model.set_adapter(next(choices)))}


def quietly(work: Callable[..., Any], *args: Any) -> Any:
    """`work`, without the warnings of others."""
    import warnings

    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return work(*args)


# ---- the table -----------------------------------------------------------------------------------


def run(scale: Scale) -> list[Row]:
    of = scale.pick(llama.FULL, llama.QUICK)
    folder = scale.folder / f"adapters-{of.width}"
    apart(save, of, folder)
    return [
        *_attaching(scale, of),
        *_applying(scale, of),
        *_merging(scale, of),
        *_swapping(scale, of, folder),
    ]


def _rounds(scale: Scale, cases: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    turns = {name: partial(apart, quietly, *case) for name, case in cases.items()}
    return take_turns(scale.pick(5, 2), turns)


def _of(samples: Sequence[Sample], what: str) -> list[float]:
    return [sample[what] for sample in samples]


def _attaching(scale: Scale, of: Size) -> list[Row]:
    declared = Llama(of)
    nbytes = sum(param.nbytes for param in declared.parameters())
    count = of.layers * len(NAMES)
    cases = {"ours": (attach, of)} | ({"peft": (attach_peft, of)} if HAS_PEFT else {})
    measured = _rounds(scale, cases)
    seconds = {name: [spent.seconds / count for spent in measured[name]] for name in measured}
    peak = max(spent.peak for spent in measured["ours"])
    row = Row(
        f"attach LoRA to {count} matrices of a lazy model of {nbytes / 1e9:.2g} GB, for each",
        f"{over_rounds(seconds['ours'], duration)}, 0 B of base in being, {size(peak)} in all",
        "peft not installed",
    )
    if not HAS_PEFT:
        return [row]
    peer = f"peft on meta: {over_rounds(seconds['peft'], duration)}"
    ratio = f"{times(median(ratios(seconds['ours'], seconds['peft'])))} the speed"
    return [Row(row.what, row.ours, peer, ratio)]


def _applying(scale: Scale, of: Size) -> list[Row]:
    rows = []
    for batch in (1, 64, 1024):
        measured = _rounds(scale, {"": (apply, of, batch)})[""]
        shape = f"{batch} x {of.width} by {of.width} x {of.hidden}"
        where = f"{shape} on {'torch' if HAS_TORCH else 'NumPy'}"
        rows += [
            _row(f"linear of {where}", measured, "factored", other, name)
            for other, name in (
                ("dense", "an effective weight made for it"),
                ("kept", "an effective weight that is kept"),
            )
        ]
        if HAS_TORCH:
            pair = ("factored with gradients", "dense with gradients")
            rows.append(_row(f"the same and gradients of {where}", measured, *pair, "effective"))
    return rows


def _row(what: str, measured: Sequence[Sample], ours: str, other: str, name: str) -> Row:
    mine, theirs = _of(measured, ours), _of(measured, other)
    return Row(
        what,
        over_rounds(mine, duration),
        f"{name}: {over_rounds(theirs, duration)}",
        f"{times(median(ratios(mine, theirs)))} the speed",
    )


def _merging(scale: Scale, of: Size) -> list[Row]:
    measured = _rounds(scale, {"": (merge, of)})[""]
    ours, by_hand, undo = (_of(measured, what) for what in ("ours", "by hand", "undo"))
    nbytes = measured[0]["nbytes"]
    return [
        Row(
            f"merge a matrix of {nbytes / 1e6:.0f} MB",
            f"{over_rounds(ours, duration)}, {nbytes / median(ours) / 1e9:.2g} GB/s",
            f"base + scale * (a @ b) in NumPy: {over_rounds(by_hand, duration)}",
            f"{times(median(ratios(ours, by_hand)))} the speed",
        ),
        Row("merge it and take it out again, bit for bit", over_rounds(undo, duration)),
    ]


def _swapping(scale: Scale, of: Size, folder: Path) -> list[Row]:
    cases = {"ours": (swap, of, folder)} | ({"peft": (swap_peft, of, folder)} if HAS_PEFT else {})
    measured = _rounds(scale, cases)
    rows = []
    for what, name in (
        ("load", "load an adapter of the whole model, lazily"),
        ("read", "load one and read all of its factors"),
        ("switch", "switch to another one"),
        ("context", "switch in a context"),
    ):
        ours = _of(measured["ours"], what)
        peer = ratio = ""
        if HAS_PEFT and what != "load":
            other = "switch" if what == "context" else what
            theirs = _of(measured["peft"], other)
            peer = f"peft: {over_rounds(theirs, duration)}"
            ratio = f"{times(median(ratios(ours, theirs)))} the speed"
        rows.append(Row(name, over_rounds(ours, duration), peer, ratio))
    return rows
