"""Tests that every backend passes, to derive one's own from; run by pytest.

A backend is tested by a class in a test file of one's own::

    from lazyparam.testing import BackendConformance

    class TestMine(BackendConformance):
        device = "mine:cpu"

Its tests are sentences; where they hold a row of the table in the guide, the docstring names it.
What is to be told of the backend, beside its device, are class attributes:
:class:`BackendConformance` lists them. Backends whose arrays record gradients derive from
:class:`GradientConformance`; those with two devices to test on, from
:class:`MultiDeviceConformance` (from both, if both is true).

Needs pytest and ml_dtypes. With ``pytest.register_assert_rewrite("lazyparam.testing")`` in a
``conftest.py``, asserts that fail say what they saw.
"""

from ._backend import BackendConformance
from ._devices import MultiDeviceConformance
from ._gradients import GradientConformance

__all__ = ["BackendConformance", "GradientConformance", "MultiDeviceConformance"]
