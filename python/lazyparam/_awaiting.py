"""What `Lazy.aget` does; on its own, because only those who use asyncio should import it."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from ._core import Lazy, thread_number

_T = TypeVar("_T")

# The threads that make values for those who await them: one for each cell and event loop, so that
# those who wait leave the loop's executor to the factory. A run that goes on keeps its future.
_runs: WeakKeyDictionary[
    asyncio.AbstractEventLoop, WeakValueDictionary[Lazy[Any], asyncio.Future[Any]]
]
_runs = WeakKeyDictionary()
_runs_lock = threading.Lock()


def _get(cell: Lazy[_T], caller: int) -> _T:
    """The value, for the thread `caller`, which runs the loop and may be making another one."""
    try:
        return cell._get_for(caller)
    except StopIteration as error:
        # As where a coroutine raises it itself: a future could not hold it (PEP 479).
        raise RuntimeError("the factory raised StopIteration") from error


async def aget(cell: Lazy[_T]) -> _T:
    """What :meth:`Lazy.aget` does."""
    while not cell.is_ready:
        loop = asyncio.get_running_loop()
        with _runs_lock:
            runs = _runs.setdefault(loop, WeakValueDictionary())
        if (run := runs.get(cell)) is None:
            context = contextvars.copy_context()
            run = loop.run_in_executor(None, context.run, _get, cell, thread_number())
            runs[cell] = run

            def ended(run: asyncio.Future[_T]) -> None:
                runs.pop(cell, None)  # noqa: B023 - it is the last turn of the loop
                if not run.cancelled():
                    run.exception()  # is known, also where nobody waits any more

            run.add_done_callback(ended)
            try:
                return await asyncio.shield(run)
            finally:
                del run  # which may hold an error, and that this frame
        # A failure is that of whoever began; one of those who wait begins anew.
        await asyncio.wait([run])
    return cell.value
