"""Lazy, thread-safe, device-aware model parameters."""

from . import init
from ._core import Device, Param, ParamMapper, Plan, __version__
from .devices import device
from .display import Summary, summary
from .drafts import Draft
from .errors import (
    BackendMissing,
    DeclarationError,
    DeviceError,
    DeviceParseError,
    DeviceUnavailable,
    FormatError,
    InitError,
    LazyCycleError,
    LazyParamError,
    MissingParams,
    ModuleError,
    PickleError,
    RecordError,
    ShapeMismatch,
    UnexpectedKeys,
)
from .module import Module
from .plans import LoadPlan
from .visitors import ModuleMapper, ModuleVisitor

__all__ = [
    "BackendMissing",
    "DeclarationError",
    "Device",
    "DeviceError",
    "DeviceParseError",
    "DeviceUnavailable",
    "Draft",
    "FormatError",
    "InitError",
    "LazyCycleError",
    "LazyParamError",
    "LoadPlan",
    "MissingParams",
    "Module",
    "ModuleError",
    "ModuleMapper",
    "ModuleVisitor",
    "Param",
    "ParamMapper",
    "PickleError",
    "Plan",
    "RecordError",
    "ShapeMismatch",
    "Summary",
    "UnexpectedKeys",
    "__version__",
    "device",
    "init",
    "summary",
]
