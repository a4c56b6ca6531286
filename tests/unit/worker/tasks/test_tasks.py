"""Tasks with Celery's interface: sent, run, retried, with results; in virtual time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sharegroup.worker import Reject, RetryAfter
from sharegroup.worker.tasks import (
    AsyncResult,
    Ignore,
    MaxRetriesExceededError,
    Task,
    TaskApp,
    TaskFailed,
    TaskRevokedError,
    crontab,
    registry,
    shared_task,
    task_app,
)
from sharegroup.worker.tasks.options import task_options
from sharegroup.worker.testing.app_test import AppTest

SOON_SECONDS = 4.0
"""Less than the five seconds for which a stop waits for the slots of handlers."""
START = datetime(2026, 1, 1, tzinfo=UTC)
"""The first moment of a test in virtual time."""


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tasks and applications of a test are not those of the next one."""
    shared: dict[str, Any] = {}
    made: list[TaskApp] = []
    for module in (registry, task_app):
        monkeypatch.setattr(module, "SHARED", shared)
        monkeypatch.setattr(module, "MADE", made)
    return


def run(app: TaskApp, test: Callable[[AppTest], Awaitable[None]]) -> None:
    async def inside() -> None:
        async with app.test() as t:
            await test(t)

    asyncio.run(inside())


@pytest.fixture
def app() -> TaskApp:
    return TaskApp("shop", backend="memory://")


def test_plain_functions_and_coroutines_run_and_have_results(app: TaskApp) -> None:
    threads: list[bool] = []

    @app.task
    def add(x: int, y: int = 1) -> int:
        threads.append(threading.current_thread() is not threading.main_thread())
        return x + y

    @app.task
    async def double(x: int) -> dict[str, int]:
        threads.append(threading.current_thread() is not threading.main_thread())
        return {"x": 2 * x}

    async def test(t: AppTest) -> None:
        sums = [await add.adelay(2, 3), await add.adelay(2), await add.adelay(2, y=5)]
        doubled = await double.adelay(x=4)
        assert await doubled.afacts() is None
        await t.settle()
        assert [await result.aget(timeout=0) for result in sums] == [5, 3, 7]
        assert await doubled.aget(timeout=1) == {"x": 8}
        assert sorted(threads) == [False, True, True, True]
        assert add(2, 2) == 4
        (record, *_) = t.in_topic("shop.default")
        assert record.value == (
            b'{"task":"tests.unit.worker.tasks.test_tasks.add","args":[2,3],"kwargs":{}}'
        )

    run(app, test)


def test_task_in_a_thread_sends_another_and_reads_no_result(app: TaskApp) -> None:
    @app.task
    def inner() -> str:
        return "done"

    @app.task
    def outer() -> list[str]:
        sent = inner.delay()
        with pytest.raises(RuntimeError, match="if all places of the workers wait"):
            sent.get(timeout=1)
        return [sent.id, sent.state]

    async def test(t: AppTest) -> None:
        first = await outer.adelay()
        await t.settle()
        inner_id, state = await first.aget(timeout=0)
        assert state in ("PENDING", "SUCCESS")
        assert await app.AsyncResult(inner_id).aget(timeout=0) == "done"
        assert await outer.AsyncResult(inner_id).aget(timeout=0) == "done"

    run(app, test)


def test_request_says_which_run_it_is(app: TaskApp) -> None:
    seen: list[Any] = []

    @app.task(bind=True, name="seen", queue="other", autoretry_for=(ValueError,), max_retries=1)
    def look(self: Task[..., Any], x: int) -> None:
        request = self.request
        seen.append((request.id, request.task, request.args, request.kwargs, request.retries))
        seen.append((request.delivery_info["routing_key"], request.headers["trace"]))
        raise ValueError

    async def test(t: AppTest) -> None:
        await look.aapply_async((1,), task_id="number-1", headers={"trace": "t"})
        await t.advance("10m")
        call = ("number-1", "seen", (1,), {})
        assert seen == [(*call, 0), ("other", "t"), (*call, 1), ("other", "t")]
        assert look.request.id is None
        assert look.request.called_directly
        with pytest.raises(AttributeError, match=r"'correlation_id'; id \(docs"):
            _ = look.request.correlation_id

    run(app, test)


