"""What a thread has switched on in torch for its own computations, switched off for a while.

A parameter comes into being wherever it is first read: inside ``torch.inference_mode``, under
autocast, while ``vmap`` or a tracer runs. What is made there would be an inference tensor that can
never be trained, or a fake one without elements, and everybody who shares the parameter would get
it. :class:`Scope` makes the thread as it was born; in it nothing of that is on.

Some of this has no public name in torch. What a version of torch does not have is left alone here,
and what comes of it is refused by :meth:`TorchBackend.check`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch

from ..errors import InitInTransform

__all__ = ["Scope"]

_C: Any = torch._C


def _private(path: str) -> Callable[..., Any] | None:
    """A function of torch that has no public name, or None if this version does not have it."""
    found: Any = torch
    for name in path.split("."):
        found = getattr(found, name, None)
    return found if callable(found) else None


class _Switch(NamedTuple):
    """Something that may be on in a thread: how to tell, and how to do without."""

    is_on: Callable[[], Any]
    off: Callable[[], AbstractContextManager[Any]]


@contextmanager
def _no_dispatch_modes() -> Iterator[None]:
    """No FakeTensorMode, no tracer of operators."""
    from torch.utils import _python_dispatch

    with _python_dispatch._disable_current_modes():
        yield


@contextmanager
def _no_function_modes() -> Iterator[None]:
    """No default device, no ``with torch.device(...)``, no mode of anybody's."""
    overrides: Any = torch.overrides
    modes = [overrides._pop_mode() for _ in range(_C._len_torch_function_stack())]
    try:
        yield
    finally:
        for mode in reversed(modes):
            overrides._push_mode(mode)


@contextmanager
def _no_transforms() -> Iterator[None]:
    """No ``torch.func``: what the levels of grad, vmap and jvp are, they are again afterwards."""
    from torch._functorch import pyfunctorch

    with pyfunctorch.temporarily_clear_interpreter_stack():
        yield


@contextmanager
def _no_tracing() -> Iterator[None]:
    """No ``torch.jit.trace``: what makes a value is no part of somebody's graph."""
    state = _C._get_tracing_state()
    _C._set_tracing_state(None)
    try:
        yield
    finally:
        _C._set_tracing_state(state)


@contextmanager
def _no_compiler() -> Iterator[None]:
    """No ``torch.compile``: an initialiser is Python as it is written."""
    frames = _C._dynamo.eval_frame
    compiler = frames.set_eval_frame(None)
    try:
        yield
    finally:
        frames.set_eval_frame(compiler)


@contextmanager
def _no_autocast() -> Iterator[None]:
    kinds = [
        kind
        for kind in _C._autocast_supported_devices()
        if _C._is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    ]
    for kind in kinds:
        torch.set_autocast_enabled(kind, False)
    try:
        yield
    finally:
        for kind in kinds:
            torch.set_autocast_enabled(kind, True)


def _switches() -> tuple[_Switch, ...]:
    """What this version of torch knows of, the outermost first."""
    known = (
        (
            _private("_C._dynamo.eval_frame.get_eval_frame_callback"),
            _no_compiler,
            ("_C._dynamo.eval_frame.set_eval_frame",),
        ),
        (
            _private("_C._len_torch_dispatch_stack"),
            _no_dispatch_modes,
            ("utils._python_dispatch._disable_current_modes",),
        ),
        (
            _private("_C._len_torch_function_stack"),
            _no_function_modes,
            ("overrides._pop_mode", "overrides._push_mode"),
        ),
        (_private("_C._functorch.peek_interpreter_stack"), _no_transforms, ()),
        (_private("_C._get_tracing_state"), _no_tracing, ("_C._set_tracing_state",)),
        (
            _private("_C._is_any_autocast_enabled"),
            _no_autocast,
            ("_C._autocast_supported_devices", "_C._is_autocast_available"),
        ),
        (torch.is_inference_mode_enabled, lambda: torch.inference_mode(False), ()),
    )
    return tuple(
        _Switch(is_on, off)
        for is_on, off, needs in known
        if is_on is not None and all(_private(need) for need in needs)
    )


_SWITCHES = _switches()


class Scope:
    """A context in which a thread makes values on `device`: entered once, by the thread itself.

    It costs a microsecond or two where nothing is switched on but gradients.
    """

    __slots__ = ("_device", "_records", "_undo")

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._undo: ExitStack | None = None

    def __enter__(self) -> Self:
        on = [switch for switch in _SWITCHES if switch.is_on()]
        if on or self._device.type != "cpu":
            self._escape(on)
        self._records = torch.is_grad_enabled()
        _C._set_grad_enabled(False)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _C._set_grad_enabled(self._records)
        if self._undo is not None:
            self._undo.__exit__(kind, error, traceback)

    def _escape(self, on: list[_Switch]) -> None:
        """Switch off what is on, and make the device the current one."""
        with ExitStack() as undo:
            for switch in on:
                undo.enter_context(switch.off())
            if self._device.type != "cpu":
                undo.enter_context(self._current_device())
                _refuse_capture(self._device)
            self._undo = undo.pop_all()

    def _current_device(self) -> AbstractContextManager[Any]:
        """``torch.cuda.device(1)`` and its like; kinds with one device have none."""
        module: Any = torch.get_device_module(self._device.type)
        select = getattr(module, "device", None)
        return ExitStack() if select is None else select(self._device.index)


def _refuse_capture(device: torch.device) -> None:
    """Memory that is taken while a CUDA graph is captured belongs to the graph."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise InitInTransform(
            "a value would come into being while a CUDA graph is captured",
            expected=f"parameters on torch:{device} in being before the capture",
            remedy="Call module.initialize() first.",
        )
