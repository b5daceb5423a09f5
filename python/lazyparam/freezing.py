"""What of a module is to be trained: changed by groups, taken down, and put back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from . import _tree, selection
from ._core import Param
from .errors import GroupError
from .flags import Flag
from .groups import ParamGroup
from .selection import GroupLike

__all__ = ["restored", "switched", "training_state", "wished"]

M = TypeVar("M")


def wished(root: M, requires_grad: bool, group: GroupLike | None, allow_missing: bool) -> M:
    """`root` with another wish to train for the parameters of `group`; flags stay as they are."""
    chosen = selection.choose(root, group, allow_missing=allow_missing, flags=False)

    def wish(_: str, param: Param[Any]) -> Param[Any]:
        return param.set_requires_grad(requires_grad) if chosen(param) else param

    return _tree.rebuild(root, wish)


def switched(root: M, on: bool, group: GroupLike | None, allow_missing: bool) -> M:
    """`root` with the parameters and flags of `group` for training, or not."""
    chosen = selection.choose(root, group, allow_missing=allow_missing)

    def wish(_: str, param: Param[Any]) -> Param[Any]:
        return param.set_requires_grad(on) if chosen(param) else param

    def switch(_: str, flag: Flag) -> Flag:
        return flag.with_value(on) if chosen(flag) else flag

    return _tree.rebuild(root, wish, change_flag=switch)


def training_state(root: object, group: GroupLike | None, allow_missing: bool) -> dict[str, bool]:
    """Path -> whether it is to be trained, for the parameters and flags of `group`."""
    chosen = selection.choose(root, group, allow_missing=allow_missing)
    state: dict[str, bool] = {}

    def look(path: str, param: Param[Any]) -> None:
        if chosen(param):
            state[path] = param.requires_grad

    def look_at_flag(path: str, flag: Flag) -> None:
        if chosen(flag):
            state[path] = flag.is_active

    _tree.visit(root, look, look_at_flag=look_at_flag)
    return state


def restored(root: M, state: Mapping[str, bool], allow_missing: bool) -> M:
    """`root` with what `state` says; what it does not name stays as it is."""
    if not isinstance(state, Mapping):
        raise GroupError(
            "this is no training state",
            expected="paths and bools, as training_state() gives",
            found=type(state).__name__,
        )
    for path, wish in state.items():
        if not isinstance(wish, bool):
            raise GroupError(
                "a training state says True or False", path=str(path), found=f"{wish!r:.80}"
            )
    if not allow_missing and state:
        selection.choose(root, ParamGroup.from_paths(*state))
    wishes: dict[int, bool] = {}

    def look(path: str, leaf: Param[Any] | Flag) -> None:
        # One handle may be at several paths, of which a rebuild tells the first only.
        if path in state and wishes.setdefault(id(leaf), state[path]) != state[path]:
            raise GroupError(
                "this is in the module at another path too, for which the state says otherwise",
                path=path,
                expected=str(wishes[id(leaf)]),
                found=str(state[path]),
            )

    _tree.visit(root, look, look_at_flag=look)

    def wish_of(_: str, param: Param[Any]) -> Param[Any]:
        return param.set_requires_grad(wishes[id(param)]) if id(param) in wishes else param

    def switch(_: str, flag: Flag) -> Flag:
        return flag.with_value(wishes[id(flag)]) if id(flag) in wishes else flag

    return _tree.rebuild(root, wish_of, change_flag=switch)
