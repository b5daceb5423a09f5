"""Lazy, thread-safe, device-aware model parameters."""

from . import init
from ._core import Device, Lazy, OnceCell, Param, ParamMapper, Plan, __version__
from .adapter_files import load_adapter, save_adapter
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
from .factored import linear
from .grads import Grads, gradients
from .lora import DoraAdapter, LoraAdapter, apply_lora
from .merging import MergedParam, merge, merge_errors, unmerge
from .module import Module
from .norms import WeightNorm
from .places import Place
from .plans import LoadPlan
from .pytrees import combine
from .reparam import (
    AdaptedParam,
    Reparameterization,
    activate,
    active_adapters,
    without_adapters,
)
from .visitors import ModuleMapper, ModuleVisitor

__all__ = [
    "AdaptedParam",
    "AlreadySetError",
    "AutodiffUnsupported",
    "BackendMissing",
    "DeclarationError",
    "Device",
    "DeviceError",
    "DeviceParseError",
    "DeviceUnavailable",
    "DoraAdapter",
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
    "LoraAdapter",
    "MergedParam",
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
    "Place",
    "Plan",
    "RecordError",
    "Reparameterization",
    "ShapeMismatch",
    "Summary",
    "UnexpectedKeys",
    "UnsetError",
    "WeightNorm",
    "__version__",
    "activate",
    "active_adapters",
    "apply_lora",
    "combine",
    "device",
    "gradients",
    "init",
    "lazy",
    "linear",
    "load_adapter",
    "merge",
    "merge_errors",
    "once",
    "save_adapter",
    "summary",
    "unmerge",
    "without_adapters",
]