def call() -> None:
    raise ConnectionError("no answer")


def failing(app: TaskApp, **options: Any) -> tuple[Task[..., Any], list[int]]:
    runs: list[int] = []

    @app.task(bind=True, name="failing", **options)
    def fail(self: Task[..., Any], how: str = "raise") -> None:
        runs.append(self.request.retries)
        if how == "retry":
            raise self.retry()
        try:
            call()
        except ConnectionError as error:
            if how == "retry-with":
                raise self.retry(exc=error, countdown=7, max_retries=1) from error
            raise

    return fail, runs


@pytest.mark.parametrize(
    ("options", "times"),
    [
        ({}, (0,)),
        ({"autoretry_for": (ValueError,)}, (0,)),
        ({"autoretry_for": (ConnectionError,)}, (0, 180, 360, 540)),
        ({"autoretry_for": (Exception,), "dont_autoretry_for": (OSError,)}, (0,)),
        ({"autoretry_for": (OSError,), "max_retries": 0}, (0,)),
        (
            {"autoretry_for": (OSError,), "retry_kwargs": {"max_retries": 2, "countdown": 5}},
            (0, 5, 10),
        ),
        (
            {"autoretry_for": (OSError,), "retry_backoff": 3, "retry_backoff_max": 10,
             "retry_jitter": False},
            (0, 3, 9, 19),
        ),
    ],
)  # fmt: skip
def test_autoretry_follows_celerys_rules(
    app: TaskApp, options: dict[str, Any], times: tuple[int, ...]
) -> None:
    fail, runs = failing(app, **options)

    async def test(t: AppTest) -> None:
        await fail.adelay()
        for before, then in zip(times, (*times[1:], 3600), strict=True):
            await t.settle()
            assert runs[-1] == times.index(before)
            await t.advance(then - before - 0.5)
            assert len(runs) == times.index(before) + 1
            await t.advance(0.5)
        (letter,) = t.dead_letters
        assert letter.death.reason == "not-retried"

    run(app, test)


def test_self_retry_raises_what_it_was_given_when_it_is_enough(app: TaskApp) -> None:
    fail, runs = failing(app, max_retries=2, default_retry_delay=4)

    async def test(t: AppTest) -> None:
        with_error, without = await fail.adelay("retry-with"), await fail.adelay("retry")
        await t.settle()
        facts = await with_error.afacts()
        assert facts is not None
        assert facts.error_text == "builtins.ConnectionError: no answer"
        await t.advance("7s")
        assert sorted(runs) == [0, 0, 1, 1]
        await t.advance("1s")
        assert sorted(runs) == [0, 0, 1, 1, 2]
        with pytest.raises(TaskFailed, match="after 2 runs") as failed:
            await with_error.aget(timeout=0)
        assert failed.value.error_class == "builtins.ConnectionError"
        assert isinstance(failed.value, ConnectionError)
        assert 'raise ConnectionError("no answer")' in failed.value.traceback
        error = await without.aget(timeout=0, propagate=False)
        assert error.error_class == "sharegroup.worker.tasks.MaxRetriesExceededError"

    run(app, test)
    with pytest.raises(RuntimeError, match="was called as a plain one"):
        fail("retry")
    assert fail.MaxRetriesExceededError is MaxRetriesExceededError


def test_retry_refuses_another_call(app: TaskApp) -> None:
    fail, _ = failing(app)
    with pytest.raises(Exception, match="a retry is the same record"):
        fail.retry(args=(1,))
    with pytest.raises(Exception, match=r"raise self\.retry"):
        fail.retry(throw=False)


