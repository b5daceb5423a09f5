"""All that holds of every backend, in one class."""

from __future__ import annotations

from typing import ClassVar

import pytest

import lazyparam as lp

from ._arrays import ArrayRows
from ._params import ParamRows


class BackendConformance(ArrayRows, ParamRows):
    """Derive a class from this, set `device`, and let pytest find it.

    Attributes:
        device: the name of a device of the backend.
        lacks: names of the dtypes that its library has not. That they are refused is tested.
        ambients: contexts that users of the library may be in when a parameter is first read, as
            functions that make one: ``torch.no_grad``, say. Values are to be the same in each.
    """

    tests_gradients: ClassVar[bool] = False

    def test_gradients_are_asked_of_libraries_that_record_them(self) -> None:
        """None are there yet; where none are recorded, that is an error with a remedy."""
        p = self.ready()
        if self.backend.records_gradients:
            assert p.grad() is None
        else:
            with pytest.raises(lp.AutodiffUnsupported):
                p.grad()

    def test_a_backend_that_records_gradients_is_tested_as_one(self) -> None:
        """By a class derived from GradientConformance, and no other is."""
        assert self.tests_gradients is self.backend.records_gradients
