"""QLoRA: weights of few bits that nobody trains, and low-rank adapters over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

from . import _tree
from ._core import Param
from .errors import DeclarationError, QuantizeError
from .lora import Layout, apply_lora
from .quant import Scheme, nf4, q8s
from .quantized import substitute_quantized
from .reparam import AdaptedParam
from .selection import GroupLike, choose
from .targets import Target

__all__ = ["apply_qlora"]

M = TypeVar("M")
BLOCK = 64


def apply_qlora(
    module: M,
    r: int = 8,
    alpha: float = 16.0,
    target: Target = "*",
    *,
    bits: Literal[4, 8] | None = None,
    scheme: Scheme | None = None,
    quantize: GroupLike | None = None,
    dtype: str | None = None,
    init_std: float | None = None,
    rslora: bool = False,
    dora: bool = False,
    name: str = "lora",
    layout: Layout = "OI",
    tied: Literal["refuse", "share", "untie"] = "refuse",
) -> M:
    """`module` with its floats frozen, weights of few bits, and LoRA adapters over them.

    That is QLoRA (Dettmers et al. 2023). As :func:`apply_lora`, and then parameters are quantised:
    the targets, unless `quantize` says otherwise. Nothing comes into being of what is lazy; what is
    ready is quantised at once. Tied parameters are quantised as one, and what is quantised already
    stays as it is.

    Args:
        module: a Module, or whatever leads to parameters.
        r: as for :func:`apply_lora`, as are the others that are not told of here.
        alpha: the scale, times the rank.
        target: which matrices get adapters; those of integers and scales may.
        bits: 4 (the default) is ``nf4(64)``. 8 is ``q8s(64)``, and one scale for all where blocks
            of 64 do not divide the last dimension.
        scheme: another way to quantise, instead of `bits`.
        quantize: of the float parameters, which are quantised: a ``ParamGroup``, or a shell pattern
            for paths. What it selects needs no adapter.
        dtype: of the factors; that of the floats which the base stands for if not given.
        init_std: standard deviation of the drawn factor, instead of 1/r.
        rslora: scale by alpha/√r.
        dora: attach DoRA adapters; magnitudes begin as the norms of the quantised base.
        name: what the adapters are called.
        layout: ``"OI"`` if the rows of the matrices are outputs, as in torch, or ``"IO"``.
        tied: what to do with a target that is tied to another parameter.

    Raises:
        DeclarationError: if a number makes no sense, or both `bits` and `scheme` are given.
        GroupError: if `quantize` selects nothing.
        ModuleError: if the target means nothing that can be adapted, or something tied.
        QuantizeError: if `quantize` selects no floats, or the scheme does not fit a parameter.

    >>> import lazyparam as lp
    >>> model = {"q": lp.Param((64, 64), lp.init.normal()), "bias": lp.Param(64, lp.init.zeros())}
    >>> adapted = lp.apply_qlora(model, r=2, target="q")
    >>> adapted["q"].kind, adapted["q"].nbytes, adapted["q"].is_initialized
    ('quantised', 2304, False)
    >>> [path for path, param in lp.Module.named_parameters(adapted) if param.requires_grad]
    ['q.lora.a', 'q.lora.b']
    """
    choice = _choice_of(bits, scheme)
    chosen = None if quantize is None else _chosen_by(module, quantize)
    adapted = apply_lora(
        module,
        r,
        alpha,
        target,
        dtype=dtype,
        init_std=init_std,
        rslora=rslora,
        dora=dora,
        name=name,
        layout=layout,
        tied=tied,
    )
    if chosen is None:
        chosen = _newly_adapted(module, adapted, name)
    ties = {base._tie for path, base in _floats(adapted) if path in chosen}
    packed = substitute_quantized(
        adapted, lambda param: choice(param) if param._tie in ties else None
    )
    _tree.name_params(packed)
    return packed


def _choice_of(bits: object, scheme: object) -> Callable[[Param[Any]], Scheme]:
    """Tells how a parameter is quantised."""
    if scheme is not None:
        if bits is not None:
            raise DeclarationError(
                "bits and scheme both say how to quantise", found=f"bits={bits!r}, scheme={scheme}"
            )
        if not isinstance(scheme, Scheme):
            raise DeclarationError(
                "this is no scheme",
                expected="one of lazyparam.quant: q8s(...), q4s(...), nf4(...)",
                found=repr(scheme),
            )
        return lambda param: scheme
    if bits not in (4, 8, None) or isinstance(bits, float):
        raise DeclarationError(
            "weights are quantised to 4 bits or to 8",
            found=f"bits={bits!r}",
            remedy="Other ways to quantise are schemes: scheme=lp.quant.q4s(32).",
        )
    return _of_eight_bits if bits == 8 else lambda param: nf4(BLOCK)


def _of_eight_bits(param: Param[Any]) -> Scheme:
    return q8s(BLOCK if param.ndim and param.shape[-1] % BLOCK == 0 else None)


def _chosen_by(module: object, group: GroupLike) -> set[str]:
    """The paths of what is to be quantised."""
    is_wanted = choose(module, group, flags=False)
    chosen = {leaf.path for leaf in _tree.walk(module) if is_wanted(leaf.param)}
    if not any(path in chosen for path, _ in _floats(module)):
        found = [(path, param) for path, param in _tree.places(module) if path in chosen]
        raise QuantizeError(
            "this group selects nothing that can be quantised",
            expected="parameters of floats, by their own paths",
            found=", ".join(f"{path!r} ({param.dtype})" for path, param in found[:5])
            or ", ".join(map(repr, sorted(chosen)[:5])),
        )
    return chosen


def _newly_adapted(before: object, after: object, name: str) -> set[str]:
    """The paths at which an adapter called `name` was attached."""

    def adapters(root: object) -> set[str]:
        return {
            path
            for path, param in _tree.places(root)
            if isinstance(param, AdaptedParam) and name in param.reparameterizations
        }

    return adapters(after) - adapters(before)


def _floats(module: object) -> Iterator[tuple[str, Param[Any]]]:
    """Paths and parameters that can be quantised; of what has adapters, the base."""
    for path, param in _tree.places(module):
        base = param._base if isinstance(param, AdaptedParam) else param
        if isinstance(base, Param) and base.kind == "float":
            yield path, base
