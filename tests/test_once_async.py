"""Coroutines: refused where they would be used up, awaited where that is meant."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import threading
import time
import weakref
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import pytest

import lazyparam as lp
from tests import once_scenarios as scenarios
from tests.helpers import Boom
from tests.once_forms import LAZY_GET, ONCE, Form, Gate, Runs, every_form, promptly


async def load() -> int:
    return 1


class Loader:
    async def __call__(self) -> int:
        return 1

    async def method(self) -> int:
        return 1

    @staticmethod
    async def static() -> int:
        return 1


@every_form
def test_a_coroutine_function_is_refused(form: Form) -> None:
    """maxfischer2781/asyncstdlib#149, pydanny/cached-property#85: awaited by nobody, or twice."""
    scenarios.a_coroutine_function_is_refused(form)


@pytest.mark.parametrize(
    "make",
    [
        lambda: lp.Lazy(load),
        lambda: lp.OnceCell().get_or_init(load),
        lambda: lp.lazy(load),
        lambda: lp.lazy.in_slot("_x")(load),
        lambda: lp.once(load),
    ],
    ids=["Lazy", "OnceCell", "lazy", "in_slot", "once"],
)
def test_a_plain_coroutine_function_is_refused_when_it_is_given(make: Any) -> None:
    """odysseus-dev/odysseus#6173: with a hint what to do instead."""
    with pytest.raises(lp.LazyTypeError, match=r"load is a coroutine function.*aget\(\)") as caught:
        make()
    assert isinstance(caught.value, TypeError)
    assert "asyncio.run" in str(caught.value.remedy)


@pytest.mark.parametrize(
    "factory",
    [
        Loader(),
        Loader().method,
        Loader.static,
        functools.partial(load),
        functools.partial(functools.partial(Loader().method)),
        lambda: load(),
    ],
    ids=["async __call__", "method", "static", "partial", "partial method", "lambda"],
)
@every_form
def test_whatever_gives_a_coroutine_is_refused_when_it_does(form: Form, factory: Any) -> None:
    """sqlalchemy/sqlalchemy#5581: and the coroutine is closed, so nobody misses its await."""
    with pytest.raises(lp.LazyTypeError, match="coroutine function"):
        form(factory)()


def test_generators_are_values_like_others() -> None:
    """Not awaited by anybody, so no mistake; one generator for all who read."""

    def numbers() -> Iterator[int]:
        yield from range(3)

    async def later() -> AsyncIterator[int]:
        yield 1

    cell = lp.Lazy(numbers)
    assert cell.value is cell.value
    assert list(cell.value) == [0, 1, 2]
    assert list(cell.value) == []
    assert hasattr(lp.Lazy(later).value, "__anext__")


def test_an_awaitable_that_is_no_coroutine_is_a_value() -> None:
    """sqlalchemy/sqlalchemy#5581: one that can be awaited any number of times is of use."""

    class Ready:
        def __await__(self) -> Generator[None, None, int]:
            yield
            return 3

    cell = lp.Lazy(Ready)

    async def main() -> list[int]:
        return [await cell.value, await cell.value]

    assert asyncio.run(main()) == [3, 3]


