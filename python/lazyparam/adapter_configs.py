"""What PEFT's ``adapter_config.json`` says of LoRA adapters, read and written."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from .errors import FormatError, RecordError
from .lora import Layout

__all__ = ["AdapterConfig", "Saved", "config_of"]

T = TypeVar("T")

_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "bias": ("none",),
    **dict.fromkeys(
        (
            *("modules_to_save", "trainable_token_indices", "target_parameters"),
            *("layer_replication", "alora_invocation_tokens", "kasa_config"),
            *("monteclora_config", "arrow_config", "use_bdlora"),
        ),
        (None, [], {}, False),
    ),
    "lora_bias": (False, None),
    "use_qalora": (False, None),
    # The others (PiSSA, OLoRA, CorDA, LoftQ) take from the base what they put into the factors.
    "init_lora_weights": (True, False, None, "gaussian", "eva", "orthogonal", "mica"),
}
"""Fields of a config by which PEFT computes something else, and the values with which it does not.
All others say how an adapter was begun, found its modules or was trained."""


@dataclass(frozen=True)
class AdapterConfig:
    """What the config says of how factors are applied."""

    r: int
    alpha: float
    rslora: bool
    dora: bool
    layout: Layout
    ranks: Mapping[str, int] = field(default_factory=dict)
    alphas: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> AdapterConfig:
        fields = _fields_in(path)
        kind = fields.get("peft_type", "LORA")
        if kind != "LORA":
            raise RecordError(
                "this is another kind of adapter", path=str(path), expected="LORA", found=kind
            )
        for name, neutral in _NEUTRAL.items():
            if name in fields and fields[name] not in neutral:
                raise RecordError(
                    f"this adapter does something that is not supported: {name}",
                    path=str(path),
                    expected=repr(neutral[0]),
                    found=f"{fields[name]!r:.80}",
                )
        try:
            return cls(
                r=int(fields.get("r", 8)),
                alpha=float(fields.get("lora_alpha", 8)),
                rslora=bool(fields.get("use_rslora", False)),
                dora=bool(fields.get("use_dora", False)),
                layout="IO" if fields.get("fan_in_fan_out") else "OI",
                ranks={str(key): int(r) for key, r in (fields.get("rank_pattern") or {}).items()},
                alphas={
                    str(key): float(a) for key, a in (fields.get("alpha_pattern") or {}).items()
                },
            )
        except (TypeError, ValueError, AttributeError) as error:
            raise FormatError(f"this config makes no sense ({error})", path=str(path)) from error

    def rank(self, module: str) -> int:
        """The rank of a module's adapter."""
        return _matching(self.ranks, module, self.r)

    def scale(self, module: str) -> float:
        """What the product of a module's factors is multiplied by."""
        rank = self.rank(module)
        return _matching(self.alphas, module, self.alpha) / (
            math.sqrt(rank) if self.rslora else rank
        )


def _matching(patterns: Mapping[str, T], module: str, default: T) -> T:
    """What the first of `patterns` that fits the end of a module's name has, by PEFT's rule."""
    for pattern, value in patterns.items():
        try:
            if re.match(rf"(.*\.)?({pattern})$", module):
                return value
        except re.error as error:
            raise FormatError(f"{pattern!r} is no pattern ({error})") from error
    return default


def _fields_in(path: Path) -> dict[str, Any]:
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FormatError(f"this is no JSON ({error})", path=str(path)) from error
    if not isinstance(fields, dict):
        raise FormatError("this config is no object", path=str(path), found=type(fields).__name__)
    return fields


@dataclass(frozen=True)
class Saved:
    """An adapter, as far as a config speaks of it.

    Attributes:
        module: PEFT's name of the module.
        rank: of the factors.
        alpha: the scale, times the rank.
        dora: whether it has a magnitude.
        layout: that of the base; None for an embedding, of which PEFT knows.
    """

    module: str
    rank: int
    alpha: float
    dora: bool
    layout: Layout | None


def config_of(found: Sequence[Saved], modules: set[str], base: str | None) -> dict[str, Any]:
    """The config with which PEFT does what these adapters do.

    Args:
        found: the adapters.
        modules: the names of all modules, with adapters or without.
        base: what PEFT calls ``base_model_name_or_path``.

    Raises:
        RecordError: if one config cannot say it.
    """
    dora = {each.dora for each in found}
    layouts = {each.layout for each in found} - {None}
    if len(dora) > 1 or len(layouts) > 1:
        raise RecordError(
            "one config cannot tell these adapters apart",
            expected="all of them LoRA, or all of them DoRA; one layout",
            found="both",
            remedy="Name what PEFT has in an Embedding (embeddings=...), "
            "or save them by different names.",
        )
    ranks = {each.module: each.rank for each in found}
    alphas = {each.module: _int_if_one(each.alpha) for each in found}
    rank, alpha = (Counter(values.values()).most_common(1)[0][0] for values in (ranks, alphas))
    return {
        "peft_type": "LORA",
        "base_model_name_or_path": base,
        "bias": "none",
        "fan_in_fan_out": layouts == {"IO"},
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_dropout": 0.0,
        "r": rank,
        "lora_alpha": alpha,
        "rank_pattern": _exceptions(ranks, rank),
        "alpha_pattern": _exceptions(alphas, alpha),
        "target_modules": _targets(sorted(ranks), modules),
        "task_type": None,
        "use_dora": dora == {True},
        "use_rslora": False,
    }


def _exceptions(values: Mapping[str, Any], usual: Any) -> dict[str, Any]:
    """Patterns that fit what is not as usual, and nothing else."""
    odd = {module: value for module, value in values.items() if value != usual}
    # PEFT takes what comes first, and lets any names stand before a pattern.
    longest_first = sorted(values, key=lambda module: -len(module))
    touched = [
        module
        for module in longest_first
        if module in odd or any(module.endswith(f".{other}") for other in odd)
    ]
    return {re.escape(module): values[module] for module in touched}


def _targets(adapted: list[str], modules: set[str]) -> list[str] | str:
    """The names of the modules; or a pattern, where PEFT would take the end of another for one."""
    others = modules - set(adapted)
    if any(other.endswith(f".{module}") for other in others for module in adapted):
        return "|".join(map(re.escape, adapted))
    return adapted


def _int_if_one(alpha: float) -> float:
    """`alpha`, an int where rounding has made it something else."""
    return round(alpha) if math.isclose(alpha, round(alpha), rel_tol=1e-12) else alpha
