"""What a module stores: its parameters in stored form, as a dict of arrays or in a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from . import _core, _host, _tree, pytrees
from .devices import backend_of
from .errors import RecordError
from .sources import PathLike

__all__ = ["save", "state_dict"]


def state_dict(module: object) -> dict[str, Any]:
    """Path -> value in stored form; tied parameters under each of their paths, the same array."""
    pytrees.refuse_occupied(module)
    values: dict[int, Any] = {}
    arrays = {}
    for path, param in _tree.walk(module):
        if param._tie not in values:
            # Detached, as torch has it: what trains is no part of a graph here.
            values[param._tie] = param.valid().transform_for_save().base()
        arrays[path] = values[param._tie]
    return arrays


def save(module: object, path: PathLike, metadata: Mapping[str, str] | None) -> None:
    """Write the parameters of `module`, in stored form, to a safetensors file."""
    metadata = dict(metadata or {})
    for text in (*metadata, *metadata.values()):
        if not isinstance(text, str):
            raise RecordError(
                "metadata is texts by names that are texts",
                path=os.fspath(path),
                expected="str",
                found=f"{text!r} of type {type(text).__name__}",
            )
    # The whole tree is looked at before anything comes into being.
    pytrees.refuse_occupied(module)
    leaves = list(_tree.unique(_tree.walk(module)))
    tensors = []
    for name, param in leaves:
        saved = param.transform_for_save()
        host = backend_of(saved.device).to_host(saved.base())
        tensors.append((name, saved.dtype, saved.shape, _host.contiguous_bytes(host)))
    _core.write_file(os.fspath(path), tensors, metadata)
