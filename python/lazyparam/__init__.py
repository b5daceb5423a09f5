"""Lazy, thread-safe, device-aware model parameters."""

from . import init
from ._core import Device, Lazy, OnceCell, Param, ParamMapper, Plan, __version__
from .buffers import Buffer
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
    RecordError,
    ShapeMismatch,
    UnexpectedKeys,
    UnsetError,
)
from .grads import Grads, gradients
from .module import Module
from .places import Place
from .plans import LoadPlan
from .pytrees import combine
from .records import ModuleRecord
from .reparam import AdaptedParam, Reparameterization, activate, active_adapters
from .visitors import ModuleMapper, ModuleVisitor

__all__ = [
    "AdaptedParam",
    "AlreadySetError",
    "AutodiffUnsupported",
    "BackendMissing",
    "Buffer",
    "DeclarationError",
    "Device",
    "DeviceError",
    "DeviceParseError",
    "DeviceUnavailable",
    "Draft",
    "FormatError",
    "Grads",
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
    "ModuleRecord",
    "ModuleVisitor",
    "Once",
    "OnceCell",
    "Param",
    "ParamMapper",
    "PickleError",
    "Place",
    "Plan",
    "RecordError",
    "Reparameterization",
    "ShapeMismatch",
    "Summary",
    "UnexpectedKeys",
    "UnsetError",
    "__version__",
    "activate",
    "active_adapters",
    "combine",
    "device",
    "gradients",
    "init",
    "lazy",
    "once",
    "summary",
]
