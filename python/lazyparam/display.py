"""What a model looks like in text. Nothing here brings a value into being."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from . import _tree, buffers, selection
from ._core import Param
from .buffers import Buffer
from .flags import Flag
from .places import Place
from .selection import GroupLike

__all__ = ["Summary", "SummaryRow", "describe", "format_bytes", "summary"]


@dataclasses.dataclass(frozen=True)
class SummaryRow:
    """One parameter of a summary.

    Attributes:
        path: dotted path.
        shape: extents, in elements.
        dtype: name of the element type.
        device: where the value is or will be.
        nbytes: bytes in memory, once in being.
        trainable: whether it is to be trained.
        state: ``"ready"``, how it will come into being, or to which path it is tied.
        size: number of elements.
        in_being: whether the value is there.
        tied_to: the path of the parameter that it shares everything with, or None.
        is_buffer: whether it is a buffer, and no parameter.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    device: str
    nbytes: int
    trainable: bool
    state: str
    size: int
    in_being: bool
    tied_to: str | None
    is_buffer: bool = False


@dataclasses.dataclass(frozen=True)
class Summary:
    """A table of parameters with totals; prints itself. Tied parameters count once.

    Attributes:
        rows: one for each path of a parameter.
        flags: path and flag, in the order of the model.
    """

    rows: tuple[SummaryRow, ...]
    flags: tuple[tuple[str, Flag], ...] = ()

    def _counted(self) -> Iterable[SummaryRow]:
        return (row for row in self.rows if row.tied_to is None)

    @property
    def num_params(self) -> int:
        """Elements of all parameters, buffers left out."""
        return sum(row.size for row in self._counted() if not row.is_buffer)

    @property
    def num_trainable(self) -> int:
        """Elements of the parameters that are to be trained."""
        return sum(row.size for row in self._counted() if row.trainable)

    @property
    def nbytes(self) -> int:
        """Bytes of all parameters and buffers, once in being."""
        return sum(row.nbytes for row in self._counted())

    @property
    def nbytes_in_being(self) -> int:
        """Bytes of the parameters and buffers that are in being now."""
        return sum(row.nbytes for row in self._counted() if row.in_being)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        heads = ("path", "shape", "dtype", "device", "bytes", "trainable", "state")
        table = [heads]
        for row in self.rows:
            table.append(
                (
                    row.path,
                    str(row.shape),
                    row.dtype,
                    row.device,
                    format_bytes(row.nbytes),
                    "buffer" if row.is_buffer else "yes" if row.trainable else "no",
                    row.state,
                )
            )
        for path, flag in self.flags:
            is_trained = "yes" if flag.is_active else "no"
            table.append((path, "", "flag", "", "", is_trained, flag.state))
        widths = [max(len(line[at]) for line in table) for at in range(len(heads))]
        lines = [
            "  ".join(
                cell.rjust(width) if at == 4 else cell.ljust(width)
                for at, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in table
        ]
        lines.insert(1, "-" * max(map(len, lines)))
        lines.append(lines[1])
        lines.append(
            f"{self.num_params:,} elements, {self.num_trainable:,} trainable; "
            f"{format_bytes(self.nbytes)}, {format_bytes(self.nbytes_in_being)} in being"
        )
        return "\n".join(lines)


def summary(model: object, group: GroupLike | None = None) -> Summary:
    """A table of the parameters and flags of `model`; brings none of them into being.

    Args:
        model: a Module, or any list, tuple, dict or dataclass that leads to parameters.
        group: show only what this :class:`ParamGroup`, or shell pattern for paths, selects: to see
            what a verb would do with it. It may select nothing.

    >>> import lazyparam as lp
    >>> print(lp.summary({"w": lp.Param((2, 3), lp.init.zeros())}))
    path  shape   dtype    device     bytes  trainable  state
    -----------------------------------------------------------------
    w     (2, 3)  float32  numpy:cpu   24 B  yes        lazy: zeros()
    -----------------------------------------------------------------
    6 elements, 6 trainable; 24 B, 0 B in being
    """
    chosen = selection.choose(model, group, allow_missing=True)
    first: dict[int, str] = {}
    within_buffers = {path for path, _ in buffers.named(model)}
    rows: list[SummaryRow] = []
    flags: list[tuple[str, Flag]] = []

    def look_at_flag(path: str, flag: Flag) -> None:
        if chosen(flag):
            flags.append((path, flag))

    def look(path: str, param: Param[Any]) -> None:
        if not chosen(param):
            return
        owner = first.setdefault(param._tie, path)
        tied = owner if owner != path else None
        rows.append(
            SummaryRow(
                path=path,
                shape=param.shape,
                dtype=param.dtype,
                device=str(param.device),
                nbytes=param.nbytes,
                trainable=param.is_active,
                state=f"tied to {tied}" if tied else param.state,
                size=param.size,
                in_being=param.is_initialized,
                tied_to=tied,
                is_buffer=path in within_buffers,
            )
        )

    _tree.visit(model, look, look_at_flag=look_at_flag)
    return Summary(tuple(rows), tuple(flags))


def format_bytes(count: int) -> str:
    """A number of bytes for people, in binary units.

    >>> format_bytes(1536)
    '1.5 KiB'
    """
    if count < 1024:
        return f"{count} B"
    units = ("KiB", "MiB", "GiB", "TiB")
    power = min((count.bit_length() - 1) // 10, len(units))
    return f"{count / 1024**power:.1f} {units[power - 1]}"


def describe(node: object, indent: str = "", outer: tuple[object, ...] = ()) -> str:
    """A nested text of the container `node`: its parameters and what leads to them.

    A container in itself (one of `outer`) is hinted at: a text is wanted most when all is wrong.
    """
    head = type(node).__name__
    if any(node is each for each in outer):
        return f"{head}(...)"
    inner = indent + "  "
    outer = (*outer, node)
    lines = []
    for name, child in _tree.children(node):
        name = "base" if name is _tree.HERE else name
        if isinstance(child, Param):
            lines.append(f"{inner}{name}: {_describe_param(child)},")
        elif isinstance(child, Place):
            lines.append(f"{inner}{name}: {_describe_param(child, 'Place')},")
        elif isinstance(child, Buffer):
            note = "" if child.persistent else ", not stored"
            lines.append(f"{inner}{name}: {_describe_param(child, 'Buffer', note)},")
        elif isinstance(child, Flag):
            lines.append(f"{inner}{name}: {child!r},")
        elif isinstance(child, _tree.Branch) or _leads_to_params(child, outer):
            lines.append(f"{inner}{name}: {describe(child, inner, outer)},")
    return "\n".join([f"{head}(", *lines, f"{indent})"]) if lines else f"{head}()"


def _describe_param(param: Param[Any] | Place | Buffer, kind: str = "Param", note: str = "") -> str:
    shape = ", ".join(map(str, param.shape))
    return f"{kind}({param.dtype}[{shape}], {param.device}, {param.state}{note})"


def _leads_to_params(node: object, outer: tuple[object, ...]) -> bool:
    if not _tree.is_container(node) or any(node is each for each in outer):
        return False
    outer = (*outer, node)
    return any(
        isinstance(child, Param | Place | Flag | _tree.Branch) or _leads_to_params(child, outer)
        for _, child in _tree.children(node)
    )
