"""Native initialisers: small immutable values that say how a parameter is drawn.

They compare, hash, print and pickle. The elements are written by Rust, detached from the
interpreter, in the parameter's own dtype.

>>> from lazyparam import Param, init
>>> init.constant(0.5)
constant(0.5)
>>> Param((2, 2), init.eye()).value
array([[1., 0.],
       [0., 1.]], dtype=float32)
"""

from __future__ import annotations

from ._core import Init

__all__ = ["Init", "constant", "eye", "ones", "zeros"]


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
    return Init("constant", value)


def eye() -> Init:
    """Ones on the main diagonal, zeros elsewhere; for shapes (rows, columns), square or not.

    Raises:
        DeclarationError: when a parameter of another rank is declared with it.
    """
    return Init("eye")
