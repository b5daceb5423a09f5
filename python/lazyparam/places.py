"""``Place``: where a module has a parameter, and something else is there, or nothing.

JAX takes a module apart and puts another together around tracers, shapes, shardings, markers of its
own, or None. Where it brings an array, that becomes a parameter; where not, a place is left.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ._core import Device, Param, dtype_size
from .errors import ModuleError

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Content", "Place"]


class Content:
    """What is in a place; tied places have one content.

    Attributes:
        value: a tracer, a shape, or whatever else stands for an array; None is nothing.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any = None) -> None:
        self.value = value


class Place:
    """Stands in a module for a parameter that is not there, or not an array just now.

    It reads as the parameter does, so ``x @ self.weight.value`` is the same code in a function
    that JAX traces: there ``value`` is a tracer. In one part of a module (``Module.partition``) the
    parameters of the other part are empty places.

    Args:
        handle: the parameter's own word on identity, wish and mappers; has no value.
        content: shared by the places that are tied.
        is_stopped: whether gradients stop here: the parameter is frozen, but tied to a trained one.
    """

    __slots__ = ("_content", "_handle", "_is_stopped")

    def __init__(self, handle: Param[Any], content: Content, is_stopped: bool = False) -> None:
        self._handle = handle
        self._content = content
        self._is_stopped = is_stopped

    # Reading.

    def val(self, timeout: float | None = None) -> Any:
        """What is here: a tracer in a trace.

        Raises:
            ModuleError: if nothing is.
        """
        value = self._content.value
        if value is None:
            raise ModuleError(
                "nothing is here: the parameter is in another part of the module",
                path=self.path,
                expected=f"a value of {self._handle.dtype}{list(self._handle.shape)}",
                remedy="lazyparam.combine(trainable, frozen) puts the parts together.",
            )
        if self._is_stopped:
            import jax

            return jax.lax.stop_gradient(value)
        return value

    def base(self, timeout: float | None = None) -> Any:
        """As :meth:`val`."""
        return self.val(timeout)

    def into_value(self) -> Any:
        """As :meth:`val`."""
        return self.val()

    @property
    def value(self) -> Any:
        """As :meth:`val`."""
        return self.val()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        import numpy as np

        return np.array(self.val(), dtype, copy=copy)

    # What is free to ask: of what is here, or else of the parameter.

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, in elements: of what is here if it has some."""
        return tuple(getattr(self._content.value, "shape", self._handle.shape))

    @property
    def dtype(self) -> str:
        """Name of the element type: of what is here if it has one."""
        held = getattr(self._content.value, "dtype", self._handle.dtype)
        return str(getattr(held, "name", held))

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that such an array takes in memory."""
        return self.size * dtype_size(self.dtype)

    @property
    def kind(self) -> str:
        """What the parameter's elements are: ``"float"``, ``"int"``, ``"bool"``, ``"complex"``."""
        return self._handle.kind

    @property
    def device(self) -> Device:
        """Where the parameter is, or will be."""
        return self._handle.device

    @property
    def id(self) -> int:
        """Identity of the parameter."""
        return self._handle.id

    @property
    def requires_grad(self) -> bool:
        """The wish to train it."""
        return self._handle.requires_grad

    @property
    def is_active(self) -> bool:
        """The wish, for elements that can train."""
        return self._handle.is_active

    @property
    def path(self) -> str | None:
        """The dotted path of the parameter, or None."""
        return self._handle.path

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape of the parameter in files."""
        return self._handle.stored_shape

    @property
    def is_initialized(self) -> bool:
        """Whether something is here."""
        return self._content.value is not None

    @property
    def state(self) -> str:
        """What is here: ``"empty"``, or the name of its type."""
        value = self._content.value
        return "empty" if value is None else type(value).__name__

    def is_tied_to(self, other: Param[Any] | Place) -> bool:
        """Whether `other` has the same content."""
        return isinstance(other, Place) and self._content is other._content

    def __repr__(self) -> str:
        path = f"{self.path}: " if self.path else ""
        extents = ", ".join(map(str, self.shape))
        return f"Place({path}{self.dtype}[{extents}], {self.device}, {self.state})"

    # For the package itself.

    @property
    def _tie(self) -> int:
        return id(self._content)

    @property
    def _traits(self) -> tuple[Any, ...]:
        return self._handle._traits
