"""Lazy, thread-safe, device-aware model parameters."""

from . import init
from ._core import Device, Lazy, OnceCell, Param, ParamMapper, Plan, __version__
from .cells import Once, lazy, once
from .devices import device
from .display import Summary, summary
from .drafts import Draft
from .errors import (
    AlreadySetError,
    AutodiffUnsupported,
    BackendMissing,
    DeclarationError,
    DeviceError,
    DeviceParseError,
    DeviceUnavailable,
    FormatError,
    InitError,
    InitInTransform,
    LazyCycleError,
    LazyParamError,
    LazyTypeError,
    MissingParams,
    ModuleError,
    PickleError,
    QuantizeError,
    RecordError,
    ShapeMismatch,
    UnexpectedKeys,
    UnsetError,
)
from .module import Module
from .plans import LoadPlan
from .visitors import ModuleMapper, ModuleVisitor

__all__ = [
    "AlreadySetError",
    "AutodiffUnsupported",
    "BackendMissing",
    "DeclarationError",
    "Device",
    "DeviceError",
    "DeviceParseError",
    "DeviceUnavailable",
    "Draft",
    "FormatError",
    "InitError",
    "InitInTransform",
    "Lazy",
    "LazyCycleError",
    "LazyParamError",
    "LazyTypeError",
    "LoadPlan",
    "MissingParams",
    "Module",
    "ModuleError",
    "ModuleMapper",
    "ModuleVisitor",
    "Once",
    "OnceCell",
    "Param",
    "ParamMapper",
    "PickleError",
    "Plan",
    "QuantizeError",
    "RecordError",
    "ShapeMismatch",
    "Summary",
    "UnexpectedKeys",
    "UnsetError",
    "__version__",
    "device",
    "init",
    "lazy",
    "once",
    "summary",
]
