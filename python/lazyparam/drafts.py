"""Changing a value: a draft is a writable copy, and becomes a new parameter."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from ._core import Param
from .devices import backend_of
from .errors import InitError, LazyParamError

__all__ = ["Draft"]


class Draft:
    """A writable copy of a parameter's value; made by ``Param.writable``.

    Attributes:
        array: the copy; change it as you like while the ``with`` block lasts.

    >>> import lazyparam as lp
    >>> p = lp.Param(3, lp.init.zeros())
    >>> with p.writable() as draft:
    ...     draft.array[0] = 1
    >>> draft.param.value
    array([1., 0., 0.], dtype=float32)
    >>> p.value
    array([0., 0., 0.], dtype=float32)
    """

    def __init__(self, param: Param[Any]) -> None:
        self._source = param
        self._param: Param[Any] | None = None
        self.array: Any = None

    def __enter__(self) -> Self:
        self.array = backend_of(self._source.device).copy(self._source.base())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        array, self.array = self.array, None
        if kind is None:
            # Copied once more: whoever kept the array may go on writing to it.
            identity, _, mapper = self._source.consume()
            made = Param.from_mapped_value(identity, array, mapper)
            source = self._source
            if (made.shape, made.dtype) != (source.shape, source.dtype):
                raise InitError(
                    "a draft keeps the shape and the dtype of its parameter",
                    path=source.path,
                    expected=f"{source.dtype} of shape {source.shape}",
                    found=f"{made.dtype} of shape {made.shape}",
                    remedy="Param.map(f, shape=..., dtype=...) changes them.",
                )
            self._param = made

    @property
    def param(self) -> Param[Any]:
        """The parameter with the changed value: same identity, intent and mappers.

        Raises:
            LazyParamError: before the ``with`` block has ended well.
        """
        if self._param is None:
            raise LazyParamError(
                "this draft has not become a parameter",
                path=self._source.path,
                remedy="Read draft.param after the with block, and leave the block without error.",
            )
        return self._param