def test_jitter_and_growth_are_bounded() -> None:
    options = task_options("t", {"retry_backoff": True, "retry_backoff_max": 600})
    assert [options.countdown(retries, 0.999999) for retries in (0, 1, 3, 9, 10_000)] == [
        1, 2, 8, 512, 600,
    ]  # fmt: skip
    assert options.countdown(5, 0.0) == 0
    assert task_options("t", {"retry_backoff": False}).countdown(3, 0.5) == 180


def test_countdown_eta_and_expires(app: TaskApp) -> None:
    ran: list[str] = []

    @app.task
    def note(what: str) -> None:
        ran.append(what)

    async def test(t: AppTest) -> None:
        await note.aapply_async(("countdown",), countdown=60)
        await note.aapply_async(("eta",), eta=START + timedelta(seconds=30))
        await note.aapply_async(("past",), eta=START - timedelta(days=1))
        late = await note.aapply_async(("late",), expires=START - timedelta(seconds=1))
        await note.aapply_async(("in time",), countdown=10, expires=5)
        await t.advance("29s")
        assert ran == ["past", "in time"]
        await t.advance("31s")
        assert ran == ["past", "in time", "eta", "countdown"]
        with pytest.raises(TaskRevokedError, match="expired"):
            await late.aget(timeout=0)
        with pytest.raises(ValueError, match=r"has no zone.*django\.utils\.timezone"):
            await note.aapply_async(("x",), eta=datetime(2026, 1, 1))  # noqa: DTZ001
        with pytest.raises(ValueError, match=r"expires=2026.* has no zone.*datetime\.now\(UTC\)"):
            await note.aapply_async(("x",), expires=datetime(2026, 1, 1))  # noqa: DTZ001
        with pytest.raises(ValueError, match="expected one of them"):
            await note.aapply_async(("x",), eta=START, countdown=1)

    run(app, test)


def test_priorities_have_topics(app: TaskApp) -> None:
    app.conf.task_queue_max_priority = 9

    @app.task(priority=9)
    def urgent() -> None: ...

    @app.task
    def usual() -> None: ...

    async def test(t: AppTest) -> None:
        await urgent.adelay()
        await urgent.aapply_async(priority=0)
        await usual.adelay()
        await usual.aapply_async(priority=7)
        await t.settle()
        sizes = [len(t.in_topic(f"shop.default{level}")) for level in (".high", "", ".low")]
        assert sizes == [2, 1, 1]

    run(app, test)
    assert app.worker_app.route_list[0].priorities == {"shop.default": 3, "shop.default.high": 10}


def test_results_are_left_out(app: TaskApp) -> None:
    @app.task(ignore_result=True)
    def silent(x: object) -> object:
        return object()

    @app.task(name="ignoring")
    def ignoring() -> None:
        raise Ignore

    @app.task
    def rejecting() -> None:
        raise Reject("no")

    @app.task
    def odd() -> object:
        return {1, 2}

    async def test(t: AppTest) -> None:
        quiet = await silent.adelay(1)
        ignored, rejected, wrong = [await task.adelay() for task in (ignoring, rejecting, odd)]
        chosen = await ignoring.aapply_async(ignore_result=True)
        await t.settle()
        assert await quiet.aget(timeout=0) is None
        assert await quiet.afacts() is await chosen.afacts() is None
        assert await ignored.aget(timeout=0) is None
        for result, text in ((rejected, "no"), (wrong, "type builtins.set.*send a list")):
            with pytest.raises(TaskFailed, match=text):
                await result.aget(timeout=0)
        assert [letter.death.reason for letter in t.dead_letters] == ["rejected", "rejected"]

    run(app, test)


def test_result_says_where_to_look_when_there_is_none(app: TaskApp) -> None:
    async def test(t: AppTest) -> None:
        waiting = asyncio.create_task(app.AsyncResult("unknown").aget(timeout=2))
        await t.advance("2s")
        with pytest.raises(TimeoutError, match=r"unknown is PENDING after 2 s.*shop\.default"):
            await waiting

    run(app, test)
    without = TaskApp("bare")

    async def look(_: AppTest) -> None:
        with pytest.raises(Exception, match="backend='redis"):
            await without.AsyncResult("x").afacts()

    run(without, look)


