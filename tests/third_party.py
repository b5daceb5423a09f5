"""A backend that lazyparam does not know, as small as one can be: the example of the guide."""

from __future__ import annotations

from typing import Any

import numpy as np

import lazyparam as lp
from lazyparam.backends import Backend
from lazyparam.devices import backend_of


class Grid:
    """An array of a small library: it has a shape and elements, and `set`."""

    def __init__(self, elements: np.ndarray) -> None:
        self.elements = elements

    def set(self, value: float) -> None:
        self.elements[...] = value


class GridBackend(Backend):
    """Devices ``grid:cpu``."""

    name = "grid"
    array_type = "a Grid"
    packages = frozenset({"tests"})
    is_mutable = True

    def owns(self, x: object) -> bool:
        return isinstance(x, Grid)

    def meta(self, x: Grid) -> tuple[tuple[int, ...], str]:
        return x.elements.shape, x.elements.dtype.name

    def device_of(self, x: Grid) -> lp.Device:
        return lp.device("grid:cpu")

    def probe(self, device: lp.Device) -> None:
        if device != lp.device("grid:cpu"):
            raise lp.DeviceUnavailable("there is one device of grids", found=str(device))

    def publish(self, x: Grid, device: lp.Device, sole: bool, ours: bool) -> Grid:
        # What somebody has kept, he may write to.
        return x if sole and ours else self.copy(x)

    def from_host(self, array: Any, device: lp.Device, sole: bool) -> Grid:
        if array.dtype.kind == "c":
            raise lp.DeviceError("grids have no complex numbers", found=array.dtype.name)
        native = array.astype(array.dtype.newbyteorder("="), copy=False)
        return Grid(native if sole else np.array(native))

    def to_host(self, x: Grid) -> np.ndarray:
        return x.elements

    def to_device(self, x: Grid, device: lp.Device) -> Grid:
        return self.copy(x)

    def cast(self, x: Grid, dtype: str) -> Grid:
        # NumPy's way, with its checks of kinds and of ints that do not fit.
        return Grid(backend_of(lp.device("cpu")).cast(x.elements, dtype))

    def copy(self, x: Grid) -> Grid:
        return Grid(x.elements.copy())
