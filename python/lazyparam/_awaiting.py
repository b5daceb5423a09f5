"""What `Lazy.aget` does; on its own, because only those who use asyncio should import it."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from ._core import Lazy

_T = TypeVar("_T")

# The threads that make values for those who await them: one for each cell and event loop, so that
# those who wait leave the loop's executor to the factory. The inner dicts are their loops' own.
_runs: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Lazy[Any], asyncio.Future[Any]]]
_runs = WeakKeyDictionary()
_runs_lock = threading.Lock()


async def aget(cell: Lazy[_T]) -> _T:
    """What :meth:`Lazy.aget` does."""
    while not cell.is_ready:
        loop = asyncio.get_running_loop()
        with _runs_lock:
            runs = _runs.setdefault(loop, {})
        if (run := runs.get(cell)) is None:
            context = contextvars.copy_context()
            run = runs[cell] = loop.run_in_executor(None, context.run, cell.get)

            def ended(run: asyncio.Future[_T]) -> None:
                del runs[cell]  # noqa: B023 - it is the last turn of the loop
                if not run.cancelled():
                    run.exception()  # is known, also where nobody waits any more

            run.add_done_callback(ended)
            return await asyncio.shield(run)
        # A failure is that of whoever began; one of those who wait begins anew.
        await asyncio.wait([run])
    return cell.value
