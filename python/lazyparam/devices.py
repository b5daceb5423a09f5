"""Devices, and the backends that serve them.

A :class:`Device` is a plain value: it is parsed from text without importing a library or
touching a driver. The library is imported when a value is first made on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from ._core import Device
from .errors import BackendMissing, DeviceParseError, InitError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from .backends import Backend

__all__ = ["Device", "backend_holding", "backend_of", "device", "device_named_by", "when_loaded"]

GROUP = "lazyparam.backends"
"""The entry points of backends that other packages bring."""


class _Known(NamedTuple):
    """A backend of ours, as far as it can be told without importing its library."""

    module: str
    distribution: str
    """What to install."""
    packages: frozenset[str]
    """As :attr:`Backend.packages`."""


_KNOWN = {
    "numpy": _Known("lazyparam.backends._numpy", "numpy", frozenset({"numpy", "ml_dtypes"})),
    "torch": _Known("lazyparam.backends._torch", "torch", frozenset({"torch"})),
    "jax": _Known("lazyparam.backends._jax", "jax", frozenset({"jax", "jaxlib"})),
    "cupy": _Known("lazyparam.backends._cupy", "cupy-cuda12x", frozenset({"cupy"})),
}


def device(spec: str | Device | object) -> Device:
    """The device that `spec` names.

    The grammar is ``[backend ":"] kind [":" index]``. Bare kinds have one documented meaning:
    ``"cpu"`` is ``"numpy:cpu"``, ``"cuda"`` is ``"cupy:cuda:0"``. Device objects of the libraries
    (``torch.device("cuda:1")``, ``jax.devices()[0]``, ``cupy.cuda.Device(0)``) are understood too.

    Raises:
        DeviceParseError: if it names no device.

    >>> device("cpu")
    Device('numpy:cpu')
    >>> str(device("torch:cuda:1"))
    'torch:cuda:1'
    """
    return Device(spec)


@cache
def _brought() -> dict[str, EntryPoint]:
    """The entry points of other packages, by the name of the backend."""
    from importlib.metadata import entry_points  # not cheap, and rarely needed

    return {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in _KNOWN}


_awaited: dict[str, list[Callable[[], object]]] = {}


def when_loaded(name: str, act: Callable[[], object]) -> None:
    """Call `act` as soon as the backend called `name` has imported its library."""
    _awaited.setdefault(name, []).append(act)


@cache
def _loaded(name: str) -> Backend:
    """The backend called `name`; imports its library at the first call."""
    backend = _load(name)
    for act in _awaited.get(name, ()):
        act()
    return backend


def _load(name: str) -> Backend:
    if known := _KNOWN.get(name):
        try:
            backend: Backend = import_module(known.module).BACKEND
        except ImportError as error:
            raise BackendMissing(
                f"{name} cannot be imported ({_brief(error)})",
                remedy=f"pip install {known.distribution}",
            ) from error
        return backend
    try:
        entry = _brought()[name]
    except KeyError:
        raise BackendMissing(
            f"there is no backend {name!r}",
            expected=f"one of {', '.join(sorted([*_KNOWN, *_brought()]))}",
            remedy=f"Install the package that brings it (an entry point in {GROUP!r}).",
        ) from None
    try:
        brought: Any = entry.load()
    except ImportError as error:
        raise BackendMissing(
            f"the backend {name!r} cannot be imported ({_brief(error)})",
            remedy=f"It comes from {entry.value}.",
        ) from error
    made: Backend = brought() if isinstance(brought, type) else brought
    return made


def backend_of(device: Device) -> Backend:
    """The backend that serves `device`; imports its library at the first call.

    Raises:
        BackendMissing: if there is no such backend or its library is not installed.
    """
    try:
        return _loaded(device.backend)
    except BackendMissing as error:
        error.found = str(device)
        raise


def _brief(error: ImportError) -> str:
    return f"{error}".partition("\n")[0] or type(error).__name__


def _of_package_of(kind: type) -> Iterator[Backend]:
    """The backends to whose library a type may belong, the library being imported already."""
    roots = {base.__module__.partition(".")[0] for base in kind.__mro__}
    for name, known in _KNOWN.items():
        if roots & known.packages:
            yield _loaded(name)
    for name in _brought():
        backend = _loaded(name)
        if roots & backend.packages:
            yield backend


def backend_holding(x: object) -> Backend:
    """The backend whose array `x` is.

    Raises:
        InitError: if it is no array of any library known.
    """
    for backend in _of_package_of(type(x)):
        if backend.owns(x):
            return backend
    raise InitError(
        "this is not an array of a library that lazyparam knows",
        expected=f"an array of one of {', '.join(sorted([*_KNOWN, *_brought()]))}",
        found=type(x).__qualname__,
        remedy="Param.from_data(x) takes numbers and nested lists.",
    )


def device_named_by(spec: object) -> str:
    """The name of the device that an object of some library stands for.

    Raises:
        DeviceParseError: if it is no such object.
    """
    for backend in _of_package_of(type(spec)):
        if (name := backend.parse(spec)) is not None:
            return name
    raise DeviceParseError(
        "this does not name a device",
        expected='a text such as "cpu", "cuda:1" or "torch:cpu", a Device, or one of a library',
        found=f"{type(spec).__name__} {spec!r:.60}",
    )