def test_time_limit_interrupts_both_kinds(app: TaskApp) -> None:
    begun: list[str] = []
    ended: list[str] = []

    @app.task(time_limit=0.01)
    def thread() -> None:
        try:
            begun.append("thread")
            while True:
                time.sleep(0.001)
        finally:
            ended.append("thread")

    @app.task(time_limit=0.01, autoretry_for=(TimeoutError,), max_retries=1, retry_backoff=1)
    async def coroutine() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("coroutine")

    async def test(t: AppTest) -> None:
        first, second = await thread.adelay(), await coroutine.adelay()
        await t.advance("1s")
        with pytest.raises(
            TaskFailed, match=r"HandlingTimeout: .*thread ran for more than 0\.01 s"
        ):
            await first.aget(timeout=0)
        with pytest.raises(TaskFailed, match="coroutine ran for more"):
            await second.aget(timeout=0)
        # On a machine that is slow, the limit may be over before the thread has begun the task.
        assert {"coroutine", *begun} <= {*ended}
        assert ended.count("coroutine") == 2

    run(app, test)


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_call_through_the_worker_of_the_process_has_a_limit(
    app: TaskApp, elsewhere: bool
) -> None:
    cancelled = threading.Event()

    @app.task
    def unused() -> None: ...

    async def never(_: object) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def call() -> None:
        with pytest.raises(TimeoutError, match=r"no answer from .* within 0\.1 s"):
            await app.acall(never, 0.1 - task_app.CALL_SECONDS)

    async def test(_: AppTest) -> None:
        if elsewhere:
            await asyncio.to_thread(asyncio.run, call())
        else:
            await call()
        assert await asyncio.to_thread(cancelled.wait, SOON_SECONDS)

    run(app, test)


def test_unknown_task_and_wrong_arguments_become_dead_letters(app: TaskApp) -> None:
    @app.task(name="shop.add", typing=False)
    def add(x: int) -> int:
        return x

    async def test(t: AppTest) -> None:
        unknown = await app.asend_task("shop.ad", (1,))
        wrong = await add.adelay(1, 2)
        known = await app.asend_task("shop.add", kwargs={"x": 4})
        await t.settle()
        with pytest.raises(TaskFailed, match=r"no task 'shop\.ad'; did you mean 'shop\.add'"):
            await unknown.aget(timeout=0)
        with pytest.raises(TaskFailed, match="too many positional arguments"):
            await wrong.aget(timeout=0)
        assert await known.aget(timeout=0) == 4

    run(app, test)


def test_shared_tasks_belong_to_the_application_that_runs_or_was_made_last(app: TaskApp) -> None:
    @shared_task
    def second() -> str:
        return "second"

    @shared_task(queue="shared")
    def first() -> str:
        return second.delay().id

    async def test(t: AppTest) -> None:
        sent = await first.adelay()
        other = TaskApp("other")  # From now on the last one.
        await t.settle()
        assert await app.AsyncResult(await sent.aget(timeout=0)).aget() == "second"
        assert second.app is other
        app.set_current()
        assert second.app is app

    run(app, test)


def test_shared_task_without_an_application_says_where_to_import_it() -> None:
    @shared_task
    def alone() -> None: ...

    with pytest.raises(RuntimeError, match=r"__init__\.py: from \.celery import app"):
        alone.delay()


