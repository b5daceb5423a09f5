"""The once-cell for everyone, its Python half: `lazy` attributes and `once` functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ._core import Lazy, LazyAttribute
from .errors import LazyTypeError

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class lazy(LazyAttribute[_T_co]):  # noqa: N801 - a decorator, like functools.cached_property
    """An attribute that the decorated method makes at its first read: once per instance.

    A thread-safe ``functools.cached_property``: any number of threads may read it at once, one of
    them runs the method, and what :class:`Lazy` promises about failures, cycles, signals and forks
    holds here too. The value is kept in the instance's ``__dict__`` under the attribute's name; in
    a class with ``__slots__``, in the slot ``_name``, which the class declares. In a ``__dict__``
    the attribute can be assigned and deleted like any other.

    An AttributeError of the method becomes a RuntimeError if the class has a ``__getattr__``, which
    would otherwise be asked for an attribute that is there.

    Args:
        function: the method, called with the instance.
        slot: see :meth:`in_slot`.

    Raises:
        LazyTypeError: if `function` is a coroutine function; at the first read, if the instance
            has neither a ``__dict__`` nor the slot.

    Example:
        >>> import lazyparam as lp
        >>> class Model:
        ...     @lp.lazy
        ...     def weights(self):
        ...         print("loading")
        ...         return [1, 2]
        >>> model = Model()
        >>> model.weights, model.weights
        loading
        ([1, 2], [1, 2])
    """

    def __init__(self, function: Callable[[Any], _T_co], /, *, slot: str | None = None) -> None:
        functools.update_wrapper(self, function)  # type: ignore[arg-type]
        self._slot = slot
        self._member: MemberDescriptorType | None = None

    if TYPE_CHECKING:
        __name__: str
        __wrapped__: Callable[[Any], _T_co]

        # There is none, so that the value in a ``__dict__`` is found first; assigning works.
        def __set__(self, instance: object, value: _T_co) -> None: ...  # type: ignore[misc]

    @staticmethod
    def in_slot(slot: str, /) -> Callable[[Callable[[Any], _T]], lazy[_T]]:
        """The decorator for an attribute that is read from `slot` directly, at a slot's speed.

        The class declares the slot, and the attribute becomes another name for it: it can be
        assigned and deleted, and read on the class it is the slot's descriptor. The class gets a
        ``__getattr__`` for the first read, which asks the one that the class or its bases have for
        what it does not know; a subclass with a ``__getattr__`` of its own has to call
        ``super().__getattr__``, and what overrides the attribute cannot read it by ``super()``:
        plain ``lazy`` can be overridden so. Where a class does not have the slot, it is used.

        Example:
            >>> import lazyparam as lp
            >>> class Model:
            ...     __slots__ = ("_weights",)
            ...     @lp.lazy.in_slot("_weights")
            ...     def weights(self):
            ...         return [1, 2]
            >>> Model().weights
            [1, 2]
        """
        if not isinstance(slot, str) or not slot.isidentifier():
            raise LazyTypeError(
                "in_slot takes the name of a slot",
                expected='@lazy.in_slot("_name")',
                found=repr(slot),
            )
        return functools.partial(lazy, slot=slot)

    def __set_name__(self, owner: type, name: str) -> None:
        """Called by Python for each class that declares the attribute in its body."""
        member = self._member = super().__set_name__(owner, name)
        if member is not None:
            self._refuse_shared(owner, name)
        elif self._slot is not None and owner.__dict__.get("__slots__"):
            raise LazyTypeError(
                f"{owner.__qualname__} has no slot for its {name}",
                expected=f"{self._slot} in its __slots__, or in those of a base class",
                found=str(owner.__dict__["__slots__"]),
            )
        # An abstract one stays what it is, so that the class is seen to be abstract.
        is_abstract = getattr(self, "__isabstractmethod__", False)
        if self._slot is not None and member is not None and not is_abstract:
            setattr(owner, name, member)
            _first_reads(owner)[name] = self

    def _refuse_shared(self, owner: type, name: str) -> None:
        for kind in owner.__mro__:
            placed = getattr(kind.__dict__.get("__getattr__"), "lazy_attributes", {})
            for other, attribute in [*vars(kind).items(), *placed.items()]:
                is_lazy = isinstance(attribute, lazy) and attribute is not self
                if is_lazy and other != name and attribute._member is self._member:
                    raise LazyTypeError(
                        "two lazy attributes cannot be kept in one slot",
                        expected=f"a slot for {name} alone",
                        found=f"{self._slot or f'_{name}'}, which is that of {other}",
                    )


def _first_reads(owner: type) -> dict[str, lazy[Any]]:
    """The attributes that `owner` reads from slots, by name; its `__getattr__` makes them."""
    own = owner.__dict__.get("__getattr__")
    if isinstance(known := getattr(own, "lazy_attributes", None), dict):
        return known
    attributes: dict[str, lazy[Any]] = {}

    def __getattr__(self: Any, name: str) -> Any:  # noqa: N807 - it becomes a method
        attribute = attributes.get(name)
        # What overrides it, and fails with an AttributeError, is none of ours.
        if attribute is not None and isinstance(getattr(type(self), name), MemberDescriptorType):
            return attribute._read(self)
        if own is not None:
            return own.__get__(self, type(self))(name)
        # Not the owner, where that has been made anew, as dataclasses with slots are.
        mro = type(self).__mro__
        here = next((kind for kind in mro if vars(kind).get("__getattr__") is __getattr__), owner)
        inherited = getattr(super(here, self), "__getattr__", None)
        if inherited is not None:
            return inherited(name)
        problem = f"{type(self).__name__!r} object has no attribute {name!r}"
        raise AttributeError(problem, name=name, obj=self)

    __getattr__.lazy_attributes = attributes  # type: ignore[attr-defined]
    owner.__getattr__ = __getattr__  # type: ignore[attr-defined]
    return attributes


class Once(Generic[_T]):
    """What :func:`once` makes of a function: called any number of times, run once.

    Pickled and copied like a function: by its name, and not at all.
    """

    def __init__(self, function: Callable[[], _T], /) -> None:
        functools.update_wrapper(self, function)
        # Partials and objects that can be called have no name of their own.
        self.__qualname__ = getattr(function, "__qualname__", type(function).__qualname__)
        # Last, because the function's attributes have come along, whatever they are called.
        self._cell = Lazy(function)

    def __call__(self) -> _T:
        """What the function returned; it runs now if it has not yet."""
        return self._cell.value

    @property
    def is_ready(self) -> bool:
        """Whether the function has returned."""
        return self._cell.is_ready

    def __repr__(self) -> str:
        return f"<once {self.__qualname__}: {self._cell!r}>"

    def __reduce__(self) -> str:
        return self.__qualname__

    if TYPE_CHECKING:
        __name__: str
        __qualname__: str
        __wrapped__: Callable[[], _T]


def once(function: Callable[[], _T], /) -> Once[_T]:
    """Decorate a function without parameters so that it runs once, whoever calls it.

    All calls return what that run returned. A run that raises is tried again by the next call; see
    :class:`Lazy` for threads, cycles, signals and forks. For methods there is :class:`lazy`.

    Raises:
        LazyTypeError: if `function` has parameters that need arguments, or is a coroutine
            function.

    Example:
        >>> import lazyparam as lp
        >>> @lp.once
        ... def settings():
        ...     print("reading")
        ...     return {"debug": True}
        >>> settings()["debug"], settings.is_ready
        reading
        (True, True)
    """
    needed = [
        name
        for name, parameter in _parameters(function).items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if needed:
        raise LazyTypeError(
            "a function that runs once has no arguments to tell its calls apart",
            expected="a function without parameters",
            found=f"{getattr(function, '__name__', type(function).__name__)}({', '.join(needed)})",
            remedy="Use @lazy for methods, functools.lru_cache for functions of something.",
        )
    return Once(function)


def _parameters(function: Callable[..., object]) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a builtin that does not tell, or no function at all
        return {}
