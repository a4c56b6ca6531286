"""Functions in threads: as many as wanted, interrupted where Python can, and never mixed up."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

import pytest

from sharegroup.worker.executors.threads import HandlerThreads, Interrupted, also_interrupting
from tests.support.limits import HANGING_SECONDS


def run(test: Callable[[HandlerThreads], Awaitable[None]], threads: int = 4) -> None:
    async def runs() -> None:
        some = HandlerThreads(threads)
        async with asyncio.timeout(HANGING_SECONDS):
            await test(some)
        some.close()

    asyncio.run(runs())


def test_call_returns_the_result_or_raises_the_exception_of_the_function() -> None:
    async def test(threads: HandlerThreads) -> None:
        assert await threads.call(lambda a, b: a + b, 1, 2) == 3
        with pytest.raises(ZeroDivisionError):
            await threads.call(lambda: 1 / 0)
        with pytest.raises(SystemExit):
            await threads.call(raiser(SystemExit))
        with pytest.raises(RuntimeError, match="StopIteration"):
            await threads.call(raiser(StopIteration))

    run(test)


def test_number_of_concurrent_calls_is_the_number_of_threads() -> None:
    async def test(threads: HandlerThreads) -> None:
        barrier = threading.Barrier(4, timeout=HANGING_SECONDS)
        names = set()

        def meet() -> None:
            barrier.wait()
            names.add(threading.current_thread().name)

        await asyncio.gather(*(threads.call(meet) for _ in range(12)))
        assert len(names) <= 4

    run(test)


def test_python_loop_is_interrupted_and_its_thread_is_reused() -> None:
    async def test(threads: HandlerThreads) -> None:
        running = threading.Event()
        cleaned = []

        def spin() -> None:
            running.set()
            try:
                while True:
                    time.sleep(0.001)
            except Interrupted:
                cleaned.append(1)
                raise

        call = asyncio.ensure_future(threads.call(spin))
        await asyncio.to_thread(running.wait, HANGING_SECONDS)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert cleaned == [1]
        assert await threads.call(lambda: "next") == "next"

    run(test, threads=1)


def test_cancelled_caller_waits_for_a_blocking_call() -> None:
    async def test(threads: HandlerThreads) -> None:
        go_on, running = threading.Event(), threading.Event()

        def block() -> None:
            running.set()
            go_on.wait(HANGING_SECONDS)

        call = asyncio.ensure_future(threads.call(block))
        await asyncio.to_thread(running.wait, HANGING_SECONDS)
        call.cancel()
        await asyncio.sleep(0)
        assert not call.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await call

    run(test, threads=1)


def test_call_that_a_stop_abandons_leaves_no_exception_for_asyncio_to_report() -> None:
    reported: list[object] = []

    async def test(threads: HandlerThreads) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        go_on, running = threading.Event(), threading.Event()
        used = list[threading.Thread]()

        def block() -> None:
            used.append(threading.current_thread())
            running.set()
            go_on.wait(HANGING_SECONDS)

        call = asyncio.ensure_future(threads.call(block))
        await asyncio.to_thread(running.wait, HANGING_SECONDS)
        threads.close()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        go_on.set()
        await asyncio.to_thread(used[0].join, HANGING_SECONDS)
        assert not used[0].is_alive()

    run(test, threads=1)
    gc.collect()
    assert reported == []


def test_an_interrupt_never_hits_the_next_handler() -> None:
    async def test(threads: HandlerThreads) -> None:
        for n in range(200):
            call = asyncio.ensure_future(threads.call(time.sleep, 0.0005))
            await asyncio.sleep(0.0005 * (n % 3))
            call.cancel()
            after = asyncio.ensure_future(threads.call(lambda: sum(range(100))))
            await asyncio.gather(call, return_exceptions=True)
            assert await after == 4950

    run(test, threads=1)


def test_call_cancelled_before_a_thread_is_free_does_not_run() -> None:
    async def test(threads: HandlerThreads) -> None:
        go_on, ran = threading.Event(), list[int]()
        first = asyncio.ensure_future(threads.call(go_on.wait, HANGING_SECONDS))
        second = asyncio.ensure_future(threads.call(ran.append, 1))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert (await first, ran) == (True, [])

    run(test, threads=1)


def test_call_runs_in_the_context_of_its_caller() -> None:
    variable: ContextVar[str] = ContextVar("variable")

    async def test(threads: HandlerThreads) -> None:
        variable.set("here")
        assert await threads.call(variable.get) == "here"

    run(test)


def test_function_that_returns_a_coroutine_is_an_error() -> None:
    async def test(threads: HandlerThreads) -> None:
        async def handler() -> None: ...

        with pytest.raises(TypeError, match="async def"):
            await threads.call(lambda: handler())

    run(test)


def raiser(error: type[BaseException]) -> Callable[[], None]:
    def raises() -> None:
        raise error

    return raises


def test_thread_that_cannot_start_fails_its_call_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may have no more threads for a moment; later calls run, and the failed one not."""
    refused = [True]
    start = threading.Thread.start

    def start_or_not(thread: threading.Thread) -> None:
        if refused:
            refused.clear()
            raise RuntimeError("can't start new thread")
        start(thread)

    async def test(threads: HandlerThreads) -> None:
        ran: list[str] = []
        monkeypatch.setattr(threading.Thread, "start", start_or_not)
        with pytest.raises(RuntimeError, match="new thread"):
            await threads.call(ran.append, "failed")
        await threads.call(ran.append, "later")
        assert ran == ["later"]

    run(test, threads=1)


def test_a_thread_that_waits_for_work_elsewhere_passes_its_interruption_on() -> None:
    async def test(threads: HandlerThreads) -> None:
        waits, work_ends = threading.Event(), threading.Event()

        def handler() -> None:
            with also_interrupting(work_ends.set):
                waits.set()
                work_ends.wait()  # Not in Python: no interruption arrives here.

        call = asyncio.ensure_future(threads.call(handler))
        await asyncio.to_thread(waits.wait, HANGING_SECONDS)
        call.cancel()
        await asyncio.wait((call,))
        assert call.cancelled()
        with also_interrupting(raiser(AssertionError)):
            assert await threads.call(work_ends.is_set)

    run(test, threads=1)
