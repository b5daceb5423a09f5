"""Traversal of modules: visitors look, mappers change (Burn's ModuleVisitor and ModuleMapper)."""

from __future__ import annotations

from typing import Any

from ._core import Param
from ._tree import Watcher
from .flags import Flag

__all__ = ["ModuleMapper", "ModuleVisitor"]


class ModuleVisitor(Watcher):
    """Looks at every parameter. Override what interests you; by default nothing happens.

    Looking does not initialise: a visitor gets the parameter, not its value. Tied parameters are
    visited at each of their paths.
    """

    def visit(self, path: str, param: Param[Any]) -> None:
        """Called for each parameter; hands it to the method for its kind."""
        getattr(self, f"visit_{param.kind}")(path, param)

    def visit_float(self, path: str, param: Param[Any]) -> None:
        """A parameter of floats."""

    def visit_complex(self, path: str, param: Param[Any]) -> None:
        """A parameter of complex numbers."""

    def visit_int(self, path: str, param: Param[Any]) -> None:
        """A parameter of ints."""

    def visit_bool(self, path: str, param: Param[Any]) -> None:
        """A parameter of bools."""

    def visit_flag(self, path: str, flag: Flag) -> None:
        """A flag; :meth:`visit` is not asked, since a flag has no value."""


class ModuleMapper(Watcher):
    """Changes every parameter. Override what interests you; by default each stays as it is.

    Tied parameters are mapped once and stay tied.
    """

    def map(self, path: str, param: Param[Any]) -> Param[Any]:
        """Called for each parameter; hands it to the method for its kind."""
        mapped: Param[Any] = getattr(self, f"map_{param.kind}")(path, param)
        return mapped

    def map_float(self, path: str, param: Param[Any]) -> Param[Any]:
        """A parameter of floats."""
        return param

    def map_complex(self, path: str, param: Param[Any]) -> Param[Any]:
        """A parameter of complex numbers."""
        return param

    def map_int(self, path: str, param: Param[Any]) -> Param[Any]:
        """A parameter of ints."""
        return param

    def map_bool(self, path: str, param: Param[Any]) -> Param[Any]:
        """A parameter of bools."""
        return param

    def map_flag(self, path: str, flag: Flag) -> Flag:
        """A flag; :meth:`map` is not asked. The same one in two places is mapped once."""
        return flag
