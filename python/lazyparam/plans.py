"""Loading: a plan is made of headers alone, checked as a whole, and then committed.

A load gives parameters new recipes; nothing is read until a value is needed. Nothing is changed
before everything has been checked, and the module that was loaded into stays as it was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np

from . import _core, _tree
from ._core import Device, Param
from ._nearest import nearest
from .display import format_bytes
from .errors import DeclarationError, MissingParams, RecordError, ShapeMismatch, UnexpectedKeys
from .sources import DictSource, FileSource, Mode, PathLike, Source

__all__ = ["DType", "LoadPlan", "Match", "Rename", "Rules", "plan_load", "plan_state"]

M = TypeVar("M")

DType: TypeAlias = str | type[Any] | np.dtype[Any]

Rename: TypeAlias = Mapping[str, str | None] | Callable[[str], str | None] | None
"""From names in the file to paths in the module: a mapping (other names stay as they are), or a
function. None leaves a tensor out."""


class Match(NamedTuple):
    """A parameter and the stored tensor that is for it.

    Attributes:
        path: dotted path of the parameter.
        name: name of the tensor in the file.
        stored_dtype: its dtype there.
        dtype: the dtype that the parameter will have.
        nbytes: its bytes in the file.
    """

    path: str
    name: str
    stored_dtype: str
    dtype: str
    nbytes: int


@dataclasses.dataclass(frozen=True)
class Problem:
    """One reason why a load cannot be, and the class of error it makes."""

    kind: type[RecordError]
    text: str


@dataclasses.dataclass(frozen=True)
class LoadPlan(Generic[M]):
    """What a load would do; nothing has been read or changed. Prints as a report.

    Attributes:
        loaded: the parameters that get a stored tensor, in the module's order.
        missing: paths of the parameters for which there is none; they keep their initialisers.
        unexpected: names of the tensors that no parameter is for.
        mismatched: what is wrong with tensors that do not fit, by path.
        cast: those of `loaded` that change their dtype.
        tied: path -> the path of the parameter that it is tied to.
        nbytes: bytes that are to be read.
        metadata: the free texts of the file.
        warnings: oddities that are no errors: of the file, or of how it fits.
        problems: every reason why :meth:`commit` would refuse.
    """

    loaded: tuple[Match, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    mismatched: Mapping[str, str]
    cast: tuple[Match, ...]
    tied: Mapping[str, str]
    nbytes: int
    metadata: Mapping[str, str]
    warnings: tuple[str, ...]
    problems: tuple[str, ...]
    _problems: tuple[Problem, ...] = dataclasses.field(repr=False)
    _source: Source = dataclasses.field(repr=False)
    _module: M = dataclasses.field(repr=False)

    def commit(self) -> M:
        """The module with what is to be loaded; the module that was planned for stays as it is.

        Raises:
            MissingParams, UnexpectedKeys, ShapeMismatch: if that is the only kind of problem.
            RecordError: if there are problems of several kinds. Either lists all of them.
        """
        if self._problems:
            kinds = {problem.kind for problem in self._problems}
            kind = kinds.pop() if len(kinds) == 1 else RecordError
            raise kind(
                "the stored tensors do not fit the module; nothing was changed",
                path=self._source.label,
                problems=self.problems,
                remedy="".join(f"Note: {note}. " for note in self.warnings).strip() or None,
            )
        by_path = {match.path: match for match in self.loaded}

        def load(path: str, param: Param[Any]) -> Param[Any]:
            match = by_path.get(path)
            if match is None:
                return param
            # A cast is asked for only where there is something to cast: what a load mapper made of
            # another kind of numbers has to have the dtype of the parameter already.
            changes = match.dtype != match.stored_dtype or match.dtype != param.dtype
            if match.dtype == param.dtype and _kind(match.stored_dtype) != param.kind:
                changes = False
            return self._source.load(param, match.name, match.dtype if changes else None)

        return _tree.rebuild(self._module, load)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines = [
            f"load plan for {self._source.label}: {len(self.loaded)} loaded"
            f" ({format_bytes(self.nbytes)}), {len(self.missing)} missing,"
            f" {len(self.unexpected)} unexpected, {len(self.mismatched)} mismatched,"
            f" {len(self.cast)} cast, {len(self.tied)} tied"
        ]
        lines += [f"  missing     {path}" for path in self.missing]
        lines += [f"  unexpected  {name}" for name in self.unexpected]
        lines += [f"  mismatched  {path}: {text}" for path, text in self.mismatched.items()]
        lines += [
            f"  cast        {match.path}: {match.stored_dtype} -> {match.dtype}"
            for match in self.cast
        ]
        lines += [f"  tied        {path} -> {first}" for path, first in self.tied.items()]
        lines += [f"  note        {text}" for text in self.warnings]
        lines += [f"  problem     {text}" for text in self.problems]
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class Rules:
    """What a load insists on."""

    allow_missing: bool
    allow_unexpected: bool
    skip_mismatched: bool
    rename: Rename
    dtype: str

    @classmethod
    def of(
        cls,
        strict: bool,
        allow_missing: bool | None,
        allow_unexpected: bool | None,
        skip_mismatched: bool,
        rename: Rename,
        dtype: DType,
    ) -> Rules:
        """The rules that the arguments of a load spell."""
        if not isinstance(dtype, str) or dtype not in ("keep", "cast", "file"):
            try:
                dtype = _core.dtype_name(dtype)
            except DeclarationError as error:
                error.expected = f'"keep", "cast", "file", or {error.expected}'
                raise
        if not (rename is None or isinstance(rename, Mapping) or callable(rename)):
            raise RecordError(
                "this renames nothing",
                expected="a mapping from names in the file to paths, or a function",
                found=type(rename).__name__,
            )
        return cls(
            allow_missing=not strict if allow_missing is None else allow_missing,
            allow_unexpected=not strict if allow_unexpected is None else allow_unexpected,
            skip_mismatched=skip_mismatched,
            rename=rename,
            dtype=dtype,
        )


def plan_load(
    module: M, path: PathLike, rules: Rules, device: str | Device | None, mode: Mode
) -> LoadPlan[M]:
    """What loading the checkpoint at `path` into `module` would do. Reads headers only."""
    source = FileSource(path, mode)
    if device is not None:
        module = _tree.rebuild(module, lambda _, param: param.to_device(device))
    return _Planning(module, source, rules).plan()


def plan_state(module: M, arrays: Mapping[str, Any], rules: Rules) -> LoadPlan[M]:
    """What loading the arrays of a state dict into `module` would do."""
    return _Planning(module, DictSource(arrays), rules).plan()


class _Planning(Generic[M]):
    """One plan in the making."""

    def __init__(self, module: M, source: Source, rules: Rules) -> None:
        self._module = module
        self._source = source
        self._rules = rules
        self._entries = source.entries()
        self._problems: list[Problem] = []
        self._loaded: list[Match] = []
        self._mismatched: dict[str, str] = {}
        self._tied: dict[str, str] = {}
        self._notes = list(source.warnings)
        self._renamed = self._rename()

    def plan(self) -> LoadPlan[M]:
        missing: list[str] = []
        used: set[str] = set()
        groups = self._groups()
        for handles in groups:
            first, param = handles[0]
            named = [(p, path, self._renamed[path]) for path, p in handles if path in self._renamed]
            used.update(name for _, _, name in named)
            self._tied.update((path, first) for path, _ in handles[1:])
            if named:
                self._match(first, named[0][2], param)
            else:
                missing.append(first)
            # One value is loaded for all; the tensors of the others have to fit, too.
            for other, path, name in named[1:]:
                if self._fits(path, name, other):
                    self._dtype(path, name, other, self._entries[name][0])
                self._notes.append(
                    f"{name!r} is not read: {path!r} is tied to what {named[0][2]!r} is for"
                )
        unexpected = [name for name in self._renamed.values() if name not in used]
        self._judge(missing, unexpected)
        return LoadPlan(
            loaded=tuple(self._loaded),
            missing=tuple(missing),
            unexpected=tuple(unexpected),
            mismatched=self._mismatched,
            cast=tuple(m for m in self._loaded if m.stored_dtype != m.dtype),
            tied=self._tied,
            nbytes=sum(match.nbytes for match in self._loaded),
            metadata=self._source.metadata,
            warnings=tuple(self._notes),
            problems=tuple(problem.text for problem in self._problems),
            _problems=tuple(self._problems),
            _source=self._source,
            _module=self._module,
        )

    def _groups(self) -> list[list[_tree.Leaf]]:
        """The parameters with their paths, those that are tied together."""
        groups: dict[int, list[_tree.Leaf]] = {}
        for leaf in _tree.walk(self._module):
            groups.setdefault(leaf.param._tie, []).append(leaf)
        return list(groups.values())

    def _rename(self) -> dict[str, str]:
        """Path in the module -> name in the file."""
        rename = self._rules.rename
        if isinstance(rename, Mapping):
            self._notes += [
                f"rename names {name!r}, which is not in the file (its keys are names in the file)"
                for name in rename
                if name not in self._entries
            ]
        renamed: dict[str, str] = {}
        for name in self._entries:
            path = self._path_of(name)
            if path is None:
                continue
            if not isinstance(path, str):
                raise RecordError(
                    f"there is no path for the tensor {name!r}",
                    path=self._source.label,
                    expected="a text, or None to leave the tensor out",
                    found=type(path).__name__,
                )
            if path in renamed:
                self._problem(
                    RecordError,
                    f"rename gives two tensors one path, {path!r}: {renamed[path]!r} and {name!r}",
                )
                continue
            renamed[path] = name
        return renamed

    def _path_of(self, name: str) -> str | None:
        rename = self._rules.rename
        if rename is None:
            return name
        if isinstance(rename, Mapping):
            return rename.get(name, name)
        try:
            return rename(name)
        except Exception as error:
            error.add_note(f"while renaming {name!r}")
            raise

    def _fits(self, path: str, name: str, param: Param[Any]) -> bool:
        shape = tuple(self._entries[name][1])
        if shape == param.stored_shape:
            return True
        self._mismatch(path, f"expected shape {param.stored_shape}, found {shape} in {name!r}")
        return False

    def _match(self, path: str, name: str, param: Param[Any]) -> None:
        if not self._fits(path, name, param):
            return
        stored, _, nbytes = self._entries[name]
        dtype = self._dtype(path, name, param, stored)
        if dtype is not None:
            self._loaded.append(Match(path, name, stored, dtype, nbytes))

    def _dtype(self, path: str, name: str, param: Param[Any], stored: str) -> str | None:
        """The dtype that the parameter is to have, or None after saying why there is none."""
        rule = self._rules.dtype
        mapped = param._has_load_mapper
        wanted, may_round = param.dtype, rule == "cast"
        if rule == "file" and not mapped:
            wanted = stored
        elif rule not in ("keep", "cast", "file") and _kind(rule) == param.kind:
            wanted, may_round = rule, True
        kind = _kind(stored)
        # A load mapper may turn one kind into another (packed ints into floats, say).
        if kind != param.kind and (kind is None or not mapped):
            self._mismatch(
                path, f"expected {param.kind}s ({param.dtype}), found {stored} in {name!r}"
            )
            return None
        if wanted == stored or kind != param.kind:
            return wanted
        if not may_round and not _core.widens(stored, wanted):
            self._mismatch(
                path,
                f"expected {wanted}, found {stored} in {name!r}, which it cannot hold exactly"
                ' (dtype="cast" rounds, dtype="file" takes the dtype of the file)',
            )
            return None
        return wanted

    def _judge(self, missing: list[str], unexpected: list[str]) -> None:
        rules = self._rules
        if not self._loaded and not self._problems and (missing or unexpected or self._mismatched):
            self._problem(RecordError, "not one tensor fits a parameter of the module")
            for path, text in self._mismatched.items():
                self._problem(ShapeMismatch, f"mismatched {path!r}: {text}")
        if not rules.allow_missing or not self._loaded:
            near = _Nearest(unexpected)
            for path in missing:
                self._problem(MissingParams, f"missing {path!r}{near(path)}")
        if not rules.allow_unexpected or not self._loaded:
            near = _Nearest(missing)
            for name in unexpected:
                self._problem(UnexpectedKeys, f"unexpected {name!r}{near(name)}")

    def _mismatch(self, path: str, text: str) -> None:
        self._mismatched[path] = text
        if not self._rules.skip_mismatched:
            self._problem(ShapeMismatch, f"mismatched {path!r}: {text}")

    def _problem(self, kind: type[RecordError], text: str) -> None:
        self._problems.append(Problem(kind, text))


def _kind(dtype: str) -> str | None:
    """What a dtype holds, or None if lazyparam does not know it."""
    try:
        return _core.dtype_kind(dtype)
    except DeclarationError:
        return None


class _Nearest:
    """Says which left-over name a wrong one may have been meant for; the first few times."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(names)
        self._left = 20

    def __call__(self, name: str) -> str:
        self._left -= 1
        if self._left < 0:
            return ""
        near = nearest(name, self._names)
        return f" (nearest: {near!r})" if near is not None else ""
