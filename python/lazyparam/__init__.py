"""Lazy, thread-safe, device-aware model parameters."""

from . import init
from ._core import Device, Lazy, OnceCell, Param, ParamMapper, Plan, __version__
from .adapter_files import load_adapter, save_adapter
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
    GroupError,
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
from .factored import linear
from .flags import Flag
from .grads import Grads, gradients
from .groups import ParamGroup
from .lora import DoraAdapter, LoraAdapter, apply_lora
from .merging import MergedParam, merge, merge_errors, unmerge
from .module import Module
from .norms import WeightNorm
from .places import Place
from .plans import LoadPlan
from .pytrees import combine
from .qlora import apply_qlora
from .quantized import QuantizedParam, Quantizer, quantize_weights
from .records import ModuleRecord
from .reparam import (
    AdaptedParam,
    Reparameterization,
    activate,
    active_adapters,
    reparameterize,
    without_adapters,
)
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
    "DoraAdapter",
    "Draft",
    "Flag",
    "FormatError",
    "Grads",
    "GroupError",
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
    "ModuleRecord",
    "ModuleVisitor",
    "Once",
    "OnceCell",
    "Param",
    "ParamGroup",
    "ParamMapper",
    "PickleError",
    "Place",
    "Plan",
    "QuantizeError",
    "QuantizedParam",
    "Quantizer",
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
    "apply_qlora",
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
    "quantize_weights",
    "reparameterize",
    "save_adapter",
    "summary",
    "unmerge",
    "without_adapters",
]
