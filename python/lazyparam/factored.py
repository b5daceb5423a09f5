"""``linear``: a matrix applied to rows of inputs, adapters without their dense product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .devices import backend_holding
from .lora import Layout, insist_on_layout
from .reparam import AdaptedParam, Reparameterization

__all__ = ["linear"]


def linear(
    x: Any,
    param: Any,
    bias: Any = None,
    *,
    layout: Layout = "OI",
    adapters: str | Sequence[str] | None = None,
) -> Any:
    """``x @ weight.T + bias``, where the adapters of the weight are applied to `x` one by one.

    LoRA's ``x @ base.T + scale · (x @ b.T) @ a.T`` costs two thin products instead of a dense
    effective weight. What cannot be applied so (DoRA, weight norm, mapped values) is applied to the
    weight, as ``param.value`` would. Gradients and traces of the library pass.

    Args:
        x: an array of shape (..., inputs).
        param: the weight: a parameter with adapters or without.
        bias: a parameter or an array, or None.
        layout: ``"OI"`` for a weight of shape (outputs, inputs), as in torch, or ``"IO"``.
        adapters: names, for this call: it goes before the context's choice and the parameter's.

    >>> import numpy as np, lazyparam as lp
    >>> a, b = lp.Param((3, 1), lp.init.ones()), lp.Param((1, 2), lp.init.ones())
    >>> weight = lp.Param((3, 2), lp.init.zeros())
    >>> weight = weight.with_reparameterization(lp.LoraAdapter(a, b, scale=2.0))
    >>> lp.linear(np.ones((1, 2), "f4"), weight).tolist()
    [[4.0, 4.0, 4.0]]
    """
    insist_on_layout(layout)
    product = _factored(x, param, layout, adapters)
    if product is None:
        weight = param.val(adapters=adapters) if isinstance(param, AdaptedParam) else _read(param)
        product = _times(x, weight, layout)
    return product if bias is None else product + _read(bias)


def _factored(x: Any, param: Any, layout: Layout, adapters: str | Sequence[str] | None) -> Any:
    """The product with base and adapters one by one, or None if that is not possible."""
    if not isinstance(param, AdaptedParam):
        return None
    nodes = [param.reparameterizations[name] for name in param._names(adapters)]
    plain = Reparameterization.product
    if param.ndim != 2 or any(type(node).product is plain for node in nodes):
        return None
    added = [node.product(x, layout) for node in nodes]
    if any(each is None for each in added):
        return None
    total = _times(x, param.val(adapters=()), layout)
    for each in added:
        total = total + backend_holding(each).as_dtype_of(each, total)
    return total


def _times(x: Any, weight: Any, layout: Layout) -> Any:
    return x @ (weight.T if layout == "OI" else weight)


def _read(param: Any) -> Any:
    return param.val() if hasattr(param, "val") else param
