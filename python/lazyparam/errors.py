"""Every error of lazyparam: one base class, each with path, expected, found and remedy.

They pickle, so they cross process borders whole. Errors that are also something every Python
programmer knows (a ``ValueError``, a ``RuntimeError``) derive from that too.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any


class LazyParamError(Exception):
    """Base class of all errors of lazyparam.

    Attributes:
        problem: what is wrong, in a sentence.
        path: the dotted path of the parameter, the path of the file, or None.
        expected: what should have been there, or None.
        found: what was there instead, or None.
        remedy: what to do about it, or None.
    """

    def __init__(
        self,
        problem: str,
        *,
        path: str | None = None,
        expected: object = None,
        found: object = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path
        self.expected = expected
        self.found = found
        self.remedy = remedy

    def __str__(self) -> str:
        parts = [f"{self.path}: {self.problem}" if self.path else self.problem]
        if self.expected is not None:
            parts.append(f"expected {self.expected}")
        if self.found is not None:
            parts.append(f"found {self.found}")
        text = "; ".join(parts)
        return f"{text}. {self.remedy}" if self.remedy else text

    def __reduce__(self) -> tuple[Any, ...]:
        # An ImportError keeps its path elsewhere than other errors.
        fields = {**self.__dict__, "path": self.path}
        return (_rebuild, (type(self), self.problem, fields))


def _rebuild(kind: type[LazyParamError], problem: str, fields: dict[str, Any]) -> LazyParamError:
    error = kind.__new__(kind, problem)
    for name, value in fields.items():
        setattr(error, name, value)
    return error


class DeclarationError(LazyParamError, ValueError):
    """A parameter cannot be declared like this: its shape, dtype or initialiser makes no sense."""


class LazyCycleError(LazyParamError, RuntimeError):
    """An initialiser needs, directly or through others, the very value it is making.

    Attributes:
        cells: names of the values, in the order in which they need each other.
    """

    def __init__(self, problem: str, *, cells: Sequence[str] = (), **context: Any) -> None:
        super().__init__(problem, **context)
        self.cells = tuple(cells)


class LazyTypeError(LazyParamError, TypeError):
    """No function to make a value with: a coroutine function, or a method without room for it."""


class UnsetError(LazyParamError, LookupError):
    """A :class:`OnceCell` has no value yet."""


class AlreadySetError(LazyParamError, RuntimeError):
    """A :class:`OnceCell` has a value already."""


class InitError(LazyParamError):
    """An initialiser or a mapper gave something else than was declared."""


class PickleError(LazyParamError, pickle.PicklingError):
    """A recipe or a predicate cannot be stored (a lambda or a local function, say)."""


class ModuleError(LazyParamError, ValueError):
    """A tree of modules cannot be walked: it contains itself, or two leaves share a path."""


class GroupError(LazyParamError, ValueError):
    """A group of parameters makes no sense, or selects nothing where something was meant."""


class DeviceError(LazyParamError):
    """Something is wrong with a device."""


class DeviceParseError(DeviceError, ValueError):
    """A text does not name a device."""


class BackendMissing(DeviceError, ImportError):
    """The library behind a device is not installed, or lazyparam has no backend of that name."""


class DeviceUnavailable(DeviceError, RuntimeError):
    """The library is there, the device is not."""


class AutodiffUnsupported(DeviceError, TypeError):
    """The library of a device does not record gradients."""


class InitInTransform(DeviceError, RuntimeError):
    """A value would come into being where that cannot be done: while a graph is captured, say."""


class QuantizeError(LazyParamError, ValueError):
    """An array cannot be quantised like this: elements, shape or scheme make no sense."""


class RecordError(LazyParamError):
    """Something is wrong with stored parameters, or they do not fit the module.

    Attributes:
        problems: every problem found, one sentence each.
    """

    def __init__(self, problem: str, *, problems: Sequence[str] = (), **context: Any) -> None:
        super().__init__(problem, **context)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n  - ".join([super().__str__(), *self.problems])


class FormatError(RecordError):
    """A file is not a well-formed checkpoint, or changed since it was opened."""


class ShapeMismatch(RecordError):
    """Stored tensors have other shapes or kinds than the parameters they are for."""


class MissingParams(RecordError):
    """Parameters of the module have no tensor in the record."""


class UnexpectedKeys(RecordError):
    """The record has tensors for which the module has no parameter."""


def locate(error: BaseException, label: str, path: str | None) -> None:
    """Say in `error` which parameter it is about. Keeps its type, and says it only once."""
    if isinstance(error, LazyParamError) and path is not None:
        if error.path is None:
            error.path = path
        return
    note = f"while initialising {label}"
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)
