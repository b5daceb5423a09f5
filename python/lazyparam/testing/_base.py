"""What the conformance tests are told of a backend, and how they use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import numpy as np
import pytest

import lazyparam as lp

from ..backends import Backend
from ..devices import backend_of
from ._tools import DTYPES, LAYOUTS, UNSTORABLE, Host, bits

KINDS = ("float32", "int32", "bool")


class Conformance:
    """A backend under test.

    Attributes:
        device: the name of a device of the backend.
        lacks: names of the dtypes that its library has not. That they are refused is tested.
        ambients: contexts that users of the library may be in when a parameter is first read, as
            functions that make one: ``torch.no_grad``, say. Values are to be the same in each.
    """

    device: ClassVar[str]
    lacks: ClassVar[frozenset[str]] = frozenset()
    ambients: ClassVar[Sequence[Callable[[], AbstractContextManager[Any]]]] = ()

    def overwrite(self, x: Any) -> None:
        """Write zeros to all of an array of the library."""
        x[...] = 0

    # ---- for the tests ----

    def spoil(self, x: Any) -> None:
        """Overwrite `x`. Only an array that nobody can write to may refuse."""
        try:
            self.overwrite(x)
        except (TypeError, ValueError, AttributeError):
            if self.backend.is_mutable:
                raise

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run each test for every dtype, kind, layout or ambient that it takes as an argument."""
        has = [dtype for dtype in DTYPES if dtype not in self.lacks]
        choices: dict[str, list[Any]] = {
            "dtype": has,
            "storable": [dtype for dtype in has if dtype not in UNSTORABLE],
            "kind": [dtype for dtype in KINDS if dtype not in self.lacks],
            "layout": list(LAYOUTS),
            "ambient": [nullcontext, *self.ambients],
        }
        for name, values in choices.items():
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, values)

    @property
    def place(self) -> lp.Device:
        """The device, out of any autodiff context."""
        return lp.device(self.device)

    @property
    def backend(self) -> Backend:
        return backend_of(self.place)

    def array(self, host: Host, device: lp.Device | None = None) -> Any:
        """An array of the library with the elements of `host`."""
        return self.backend.from_host(host, device or self.place, False)

    def host(self, x: Any) -> Host:
        """The elements of an array of the library, or of a parameter on any device."""
        if isinstance(x, lp.Param):
            found: Host = np.asarray(x)
            return found
        host: Host = self.backend.to_host(x)
        return host

    def bits(self, x: Any) -> tuple[str, tuple[int, ...], bytes]:
        """All there is to know of the elements of an array or parameter."""
        return bits(self.host(x))

    def ones(self, plan: lp.Plan) -> Any:
        return self.array(np.ones(plan.shape, plan.dtype), plan.device)

    def lazy(self, init: Any = None, **options: Any) -> lp.Param[Any]:
        """A lazy parameter of ones on the device."""
        return lp.Param(
            (2, 3), init or self.ones, device=options.pop("device", self.place), **options
        )

    def ready(self, dtype: str = "float32") -> lp.Param[Any]:
        """A ready parameter of ones on the device."""
        return lp.Param.from_tensor(self.array(np.ones((2, 3), dtype)))

    def mapping(self, function: Callable[[Host], Host]) -> Callable[[Any], Any]:
        """A mapper of arrays of the library that does with them what `function` does on the host.

        So the tests need no operators of the library.
        """
        return lambda x: self.array(function(self.host(x)), self.backend.device_of(x))