def test_beat_schedule_makes_runs(app: TaskApp) -> None:
    ran: list[tuple[str, Any]] = []

    @app.task(bind=True, name="note")
    def note(self: Task[..., Any], what: str, by: int = 0) -> None:
        ran.append((what, self.request.id))

    app.conf.timezone = "Europe/Berlin"
    app.conf.beat_schedule = {
        "daily": {"task": "note", "schedule": crontab(hour=6, minute=[0, 30]), "args": ("daily",)},
        "often": {"task": note, "schedule": 600, "kwargs": {"what": "often", "by": 1}},
        "hourly": {"task": "note", "schedule": timedelta(hours=1), "args": ["hourly"],
                   "options": {"expires": 60, "queue": "default"}, "revision": 3},
    }  # fmt: skip

    async def test(t: AppTest) -> None:
        await t.advance("6h")
        counts = {what: sum(1 for seen, _ in ran if seen == what) for what, _ in ran}
        assert counts == {"often": 36, "hourly": 6, "daily": 2}
        assert len({task_id for _, task_id in ran}) == len(ran)

    run(app, test)
    revisions = {entry.name: entry.revision for entry in app.worker_app.schedule_list}
    assert revisions == {"daily": 1, "often": 1, "hourly": 3}


def test_eager_tasks_run_here(app: TaskApp) -> None:
    app.conf.task_always_eager = True
    fail, runs = failing(app, autoretry_for=(ConnectionError,))

    @app.task
    async def pair(x: int) -> tuple[int, int]:
        return x, x

    assert pair.delay(1).get() == [1, 1]
    failed = fail.delay()
    assert (failed.state, failed.failed(), runs) == ("FAILURE", True, [0, 1, 2, 3])
    assert isinstance(failed.result, ConnectionError)
    assert "no answer" in str(failed.traceback)
    with pytest.raises(ConnectionError, match="no answer"):
        failed.get()
    app.conf.task_eager_propagates = True
    with pytest.raises(ConnectionError, match="no answer"):
        fail.delay()

    async def inside() -> AsyncResult:
        return await pair.adelay(2)

    later = asyncio.run(inside())
    assert later.result == [2, 2]
    # Without a connection: an eager application may have no broker.
    assert (later.facts(), later.revoke()) == (None, False)
    assert (asyncio.run(later.afacts()), asyncio.run(later.arevoke())) == (None, False)
    app.conf.task_always_eager = False
    assert pair.apply((3,)).get() == [3, 3]


def test_retry_without_a_limit_ends_in_eager_mode(app: TaskApp) -> None:
    @app.task(bind=True, max_retries=None)
    def endless(self: Task[..., Any]) -> None:
        raise self.retry()

    assert isinstance(endless.apply().result, RetryAfter)


def test_blocking_call_in_a_coroutine_is_refused(app: TaskApp) -> None:
    @app.task
    def add(x: int) -> int:
        return x

    async def inside() -> None:
        with pytest.raises(RuntimeError, match=r"use await task\.adelay"):
            add.delay(1)

    asyncio.run(inside())


def test_stop_does_not_wait_for_a_thread_that_does_not_end(app: TaskApp) -> None:
    release = threading.Event()
    begun = threading.Event()

    @app.task
    def stuck() -> None:
        begun.set()
        release.wait()  # In C, where no exception arrives.

    async def test(t: AppTest) -> None:
        await stuck.adelay()
        while not begun.is_set():
            await asyncio.sleep(0.001)

    runner = threading.Thread(target=run, args=(app, test), daemon=True)
    runner.start()
    runner.join(SOON_SECONDS)
    assert not runner.is_alive()
    release.set()


def test_queue_that_is_declared_too_late_is_refused(app: TaskApp) -> None:
    async def test(_: AppTest) -> None:
        @app.task(queue="late")
        def late() -> None: ...

        with pytest.raises(Exception, match=r"'late' was declared after .*has default"):
            await late.adelay()

    run(app, test)


def test_retry_takes_a_time(app: TaskApp) -> None:
    runs: list[float] = []

    async def test(t: AppTest) -> None:
        @app.task(bind=True, max_retries=1)
        def timed(self: Task[..., Any]) -> None:
            runs.append(t.now)
            self.retry(eta=START + timedelta(seconds=20))

        await timed.adelay()
        await t.advance("19s")
        assert runs == [0]
        await t.advance("1s")
        assert len(runs) == 2

    run(app, test)
