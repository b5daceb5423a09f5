"""What a module stores: its parameters in stored form, as arrays by path, in a file or a record."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

from . import _core, _host, _tree, buffers, identities, pytrees
from ._core import Device, Param
from .devices import backend_of
from .display import format_bytes
from .errors import RecordError
from .identities import Identities
from .selection import GroupLike, choose
from .sources import FileSource, Mode, PathLike

__all__ = ["ModuleRecord", "RecordSource", "record", "save", "state_dict"]

HOST = Device("numpy:cpu")


# ---- arrays and files ----------------------------------------------------------------------------


def state_dict(module: object) -> dict[str, Any]:
    """Path -> value in stored form; tied parameters under each of their paths, the same array."""
    pytrees.refuse_occupied(module)
    values: dict[int, Any] = {}
    arrays = {}
    for path, param in buffers.stored(module):
        if param._tie not in values:
            # Detached, as torch has it: what trains is no part of a graph here.
            values[param._tie] = param.valid().transform_for_save().base()
        arrays[path] = values[param._tie]
    return arrays


def save(module: object, path: PathLike, metadata: Mapping[str, str] | None) -> None:
    """Write the parameters of `module`, in stored form, to a safetensors file."""
    texts = _texts_in(metadata, os.fspath(path))
    # The whole tree is looked at before anything comes into being.
    pytrees.refuse_occupied(module)
    leaves = list(_tree.unique(buffers.stored(module)))
    tensors = [_written(name, param.transform_for_save()) for name, param in leaves]
    _core.write_file(os.fspath(path), tensors, texts)


def _texts_in(metadata: Mapping[str, str] | None, label: str | None) -> dict[str, str]:
    """`metadata` as a file can have them."""
    texts = dict(metadata or {})
    for text in (*texts, *texts.values()):
        if not isinstance(text, str):
            raise RecordError(
                "metadata is texts by names that are texts",
                path=label,
                expected="str",
                found=f"{text!r} of type {type(text).__name__}",
            )
    if identities.KEY in texts:
        raise RecordError(
            f"{identities.KEY!r} is the name under which records keep identities",
            path=label,
            remedy="Choose another name for that text.",
        )
    return texts


def _written(name: str, saved: Param[Any]) -> tuple[str, str, tuple[int, ...], Any]:
    """A tensor as the core writes it; brings its value into being."""
    host = backend_of(saved.device).to_host(saved.base())
    return (name, saved.dtype, saved.shape, _host.contiguous_bytes(host))


# ---- records -------------------------------------------------------------------------------------


class ModuleRecord(Mapping[str, Param[Any]]):
    """What a module stores, apart from it: nothing that is done to the module later changes it.

    A mapping from paths to parameters in stored form, on the host. Made by ``Module.record``,
    :meth:`load` and :meth:`from_bytes`, and put into a module by ``Module.load_record``. It keeps
    the identities of the parameters, and which were tied: those are here once.

    What is lazy stays lazy here, until it is asked for, written or loaded and read: see
    ``Module.record``. Records never change, and pickle as their parameters do.

    Args:
        params: path -> parameter in stored form.
        ids: path -> identity, for those whose identity is known.
        ties: further path of a parameter -> its path in `params`.
        metadata: free texts.

    >>> import lazyparam as lp
    >>> class Net(lp.Module):
    ...     def __init__(self):
    ...         self.embed = lp.Param((2, 3), lp.init.ones())
    ...         self.head = self.embed.clone()
    >>> net = Net()
    >>> record = net.record()
    >>> record
    ModuleRecord(1 parameter, 24 B)
    >>> list(record), dict(record.ties)
    (['embed'], {'head': 'embed'})
    >>> again = lp.ModuleRecord.from_bytes(record.to_bytes())
    >>> Net().load_record(again).embed.id == net.embed.id
    True
    """

    __slots__ = ("_identities", "_metadata", "_params")

    def __init__(
        self,
        params: Mapping[str, Param[Any]],
        ids: Mapping[str, int] | None = None,
        ties: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self._params = dict(params)
        self._identities = Identities(dict(ids or {}), dict(ties or {}))
        self._metadata = dict(metadata or {})

    # What is in it; free to ask.

    def __getitem__(self, path: str) -> Param[Any]:
        return self._params[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._params)

    def __len__(self) -> int:
        return len(self._params)

    @property
    def ids(self) -> Mapping[str, int]:
        """Path -> identity, for those whose identity is known: not in files of others."""
        return MappingProxyType(dict(self._identities.ids))

    @property
    def ties(self) -> Mapping[str, str]:
        """Further path of a tied parameter -> the path that it has here."""
        return MappingProxyType(dict(self._identities.ties))

    @property
    def metadata(self) -> Mapping[str, str]:
        """The free texts of the file that it was loaded from."""
        return MappingProxyType(self._metadata)

    @property
    def nbytes(self) -> int:
        """Bytes of all parameters in memory, once in being."""
        return sum(param.nbytes for param in self._params.values())

    def __repr__(self) -> str:
        count = f"{len(self)} parameter{'' if len(self) == 1 else 's'}"
        return f"ModuleRecord({count}, {format_bytes(self.nbytes)})"

    def select(self, group: GroupLike, *, allow_missing: bool = False) -> ModuleRecord:
        """The part of it that `group` selects, tied parameters by any of their paths.

        Args:
            group: a ``ParamGroup``, or a shell pattern for paths.
            allow_missing: whether the group may select nothing, and name paths that are not here.

        Raises:
            GroupError: if it selects nothing, or names paths that are not here.
        """
        ids, ties = self._identities
        tied = {path: self._params[first] for path, first in ties.items()}
        is_wanted = choose({**self._params, **tied}, group, allow_missing=allow_missing)
        params = {path: param for path, param in self.items() if is_wanted(param)}
        return ModuleRecord(
            params,
            {path: number for path, number in ids.items() if path in params},
            {path: first for path, first in ties.items() if first in params},
            self._metadata,
        )

    # Files and bytes.

    def save(self, path: PathLike, metadata: Mapping[str, str] | None = None) -> None:
        """Write it to a safetensors file, which anybody can read. Brings all of it into being.

        Identities and ties are a text in the metadata. The file is replaced in one step, as by
        ``Module.save_file``; it may be the one that this was loaded from.

        Args:
            path: of the file.
            metadata: free texts; those of the record if not given.
        """
        _core.write_file(os.fspath(path), *self._to_write(metadata, os.fspath(path)))

    @classmethod
    def load(cls, path: PathLike, mode: Mode = "auto") -> Self:
        """What a checkpoint holds, by lazyparam or by others. Reads headers only.

        Args:
            path: as in ``Module.plan_load``.
            mode: as there.

        Raises:
            FormatError: if it is not a well-formed checkpoint.
            OSError: if it cannot be opened.
        """
        source = FileSource(path, mode)
        params = {}
        for name, (dtype, shape, _) in source.entries().items():
            params[name] = source.load(_blank(name, shape, dtype), name)
        return cls(params, *source.identities, source.metadata)

    def to_bytes(self, metadata: Mapping[str, str] | None = None) -> bytes:
        """The bytes of the file that :meth:`save` would write."""
        return _core.encode(*self._to_write(metadata, None))

    @classmethod
    def from_bytes(cls, data: Any) -> Self:
        """What the bytes of a safetensors file hold, copied: `data` is not needed any more.

        Args:
            data: bytes, or whatever lends such memory.

        Raises:
            FormatError: if they are no well-formed safetensors file.
        """
        view = memoryview(data)
        if not (view.readonly and view.c_contiguous):
            view = memoryview(bytes(view))  # what may be written to is taken as it is now
        tensors, texts = _core.decode(view.cast("B"))
        told = identities.told_by(texts, tensors, "these bytes")
        texts.pop(identities.KEY, None)
        params = {}
        for name, (dtype, shape, elements) in tensors.items():
            array = _host.array(elements, shape, dtype)
            params[name] = Param.initialized(array)
            params[name]._found_at(name)
        return cls(params, *told, texts)

    def _to_write(
        self, metadata: Mapping[str, str] | None, label: str | None
    ) -> tuple[list[Any], dict[str, str]]:
        texts = _texts_in(self._metadata if metadata is None else metadata, label)
        texts[identities.KEY] = identities.text_of(self._identities)
        return [_written(path, param) for path, param in self.items()], texts


def record(module: object, group: GroupLike | None, allow_missing: bool) -> ModuleRecord:
    """The record of ``Module.record``."""
    pytrees.refuse_occupied(module)
    # All is chosen before anything is read.
    is_wanted = choose(module, group, allow_missing=allow_missing, flags=False)
    tied: dict[int, list[_tree.Leaf]] = {}
    for leaf in buffers.stored(module):
        if is_wanted(leaf.param):
            tied.setdefault(leaf.param._tie, []).append(leaf)
    firsts = [leaves[0] for leaves in tied.values()]
    return ModuleRecord(
        {path: _kept(param) for path, param in firsts},
        {path: param.id for path, param in firsts},
        {path: leaves[0].path for leaves in tied.values() for path, _ in leaves[1:]},
    )


def _kept(param: Param[Any]) -> Param[Any]:
    """`param` in its stored form, on the host, out of reach of everybody who has `param`.

    A lazy parameter cannot have been written to, but it may come into being and be written to
    before the record is read. So it may stay lazy only if nobody can write to arrays of its
    library, or if the record can make the same value for itself.
    """
    *_, save_mappers = param._traits
    if not save_mappers:
        if not backend_of(param.device).is_mutable:
            return _bare(param).to_device(HOST)
        if param._repeats:
            return _bare(param).clone(independent=True).to_device(HOST)
    return _bare(param.transform_for_save()).to_device(HOST)


def _bare(param: Param[Any]) -> Param[Any]:
    """`param` as a value and an identity, without wish and mappers."""
    return param.valid().no_grad().replace_load_mapper(None).replace_save_mapper(None)


def _blank(path: str, shape: tuple[int, ...], dtype: str) -> Param[Any]:
    """A parameter for what is to be loaded."""
    blank: Param[Any] = Param(shape, None, dtype, HOST, requires_grad=False)
    blank._found_at(path)
    return blank


class RecordSource:
    """The parameters of a record; loading one shares nothing with it that can be written to."""

    label = "the record"
    warnings: Sequence[str] = ()

    def __init__(self, held: ModuleRecord) -> None:
        if not isinstance(held, ModuleRecord):
            raise RecordError(
                "this is no record",
                expected="a ModuleRecord, as Module.record and ModuleRecord.load give",
                found=type(held).__name__,
                remedy="load_file takes paths, load_state_dict takes arrays by path.",
            )
        self.metadata = held.metadata
        self.identities = held._identities
        self._held = held

    def entries(self) -> Mapping[str, tuple[str, tuple[int, ...], int]]:
        return {path: (p.dtype, p.shape, p.nbytes) for path, p in self._held.items()}

    def load(
        self, param: Param[Any], name: str, dtype: str | None = None, id: int | None = None
    ) -> Param[Any]:
        return param.transform_for_load(self._held[name], id, dtype)
