"""Adapters in folders of their own, as PEFT writes and reads them.

A folder has the factors in ``adapter_model.safetensors`` and what they mean in
``adapter_config.json``. PEFT names modules, here parameters have names: ``layers.0.q`` there is
``layers.0.q.weight`` here, or ``layers.0.q`` if there is no such weight.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from uuid import uuid4

from . import _core, _host, _tree, init
from ._core import Param
from .adapter_configs import AdapterConfig, Saved, config_of
from .buffers import Buffer
from .devices import backend_of
from .errors import ModuleError, RecordError
from .lora import DoraAdapter, Layout, LoraAdapter, insist_on_layout
from .reparam import AdaptedParam
from .sources import FileSource, Mode, PathLike
from .targets import Target, near, selected

__all__ = ["load_adapter", "save_adapter"]

M = TypeVar("M")

Rename: TypeAlias = Callable[[str], str] | Mapping[str, str] | None

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
PREFIX = "base_model.model."

_KEY = re.compile(
    r"(?P<module>.+)\."
    r"(?P<part>lora_A|lora_B|lora_embedding_A|lora_embedding_B|lora_magnitude_vector)"
    r"(?:\.weight)?"
)

# ---- loading -------------------------------------------------------------------------------------


def load_adapter(
    module: M,
    folder: PathLike,
    name: str = "lora",
    *,
    dtype: str = "file",
    requires_grad: bool = False,
    active: bool = True,
    layout: Layout | None = None,
    rename: Rename = None,
    mode: Mode = "auto",
) -> M:
    """`module` with the adapter in `folder`, which PEFT or :func:`save_adapter` wrote, attached.

    Factors are read when they are needed; no initialiser runs and no base comes into being. What is
    trained stays as it is: `module` is not frozen. All is checked first, by headers.

    Args:
        module: a Module, or whatever leads to parameters.
        folder: where ``adapter_model.safetensors`` and ``adapter_config.json`` are.
        name: what the adapter is to be called.
        dtype: of the factors: ``"file"`` is that of the file, whatever the base has.
        requires_grad: whether the factors are to be trained.
        active: whether the adapter applies at once; see :func:`activate`.
        layout: which axis of the bases is which; None is what the file says (``fan_in_fan_out``).
        rename: from the file's names of modules to paths of parameters: a mapping, or a function.
        mode: as in ``Module.load_file``.

    Raises:
        FormatError: if a file is not well-formed.
        RecordError: one error that lists every problem; `module` stays as it is.
        ModuleError: if an adapter of that name is attached already.
        OSError: if a file cannot be opened.
    """
    root = Path(folder)
    if dtype != "file":
        dtype = _core.dtype_name(dtype)
    config = AdapterConfig.read(root / CONFIG)
    source = FileSource(root / WEIGHTS, mode)
    reading = _Reading(source, config, layout, dtype, requires_grad)
    places = {at: here for at, here in _tree.places(module) if not isinstance(here, Buffer)}
    nodes = _planned(reading, places, rename, name)

    def attach(path: str, param: Any) -> Any:
        if path not in nodes:
            return param
        before = param.active if isinstance(param, AdaptedParam) else ()
        adapted = param.with_reparameterization(nodes[path], name)
        return adapted if active else adapted.with_active(*before)

    adapted = _tree.substitute(module, attach, once=False)
    _tree.name_params(adapted)
    return adapted


def _planned(
    reading: _Reading, places: Mapping[str, Any], rename: Rename, name: str
) -> dict[str, LoraAdapter]:
    """The adapters by the paths of the parameters they are for."""
    problems: list[str] = []
    nodes: dict[str, LoraAdapter] = {}
    for module, parts in reading.modules(problems).items():
        path = _path_of(module, places, rename)
        if path not in places:
            hint = near(f"{module}.weight", list(places)) if places else "no parameters"
            problems.append(f"no parameter for the module {module!r} (there are {hint})")
        elif path in nodes:
            problems.append(f"two modules are for {path!r}, one of them {module!r}")
        else:
            try:
                node = reading.adapter(module, parts, places[path])
                nodes[path] = node.fitted(places[path])
            except (RecordError, ModuleError) as error:
                error.path = None
                problems.append(f"{module!r}: {error}")
    if not problems and not nodes:
        problems.append("there is not one adapter in it")
    if problems:
        raise RecordError(
            f"the adapter {name!r} does not fit the module; nothing was changed",
            path=reading.source.label,
            problems=problems,
        )
    return nodes


def _path_of(module: str, places: Mapping[str, Any], rename: Rename) -> str:
    if rename is not None:
        renamed = rename.get(module) if isinstance(rename, Mapping) else rename(module)
        if renamed is not None:
            return renamed
    weight = _tree.join(module, "weight")
    return weight if weight in places else module


class _Reading:
    """A file of factors, and how its adapters are made."""

    def __init__(
        self,
        source: FileSource,
        config: AdapterConfig,
        layout: Layout | None,
        dtype: str,
        requires_grad: bool,
    ) -> None:
        insist_on_layout(layout or "OI")
        self.source = source
        self._config = config
        self._layout: Layout = layout or config.layout
        self._dtype = dtype
        self._requires_grad = requires_grad
        self._entries = source.entries()

    def modules(self, problems: list[str]) -> dict[str, dict[str, str]]:
        """Module -> part -> name in the file."""
        modules: dict[str, dict[str, str]] = {}
        for name in self._entries:
            match = _KEY.fullmatch(name.removeprefix(PREFIX))
            if match is None:
                problems.append(f"{name!r} is nothing that LoRA has")
                continue
            modules.setdefault(match["module"], {})[match["part"]] = name
        return modules

    def adapter(self, module: str, parts: Mapping[str, str], base: Any) -> LoraAdapter:
        """The adapter of `module`, for `base`; reads nothing."""
        of_embedding = "lora_embedding_A" in parts
        names = ["lora_embedding_A", "lora_embedding_B"] if of_embedding else ["lora_A", "lora_B"]
        if self._config.dora:
            names.append("lora_magnitude_vector")
        if set(parts) != set(names):
            raise RecordError(
                "other tensors than such an adapter has", expected=names, found=[*parts]
            )
        layout: Layout = "IO" if of_embedding else self._layout
        (_, down, _), (_, up, _) = (self._entries[parts[name]] for name in names[:2])
        rank = self._config.rank(module)
        if down[:1] != (rank,) or len(down) < 2 or up[1:2] != (rank,) or math.prod(up[2:]) != 1:
            raise RecordError(
                "the factors do not have the rank that the config says",
                expected=f"({rank}, inputs) and (outputs, {rank})",
                found=f"{down} and {up}",
            )
        inwards = self._factor(parts[names[0]], (rank, math.prod(down[1:])), layout == "IO", base)
        outwards = self._factor(parts[names[1]], (up[0], rank), layout == "IO", base)
        a, b = (inwards, outwards) if layout == "IO" else (outwards, inwards)
        scale = self._config.scale(module)
        if not self._config.dora:
            return LoraAdapter(a, b, scale, layout)
        magnitude = self._magnitude(parts[names[2]], base, layout)
        return DoraAdapter(a, b, scale, layout, magnitude)

    def _factor(self, name: str, shape: tuple[int, int], turned: bool, base: Any) -> Param[Any]:
        return self._read(name, shape[::-1] if turned else shape, _Shaped(shape, turned), base)

    def _magnitude(self, name: str, base: Any, layout: Layout) -> Param[Any]:
        axis = layout.index("O")
        shape = tuple(extent if at == axis else 1 for at, extent in enumerate(base.shape))
        _, stored, _ = self._entries[name]
        if math.prod(stored) != math.prod(shape):
            raise RecordError("a magnitude for each output", expected=shape, found=stored)
        return self._read(name, shape, _Shaped(shape), base)

    def _read(self, name: str, shape: tuple[int, ...], form: _Shaped, base: Any) -> Param[Any]:
        """A parameter that reads the tensor called `name`."""
        dtype, stored, _ = self._entries[name]
        if _core.dtype_kind(dtype) != "float":
            raise RecordError("factors are floats", expected="floats", found=dtype)
        wanted = dtype if self._dtype == "file" else self._dtype
        # The initialiser never runs: what is read takes its place.
        param = Param(shape, init.zeros(), wanted, base.device, self._requires_grad)
        if stored == shape and not form.turned:
            return self.source.load(param, name, wanted)
        param = param.load_mapper(form, stored)
        # It was for this file only.
        return self.source.load(param, name, wanted).replace_load_mapper(None)


class _Shaped:
    """The step that gives a stored tensor another shape, and may turn it."""

    def __init__(self, shape: tuple[int, ...], turned: bool = False) -> None:
        self.shape = shape
        self.turned = turned

    def __call__(self, x: Any) -> Any:
        x = x.reshape(self.shape)
        return x.T if self.turned else x


# ---- saving --------------------------------------------------------------------------------------


def save_adapter(
    module: object,
    folder: PathLike,
    name: str = "lora",
    *,
    embeddings: Target = (),
    rename: Rename = None,
    base_model: str | None = None,
) -> None:
    """Write the adapters called `name`, and nothing of their bases, to `folder`, for PEFT to read.

    Brings the adapters into being. Each of the two files is written to a temporary one that then
    takes its place.

    Args:
        module: a Module, or whatever leads to parameters.
        folder: made if it is not there.
        name: what the adapters are called.
        embeddings: the parameters that PEFT has in an ``Embedding``: paths, globs, a function or a
            group. Their layout is ``"IO"``.
        rename: from paths of parameters to PEFT's names of modules; without, ``.weight`` is left
            off.
        base_model: what PEFT calls ``base_model_name_or_path``.

    Raises:
        ModuleError: if no parameter has such an adapter, or it is none of LoRA or DoRA.
        RecordError: if one file cannot say what they are.
    """
    places = _tree.places(module)
    embedded = {path for path, _ in selected(embeddings, places)}
    found = [
        _Saved(_module_of(path, rename), param, param.reparameterizations[name], path in embedded)
        for path, param in places
        if isinstance(param, AdaptedParam) and name in param.reparameterizations
    ]
    if not found:
        raise ModuleError(f"no parameter has an adapter {name!r}")
    modules = {_module_of(path, rename) for path, _ in places}
    config = config_of([each.said() for each in found], modules, base_model)
    tensors = [tensor for each in found for tensor in each.tensors()]
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    _core.write_file(root / WEIGHTS, tensors, {"format": "pt"})
    _write_text(root / CONFIG, json.dumps(config, indent=2, sort_keys=True) + "\n")


def _module_of(path: str, rename: Rename) -> str:
    if rename is not None:
        renamed = rename.get(path) if isinstance(rename, Mapping) else rename(path)
        if renamed is not None:
            return renamed
    return path.removesuffix(".weight")


class _Saved:
    """One adapter on its way to a file."""

    def __init__(self, module: str, base: Any, node: Any, of_embedding: bool) -> None:
        if not isinstance(node, LoraAdapter):
            raise ModuleError(
                "only LoRA and DoRA adapters are written for PEFT",
                path=base.path,
                found=type(node).__name__,
                remedy="Module.save_file writes all parameters, whatever they are.",
            )
        if of_embedding and node.layout != "IO":
            raise ModuleError(
                "an embedding has a row for each input",
                path=base.path,
                expected='an adapter of the layout "IO"',
                found=repr(node.layout),
            )
        self.module = module
        self.of_embedding = of_embedding
        self.node = node
        self._base = base

    def said(self) -> Saved:
        """What the config has to say of it."""
        return Saved(
            module=self.module,
            rank=self.node.rank,
            alpha=self.node.scale * self.node.rank,
            dora=isinstance(self.node, DoraAdapter),
            layout=None if self.of_embedding else self.node.layout,
        )

    def tensors(self) -> Iterator[tuple[str, str, Sequence[int], Any]]:
        """Name, dtype, shape and bytes of each."""
        a, b = self.node.a, self.node.b
        inwards, outwards = (a, b) if self.node.layout == "IO" else (b, a)
        suffixes = ("lora_A.weight", "lora_B.weight")
        if self.of_embedding:
            suffixes = ("lora_embedding_A", "lora_embedding_B")
        shapes: list[tuple[int, ...] | None] = [None, None]
        if self._base.ndim > 2:
            kernel = (1,) * (self._base.ndim - 2)
            shapes = [(self.node.rank, *self._base.shape[1:]), (*a.shape, *kernel)]
        for param, suffix, shape in zip((inwards, outwards), suffixes, shapes, strict=True):
            yield self._tensor(param, suffix, shape, self.node.layout == "IO")
        if isinstance(self.node, DoraAdapter):
            axis = self.node.layout.index("O")
            kernel = (1,) * (self._base.ndim - 2)
            outputs = (self._base.shape[axis],)
            yield self._tensor(
                self.node.magnitude,
                "lora_magnitude_vector",
                (1, *outputs, *kernel) if kernel else outputs,
                False,
            )

    def _tensor(
        self, param: Param[Any], suffix: str, shape: tuple[int, ...] | None, turned: bool
    ) -> tuple[str, str, Sequence[int], Any]:
        array = backend_of(param.device).to_host(param.valid().base())
        array = array.T if turned else array
        array = array if shape is None else array.reshape(shape)
        name = f"{PREFIX}{self.module}.{suffix}"
        return name, param.dtype, array.shape, _host.contiguous_bytes(array)


def _write_text(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