def test_concurrent_awaits_run_once() -> None:
    """maxfischer2781/asyncstdlib#149: and the loop goes on meanwhile."""
    factory = Runs(0.03)
    cell = lp.Lazy(factory)

    async def main() -> tuple[list[Any], int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while not cell.is_ready:
                ticks += 1
                await asyncio.sleep(0.001)

        *values, _ = await asyncio.gather(*(cell.aget() for _ in range(20)), tick())
        return values, ticks

    values, ticks = asyncio.run(main())
    assert factory.runs == 1
    assert all(value is values[0] for value in values)
    assert ticks > 1


def test_an_await_of_what_is_there_does_not_leave_the_loop() -> None:
    """ryananguiano/async_property#20: no thread, no turn of the loop."""
    cell = lp.Lazy.of("there")
    coroutine = cell.aget()
    with pytest.raises(StopIteration) as caught:
        coroutine.send(None)
    assert caught.value.value == "there"


def test_cancelling_the_first_who_waits_neither_cancels_nor_wedges_the_rest() -> None:
    """odysseus-dev/odysseus#6173, ryananguiano/async_property#20: the recurring bug."""
    gate = Gate()
    cell: lp.Lazy[list[int]] = lp.Lazy(gate)

    async def main() -> list[int]:
        first = asyncio.ensure_future(cell.aget())
        await asyncio.to_thread(gate.running.wait, 30)
        second = asyncio.ensure_future(cell.aget())
        await asyncio.sleep(0.01)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(cell.aget(), 0.01)
        assert not second.done()
        gate.finish.set()
        return await second

    assert promptly(lambda: asyncio.run(main())) == [1]
    assert gate.runs == 1
    assert cell.value == [1]


def test_a_failure_is_that_of_one_await_and_the_next_one_tries_again() -> None:
    """pydanny/cached-property#85: a cached task keeps its exception."""
    cell = lp.Lazy(Runs(0.01, failures=2))

    async def main() -> list[Any]:
        outcomes = await asyncio.gather(*(cell.aget() for _ in range(5)), return_exceptions=True)
        return [*outcomes, await cell.aget()]

    *outcomes, last = asyncio.run(main())
    assert sorted(str(outcome) for outcome in outcomes) == ["[3]"] * 3 + ["run 1", "run 2"]
    assert last == [3]


def test_loops_of_two_threads_share_a_value() -> None:
    """sqlalchemy/sqlalchemy#5581: a cell belongs to no loop."""
    cell = lp.Lazy(Runs(0.01))
    found = scenarios.race([lambda: asyncio.run(cell.aget())] * 3)
    assert found[0] is found[1] is found[2]


@pytest.mark.parametrize("form", [LAZY_GET, ONCE], ids=lambda form: form.name)
def test_a_coroutine_that_comes_back_to_what_its_thread_makes_is_refused(form: Form) -> None:
    """Kotlin/kotlinx.coroutines#1682: the factory runs a loop, whose coroutine reads the cell."""

    async def coroutine() -> Any:
        return made()

    made = form(lambda: asyncio.run(coroutine()))
    with pytest.raises(lp.LazyCycleError):
        promptly(made)


def test_a_factory_may_run_a_loop_of_its_own() -> None:
    """What the hint of the error says."""
    cell = lp.Lazy(lambda: asyncio.run(load()))
    assert cell.value == 1

    async def main() -> int:
        return await lp.Lazy(lambda: asyncio.run(load())).aget()

    assert asyncio.run(main()) == 1


def test_more_awaits_than_the_executor_has_threads_end() -> None:
    """maxfischer2781/asyncstdlib#149: those who wait leave its threads to the factory."""

    async def main() -> list[int]:
        loop = asyncio.get_running_loop()

        def factory() -> int:
            return asyncio.run_coroutine_threadsafe(asyncio.to_thread(int, 3), loop).result(30)

        cell = lp.Lazy(factory)
        return await asyncio.gather(*(cell.aget() for _ in range(100)))

    start = time.monotonic()
    assert asyncio.run(main()) == [3] * 100
    assert time.monotonic() - start < 20


def test_a_failure_that_nobody_waits_for_any_more_is_nobodys() -> None:
    """odysseus-dev/odysseus#6173: no complaint about an exception that was never retrieved."""
    complaints: list[Any] = []
    gate = Gate()

    def factory() -> list[int]:
        if gate() == [1]:
            raise Boom
        return [2]

    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: complaints.append(context))
        cell = lp.Lazy(factory)
        first = asyncio.ensure_future(cell.aget())
        await asyncio.to_thread(gate.running.wait, 30)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        second = asyncio.ensure_future(cell.aget())
        await asyncio.sleep(0)
        gate.finish.set()
        value = await second
        assert await cell.aget() is value
        return value

    assert promptly(lambda: asyncio.run(main())) == [2]
    gc.collect()
    assert complaints == []


def test_the_factory_sees_the_context_of_one_who_awaits() -> None:
    """sqlalchemy/sqlalchemy#5581: as with `asyncio.to_thread`."""
    variable = contextvars.ContextVar("variable", default="default")
    cell = lp.Lazy(variable.get)

    async def main() -> str:
        variable.set("mine")
        return await cell.aget()

    assert asyncio.run(main()) == "mine"


def test_a_factory_that_raises_stop_iteration_ends_the_wait() -> None:
    """A future cannot hold a StopIteration; a coroutine turns it into a RuntimeError itself."""
    cell: lp.Lazy[int] = lp.Lazy(lambda: next(iter(())))

    async def twice() -> None:
        for _ in range(2):
            with pytest.raises(RuntimeError, match="StopIteration"):
                await asyncio.wait_for(cell.aget(), 30)

    asyncio.run(twice())
    with pytest.raises(StopIteration):
        cell.get()


def test_a_deadlock_through_a_loop_that_a_factory_runs_is_an_error() -> None:
    outer: lp.Lazy[int] = lp.Lazy(lambda: asyncio.run(wait_for_inner()))
    inner: lp.Lazy[int] = lp.Lazy(lambda: outer.value + 1)

    async def wait_for_inner() -> int:
        return await inner.aget()

    with pytest.raises(lp.LazyCycleError):
        outer.get()
    assert not outer.is_ready
    assert not inner.is_ready


def test_a_loop_that_is_closed_meanwhile_is_let_go_of() -> None:
    gate = threading.Event()
    cell: lp.Lazy[int] = lp.Lazy(lambda: gate.wait(30))
    loop = asyncio.new_event_loop()
    task = loop.create_task(cell.aget())
    loop.run_until_complete(asyncio.sleep(0.05))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    reference = weakref.ref(loop)
    gate.set()
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    del loop, task
    gc.collect()
    assert reference() is None


def test_an_error_is_let_go_of_with_those_who_awaited_it() -> None:
    class Big:
        """Something that a frame of the factory holds."""

    def factory() -> None:
        big = Big()
        references.append(weakref.ref(big))
        raise Boom

    references: list[weakref.ref[Big]] = []

    async def fails() -> None:
        with pytest.raises(Boom):
            await lp.Lazy(factory).aget()

    asyncio.run(fails())
    gc.collect()
    assert [reference() for reference in references] == [None]
