"""Native initialisers: small immutable values that say how a parameter is drawn.

They compare, hash, print and pickle. The elements are written by Rust, detached from the
interpreter, in the parameter's own dtype, by as many threads as there are processors; the bits do
not depend on how many, nor on the order of initialisation, nor on the machine. Which values a
parameter gets is decided by its :class:`Key`: a random one for each declaration, or a seed and the
parameter's path once the module has been seeded (``Module.seed``).

Scales that follow from *fans* (numbers of inputs and outputs) need to know which axis is which: the
`layout`, one letter for each axis: ``O`` outputs, ``I`` inputs, ``E`` independent weights stacked
together (experts), any other letter a place of the kernel. Two axes are ``"OI"`` unless told
otherwise; with more, there is no guess. `groups` is that of a grouped convolution,
``compat="torch"`` counts as PyTorch does, and `fan` gives the number outright.

>>> from lazyparam import Param, init
>>> init.constant(0.5)
constant(0.5)
>>> Param((2, 2), init.eye()).value
array([[1., 0.],
       [0., 1.]], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from ._core import Init, Key, fill_box, gain_of
from .errors import DeclarationError

__all__ = [
    "Init",
    "Key",
    "constant",
    "dirac",
    "eye",
    "fill",
    "kaiming_normal",
    "kaiming_uniform",
    "lecun_normal",
    "lecun_uniform",
    "normal",
    "ones",
    "orthogonal",
    "sparse",
    "trunc_normal",
    "uniform",
    "variance_scaling",
    "xavier_normal",
    "xavier_uniform",
    "zeros",
]

Mode: TypeAlias = Literal["fan_in", "fan_out", "fan_avg", "fan_geo_avg"]
Compat: TypeAlias = Literal["torch"]


def zeros() -> Init:
    """Zeros everywhere."""
    return Init("zeros")


def ones() -> Init:
    """Ones everywhere."""
    return Init("ones")


def constant(value: complex) -> Init:
    """`value` everywhere.

    Raises:
        DeclarationError: if it is not a number; or, when a parameter is declared with it, if the
            parameter's dtype cannot hold it.
    """
    return Init("constant", value=value)


def eye() -> Init:
    """Ones on the main diagonal, zeros elsewhere; for shapes (rows, columns), square or not.

    Raises:
        DeclarationError: when a parameter of another rank is declared with it.
    """
    return Init("eye")


def dirac(*, layout: str | None = None, groups: int = 1) -> Init:
    """A convolution that passes its inputs through: PyTorch's ``dirac_``.

    One at the centre of the kernel where input and output feature agree, within each group.
    """
    return Init("dirac", layout=layout, groups=groups)


def uniform(low: float = 0.0, high: float = 1.0) -> Init:
    """Uniform on [low, high); `high` itself never occurs, in any dtype.

    In float16 and bfloat16, `low` is the nearest number that the dtype has, which may be below.

    Raises:
        DeclarationError: unless both are finite and low < high.
    """
    return Init("uniform", low=low, high=high)


def normal(mean: float = 0.0, std: float = 1.0) -> Init:
    """Normal with this mean and standard deviation (Box and Muller 1958).

    Values are within 6.5556 standard deviations of the mean.

    Raises:
        DeclarationError: unless both are finite and std > 0; when a float16 parameter is
            declared with it, if its values could overflow.
    """
    return Init("normal", mean=mean, std=std)


def trunc_normal(mean: float = 0.0, std: float = 1.0, low: float = -2.0, high: float = 2.0) -> Init:
    """Normal, conditioned on [low, high], by its inverse distribution function.

    The bounds are in the units of the values, not of `std`, and may be infinite; `mean` and `std`
    are those before the cut.

    Raises:
        DeclarationError: unless mean and std are finite, std > 0 and low < high.
    """
    return Init("trunc_normal", mean=mean, std=std, low=low, high=high)


def kaiming_uniform(
    mode: Mode = "fan_in",
    nonlinearity: str = "relu",
    a: float | None = None,
    *,
    gain: float | None = None,
    layout: str | None = None,
    groups: int = 1,
    compat: Compat | None = None,
    fan: int | None = None,
) -> Init:
    """Uniform on ±gain · √(3 / fan) (He et al. 2015).

    Args:
        mode: which fan.
        nonlinearity: what follows the layer; gives the gain, as in PyTorch.
        a: slope for negative inputs, of ``"leaky_relu"`` and nothing else.
        gain: the gain itself, whatever the nonlinearity.
        layout: which axis is which, one letter for each.
        groups: groups of a convolution.
        compat: ``"torch"`` counts fans as PyTorch does.
        fan: the fan itself, instead of a count.

    Raises:
        DeclarationError: if there is an `a` without ``"leaky_relu"``, which is PyTorch's default
            and not the one here.
    """
    return Init(
        "kaiming_uniform",
        gain=_gain(nonlinearity, a, gain),
        mode=mode,
        layout=layout,
        groups=groups,
        compat=compat,
        fan=fan,
    )


def _gain(nonlinearity: str, a: float | None, gain: float | None) -> float:
    if gain is None:
        return gain_of(nonlinearity, a)
    if a is not None:
        raise DeclarationError(
            "a slope makes a gain, and one is given already",
            expected="a or gain",
            found="both",
            remedy="Leave one of them out.",
        )
    return gain


def kaiming_normal(
    mode: Mode = "fan_in",
    nonlinearity: str = "relu",
    a: float | None = None,
    *,
    gain: float | None = None,
    layout: str | None = None,
    groups: int = 1,
    compat: Compat | None = None,
    fan: int | None = None,
) -> Init:
    """Normal with standard deviation gain / √fan (He et al. 2015). See `kaiming_uniform`."""
    return Init(
        "kaiming_normal",
        gain=_gain(nonlinearity, a, gain),
        mode=mode,
        layout=layout,
        groups=groups,
        compat=compat,
        fan=fan,
    )


def xavier_uniform(
    gain: float = 1.0,
    *,
    layout: str | None = None,
    groups: int = 1,
    compat: Compat | None = None,
    fan: int | None = None,
) -> Init:
    """Uniform on ±gain · √(6 / (fan_in + fan_out)) (Glorot and Bengio 2010)."""
    return Init("xavier_uniform", gain=gain, layout=layout, groups=groups, compat=compat, fan=fan)


def xavier_normal(
    gain: float = 1.0,
    *,
    layout: str | None = None,
    groups: int = 1,
    compat: Compat | None = None,
    fan: int | None = None,
) -> Init:
    """Normal with standard deviation gain · √(2 / (fan_in + fan_out)) (Glorot and Bengio 2010)."""
    return Init("xavier_normal", gain=gain, layout=layout, groups=groups, compat=compat, fan=fan)


def lecun_uniform(
    *,
    layout: str | None = None,
    groups: int = 1,
    compat: Compat | None = None,
    fan: int | None = None,
) -> Init:
    """Uniform on ±√(3 / fan_in) (LeCun et al. 1998)."""
    return Init("lecun_uniform", layout=layout, groups=groups, compat=compat, fan=fan)


def lecun_normal(
    *,
    layout: str | None = None,
    groups: int = 1,
    compat: Compat | None = None,
    fan: int | None = None,
) -> Init:
    """Normal with variance 1 / fan_in, cut at two standard deviations, as in JAX and Keras."""
    return Init("lecun_normal", layout=layout, groups=groups, compat=compat, fan=fan)


def variance_scaling(
    scale: float = 1.0,
    mode: Mode = "fan_in",
    distribution: Literal["uniform", "normal", "truncated_normal"] = "truncated_normal",
    *,
    layout: str | None = None,
    groups: int = 1,
    compat: Compat | None = None,
    fan: int | None = None,
) -> Init:
    """Variance scale / fan: JAX's and Keras's ``variance_scaling``."""
    return Init(
        "variance_scaling",
        scale=scale,
        mode=mode,
        distribution=distribution,
        layout=layout,
        groups=groups,
        compat=compat,
        fan=fan,
    )


def orthogonal(gain: float = 1.0, *, layout: str | None = None) -> Init:
    """Orthonormal rows or columns, whichever there are fewer of, times `gain` (Stewart 1980).

    Uniform among all of them (Haar). The same bits for any number of threads; between instruction
    sets equal to about 2e-6. A box of it computes the whole.
    """
    return Init("orthogonal", gain=gain, layout=layout)


def sparse(sparsity: float, std: float = 0.01) -> Init:
    """In each column exactly ⌈sparsity · rows⌉ zeros, the others normal (Martens 2010)."""
    return Init("sparse", sparsity=sparsity, std=std)


def fill(
    init: Init,
    key: Key,
    shape: int | Sequence[int],
    dtype: Any = "float32",
    box: slice | Sequence[slice] | None = None,
    *,
    batch_axes: Sequence[int] = (),
    threads: int | None = None,
) -> np.ndarray[Any, Any]:
    """The values of a box of a parameter: the same bits as that slice of the whole.

    A pure function: no parameter is needed, so each process of many can make its own shard.

    Args:
        init: what to draw.
        key: which draw it is.
        shape: extents of the whole parameter, in elements.
        dtype: element type.
        box: a slice for each axis, such as ``numpy.s_[0:31, :]``; None is all of it.
        batch_axes: axes along which independent parameters are stacked: the slice at coordinates
            b along them is the parameter whose key is this one's with b added to its path.
        threads: how many threads may work; None is one for each processor.

    Returns:
        A read-only array of the shape of the box.

    Raises:
        DeclarationError: if the initialiser does not fit shape and dtype, or the box the shape; if
            anything is not of the kind that it should be.

    >>> import numpy as np
    >>> key = Key(42, "layers", 3, "weight")
    >>> whole = fill(normal(), key, (4, 6))
    >>> part = fill(normal(), key, (4, 6), box=np.s_[1:3, 2:])
    >>> bool((part == whole[1:3, 2:]).all())
    True
    """
    array: np.ndarray[Any, Any] = fill_box(init, key, shape, dtype, box, batch_axes, threads)
    return array
