"""How handlers run: side by side, in order of their keys, under locks that last, and to an end.

Each test is one application in this process, on either broker (`conftest`).
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sharegroup.client import Producer
from sharegroup.worker import App, Record, Reject, Release, Retry
from sharegroup.worker.events import Event
from tests.integration.worker import handlers
from tests.support.limits import HANGING_SECONDS

# A member of Apache Kafka's groups waits for its partitions until a heartbeat brings them.
SECONDS_MAX = HANGING_SECONDS
SHORT_LOCK = {"share.record.lock.duration.ms": "1000"}
NO_RETRY = Retry(max_attempts=1)

Test = Callable[[str, str, str], Coroutine[Any, Any, None]]


def run(test: Test) -> Callable[[str, str, str], None]:
    def runs(bootstrap: str, group: str, topic: str) -> None:
        asyncio.run(asyncio.wait_for(test(bootstrap, group, topic), SECONDS_MAX))

    runs.__name__ = test.__name__
    runs.__doc__ = test.__doc__
    return runs


async def until(condition: Callable[[], object], seconds: float = SECONDS_MAX) -> None:
    over = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < over, f"not within {seconds} s"
        await asyncio.sleep(0.005)


async def send(bootstrap: str, topic: str, *values: bytes, key: bytes | None = None) -> None:
    """All in one log batch, if they fit."""
    async with Producer(bootstrap_servers=bootstrap, linger_ms=50) as producer:
        some = [await producer.send(topic, value, key=key) for value in values]
        for event in some:
            await event


def app_of(bootstrap: str) -> tuple[App, list[Event]]:
    app = App("running", bootstrap_servers=bootstrap, grace="5s")
    events: list[Event] = []
    app.on("*", events.append)
    return app, events


def named(events: list[Event], name: str) -> list[Event]:
    return [event for event in events if event.name == name]


class Together:
    """How many are inside at a time."""

    def __init__(self) -> None:
        self.now = self.most = self.done = 0
        self.lock = threading.Lock()

    def __enter__(self) -> None:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.now -= 1
            self.done += 1


@run
async def test_coroutines_run_side_by_side_up_to_the_concurrency(
    bootstrap: str, group: str, topic: str
) -> None:
    app, _ = app_of(bootstrap)
    together = Together()

    @app.share_group(group, topics=topic, concurrency=16)
    async def wait(value: bytes) -> None:
        with together:
            await asyncio.sleep(0.05)

    async with app:
        await send(bootstrap, topic, *[b"x"] * 80)
        await until(lambda: together.done == 80)
    assert together.most == 16


@run
async def test_plain_functions_run_side_by_side_in_threads(
    bootstrap: str, group: str, topic: str
) -> None:
    app, _ = app_of(bootstrap)
    together, barrier = Together(), threading.Barrier(8, timeout=SECONDS_MAX)

    @app.share_group(group, topics=topic, concurrency=8)
    def wait(value: bytes) -> None:
        with together:
            barrier.wait()

    async with app:
        await send(bootstrap, topic, *[b"x"] * 24)
        await until(lambda: together.done == 24)
    assert together.most == 8


@run
async def test_a_crash_of_the_interpreter_fails_its_record_and_no_other(
    bootstrap: str, group: str, topic: str
) -> None:
    app, events = app_of(bootstrap)
    app.share_group(group, topics=topic, handler=handlers.pid_of, processes=2, retry=NO_RETRY)
    async with app:
        await send(bootstrap, topic, b"1", b"crash", b"2", b"3", b"4")
        await until(lambda: len(named(events, "record.dead_lettered")) == 5)
    errors = [event.error for event in named(events, "record.failed")]
    crashed = [error for error in errors if type(error).__name__ == "HandlerCrashed"]
    pids = {str(error) for error in errors if isinstance(error, LookupError)}
    assert [str(error) for error in crashed] == [
        "the process of handler pid_of ended with exit code 3"
    ]
    assert len(errors) == 5
    assert str(os.getpid()) not in pids
    assert "raise LookupError" in str(
        next(error for error in errors if isinstance(error, LookupError)).__cause__
    )


@run
async def test_a_process_that_hangs_is_killed_at_its_time_limit(
    bootstrap: str, group: str, topic: str
) -> None:
    app, events = app_of(bootstrap)
    app.share_group(
        group, topics=topic, handler=handlers.pid_of, processes=1, max_handling="1500ms",
        retry=NO_RETRY,
    )  # fmt: skip
    async with app:
        await send(bootstrap, topic, b"hang", b"after")
        await until(lambda: len(named(events, "record.dead_lettered")) == 2)
    (timed_out,) = named(events, "record.timed_out")
    assert (timed_out.offset, type(timed_out.error).__name__) == (0, "HandlingTimeout")


@pytest.mark.slow
@run
async def test_start_of_a_process_is_no_time_of_the_handler(
    bootstrap: str, group: str, topic: str
) -> None:
    """Otherwise, after one that hangs, each record would be killed while its process starts."""
    app, events = app_of(bootstrap)
    app.share_group(
        group, topics=topic, handler=handlers.Slow, processes=2, max_handling="1500ms",
        retry=NO_RETRY,
    )  # fmt: skip
    async with app:
        await send(bootstrap, topic, b"hang", b"hang", b"1", b"2", b"3")
        await until(lambda: len(named(events, "record.succeeded")) == 3)
        await until(lambda: len(named(events, "record.dead_lettered")) == 2)
    assert sorted(event.offset for event in named(events, "record.timed_out")) == [0, 1]


@run
async def test_explicit_decision_in_another_process_is_applied(
    bootstrap: str, group: str, topic: str
) -> None:
    app, events = app_of(bootstrap)
    app.share_group(group, topics=topic, handler=handlers.decide, processes=1)
    async with app:
        await send(bootstrap, topic, b"accept", b"reject")
        await until(lambda: named(events, "record.dead_lettered"))
        await until(lambda: app.worker and app.worker.counts[0].succeeded == 1)
    (rejected,) = named(events, "record.rejected")
    assert str(rejected.error) == "attempt 1 of offset 1"


@run
async def test_records_of_one_key_never_overlap_and_other_keys_continue(
    bootstrap: str, group: str, topic: str
) -> None:
    app, _ = app_of(bootstrap)
    inside: dict[bytes, Together] = defaultdict(Together)
    seen: dict[bytes, list[int]] = defaultdict(list)
    failed_once: set[int] = set()
    blocked = asyncio.Event()

    @app.share_group(
        group, topics=topic, concurrency=32, order_by="key",
        retry=Retry(initial_delay="50ms", jitter=0),
    )  # fmt: skip
    async def ordered(number: int, record: Record) -> None:
        key = record.key
        assert key is not None
        with inside[key]:
            if key == b"slow":
                await blocked.wait()
            await asyncio.sleep(0.001)
        if number % 10 == 3 and number not in failed_once:
            failed_once.add(number)
            raise TimeoutError
        seen[key].append(number)

    async with app:
        async with Producer(bootstrap_servers=bootstrap) as producer:
            for number in range(60):
                key = b"slow" if number % 3 == 0 else b"quick-%d" % (number % 3)
                await producer.send(topic, b"%d" % number, key=key)
        await until(lambda: sum(map(len, seen.values())) == 40)
        assert inside[b"slow"].now == 1
        blocked.set()
        await until(lambda: sum(map(len, seen.values())) == 60)
    assert {counter.most for counter in inside.values()} == {1}
    assert seen == {
        b"slow": list(range(0, 60, 3)),
        b"quick-1": list(range(1, 60, 3)),
        b"quick-2": list(range(2, 60, 3)),
    }


@run
async def test_a_lock_is_renewed_while_its_handler_runs(
    bootstrap: str, group: str, topic: str
) -> None:
    app, events = app_of(bootstrap)
    deadlines: list[tuple[float, float]] = []
    runs = 0

    @app.share_group(group, topics=topic, group_configs=SHORT_LOCK)
    async def slow(value: bytes, record: Record) -> None:
        nonlocal runs
        runs += 1
        begun = record.deadline
        await asyncio.sleep(3)
        assert record.seconds_left > 0
        deadlines.append((begun, record.deadline))

    async with app:
        await send(bootstrap, topic, b"x")
        await until(lambda: deadlines)
        await until(lambda: app.worker and app.worker.counts[0].succeeded == 1)
    ((first, last),) = deadlines
    assert last - first > 1.5
    assert (runs, named(events, "record.lock_lost")) == (1, [])


@pytest.mark.slow
@run
async def test_a_held_retry_keeps_its_lock_and_frees_its_slot(
    bootstrap: str, group: str, topic: str
) -> None:
    app, events = app_of(bootstrap)
    done: list[tuple[bytes, int, int]] = []

    @app.share_group(
        group, topics=topic, concurrency=1, group_configs=SHORT_LOCK,
        retry=Retry(initial_delay="2500ms", jitter=0),
    )  # fmt: skip
    async def flaky(value: bytes, record: Record) -> None:
        if value == b"flaky" and record.attempt == 1:
            raise TimeoutError
        done.append((value, record.attempt, record.delivery_attempt))

    async with app:
        await send(bootstrap, topic, b"flaky", b"after")
        await until(lambda: len(done) == 2)
    assert done == [(b"after", 1, 1), (b"flaky", 2, 1)]
    assert len(named(events, "record.held")) == 1


@run
async def test_a_handler_past_its_time_is_cancelled_and_has_failed(
    bootstrap: str, group: str, topic: str
) -> None:
    app, events = app_of(bootstrap)

    @app.share_group(group, topics=topic, max_handling="300ms", retry=NO_RETRY)
    async def hang(value: bytes) -> None:
        await asyncio.sleep(60)

    @app.share_group(group, topics=f"{topic}.threads", max_handling="300ms", retry=NO_RETRY)
    def spin(value: bytes) -> None:
        while True:
            time.sleep(0.01)

    async with app:
        await send(bootstrap, topic, b"x")
        await send(bootstrap, f"{topic}.threads", b"x")
        await until(lambda: len(named(events, "record.dead_lettered")) == 2)
    for event in named(events, "record.timed_out"):
        assert "max_handling is 0.3 s" in str(event.error)


@run
async def test_busy_handler_takes_no_more_records_than_it_can_start(
    bootstrap: str, group: str, topic: str
) -> None:
    """A worker hangs in its first record; another one gets all others of the same log batch."""
    first, _ = app_of(bootstrap)
    second, _ = app_of(bootstrap)
    begun, go_on = asyncio.Event(), asyncio.Event()
    done: list[bytes] = []

    @first.share_group(group, topics=topic, concurrency=1)
    async def hang(value: bytes) -> None:
        begun.set()
        await go_on.wait()

    @second.share_group(group, topics=topic, concurrency=1)
    async def work(value: bytes) -> None:
        done.append(value)

    async with first:
        await send(bootstrap, topic, *[b"%d" % n for n in range(100)])
        await begun.wait()
        async with second:
            await until(lambda: len(done) == 99)
        go_on.set()


@run
async def test_route_without_room_does_not_reduce_the_room_of_others(
    bootstrap: str, group: str, topic: str
) -> None:
    app, _ = app_of(bootstrap)
    go_on, done = asyncio.Event(), []

    @app.share_group(group, topics=f"{topic}.slow", concurrency=2)
    async def hang(value: bytes) -> None:
        await go_on.wait()

    @app.share_group(group, topics=topic, concurrency=2)
    async def work(value: bytes) -> None:
        done.append(value)

    async with app:
        await send(bootstrap, f"{topic}.slow", *[b"x"] * 500)
        await until(lambda: app.worker and app.worker.counts[0].running == 2)
        await send(bootstrap, topic, *[b"x"] * 200)
        await until(lambda: len(done) == 200)
        assert app.worker is not None
        assert app.worker.state.groups[0].waiting < 100
        go_on.set()


@run
async def test_a_batch_handler_gets_many_and_ends_each(
    bootstrap: str, group: str, topic: str
) -> None:
    app, events = app_of(bootstrap)
    sizes: list[int] = []

    @app.share_group(group, topics=topic, concurrency=2, batch=50, retry=NO_RETRY)
    async def load(values: list[int], records: list[Record]) -> list[Exception | None]:
        sizes.append(len(values))
        assert [record.offset for record in records] == values
        return [ValueError("seven") if value % 10 == 7 else None for value in values]

    async with app:
        await send(bootstrap, topic, *[b"%d" % n for n in range(100)], b"no number")
        await until(lambda: len(named(events, "record.dead_lettered")) == 11)
        await until(lambda: app.worker and app.worker.counts[0].succeeded == 90)
    assert max(sizes) <= 50
    assert sum(sizes) == 100
    assert len(sizes) <= 6
    failed = sorted(record.offset for record in named(events, "record.failed"))
    assert failed == [7, 17, 27, 37, 47, 57, 67, 77, 87, 97]
    assert [record.offset for record in named(events, "record.unreadable")] == [100]


@run
async def test_rate_limit_is_observed_and_fully_used(
    bootstrap: str, group: str, topic: str
) -> None:
    app, _ = app_of(bootstrap)
    times: list[float] = []

    @app.share_group(group, topics=topic, rate_limit="50/s")
    async def limited(value: bytes) -> None:
        times.append(time.monotonic())

    async with app:
        await send(bootstrap, topic, *[b"x"] * 150)
        await until(lambda: len(times) == 150)
    # 50 at once, and then one in each 20 ms.
    assert 1.95 < times[-1] - times[0] < 2.6


@run
async def test_stop_finishes_records_in_the_grace_period_and_releases_the_rest(
    bootstrap: str, group: str, topic: str
) -> None:
    first, events = app_of(bootstrap)
    second, _ = app_of(bootstrap)
    ended: list[bytes] = []
    again: list[tuple[bytes, int]] = []

    @first.share_group(group, topics=topic, concurrency=3)
    async def work(value: bytes) -> None:
        await asyncio.sleep({b"quick": 0.3}.get(value, 60))
        ended.append(value)

    @second.share_group(group, topics=topic)
    async def work_again(value: bytes, record: Record) -> None:
        again.append((value, record.delivery_attempt))

    await first.start()
    await send(bootstrap, topic, b"quick", b"slow-1", b"slow-2", b"waits")
    await until(lambda: first.worker and first.worker.counts[0].running == 3)
    report = await first.stop("600ms")
    async with second:
        await until(lambda: len(again) == 3)
    assert ended == [b"quick"]
    assert report is not None
    assert (report.handled, report.finished, report.interrupted) == (1, 1, 2)
    assert sum(report.released.values()) == 2
    assert sorted(value for value, _ in again) == [b"slow-1", b"slow-2", b"waits"]
    assert len(named(events, "record.released")) == 2


@run
async def test_a_second_stop_hurries(bootstrap: str, group: str, topic: str) -> None:
    app, _ = app_of(bootstrap)

    @app.share_group(group, topics=topic)
    async def work(value: bytes) -> None:
        await asyncio.sleep(60)

    await app.start()
    await send(bootstrap, topic, b"x")
    await until(lambda: app.worker and app.worker.counts[0].running == 1)
    first = asyncio.ensure_future(app.stop("60s"))
    await asyncio.sleep(0.1)
    assert not first.done()
    began = time.monotonic()
    await asyncio.gather(first, app.stop(0))
    assert time.monotonic() - began < 3


@pytest.mark.slow
@run
async def test_a_quiet_worker_finishes_under_its_locks_and_others_get_the_rest(
    bootstrap: str, group: str, topic: str
) -> None:
    quiet, events = app_of(bootstrap)
    other, _ = app_of(bootstrap)
    go_on, ended, others = asyncio.Event(), [], []

    @quiet.share_group(group, topics=topic, concurrency=2, group_configs=SHORT_LOCK)
    async def work(value: bytes, record: Record) -> None:
        await go_on.wait()
        ended.append((value, record.delivery_attempt))

    @other.share_group(group, topics=topic, group_configs=SHORT_LOCK)
    async def work_too(value: bytes) -> None:
        others.append(value)

    async with quiet:
        await send(bootstrap, topic, *[b"%d" % n for n in range(10)])
        worker = quiet.worker
        assert worker is not None
        await until(lambda: worker.counts[0].running == 2)
        worker.quiet()
        async with other:
            await until(lambda: len(others) == 8)
            await send(bootstrap, topic, *[b"%d" % n for n in range(10, 20)])
            await until(lambda: len(others) == 18)
            await asyncio.sleep(2.5)  # More than two locks long.
            assert (str(worker.state.phase), worker.counts[0].running) == ("quiet", 2)
            go_on.set()
            await until(lambda: len(ended) == 2)
        worker.resume()
        await send(bootstrap, topic, b"20")
        await until(lambda: len(ended) == 3)
    assert named(events, "record.lock_lost") == []
    assert {count for _, count in ended} == {1}
    assert len(others) == 18


@run
async def test_record_at_the_delivery_limit_is_buried_and_not_run(
    bootstrap: str, group: str, topic: str
) -> None:
    app, events = app_of(bootstrap)
    runs: list[int] = []

    @app.share_group(group, topics=topic)
    async def never_now(value: bytes, record: Record) -> None:
        runs.append(record.delivery_attempt)
        raise Release

    async with app:
        await send(bootstrap, topic, b"x")
        await until(lambda: named(events, "record.dead_lettered"))
    (buried,) = named(events, "record.dead_lettered")
    assert runs == [1, 2, 3, 4, 1, 2]  # The last two after it was put aside.
    assert buried.details["reason"] == "deliveries-exhausted"


@pytest.mark.parametrize("raised", [asyncio.CancelledError, SystemExit, BaseExceptionGroup])
def test_any_exception_of_a_handler_ends_only_its_run(
    bootstrap: str, group: str, topic: str, raised: type[BaseException]
) -> None:
    async def test(bootstrap: str, group: str, topic: str) -> None:
        app, events = app_of(bootstrap)
        done: list[bytes] = []

        @app.share_group(group, topics=topic, retry=NO_RETRY)
        async def bad(value: bytes) -> None:
            if value == b"bad":
                if raised is BaseExceptionGroup:
                    raise BaseExceptionGroup("several", [SystemExit(1), Reject("one")])
                raise raised
            done.append(value)

        async with app:
            await send(bootstrap, topic, b"bad", b"good")
            await until(lambda: named(events, "record.dead_lettered") and done)

    run(test)(bootstrap, group, topic)


@pytest.mark.slow
@run
async def test_held_record_does_not_stop_its_partition(
    bootstrap: str, group: str, topic: str
) -> None:
    """Apache Kafka reads a partition only up to a limit beyond its oldest unsettled record."""
    app, events = app_of(bootstrap)
    done: list[tuple[bytes, float]] = []

    @app.share_group(
        group, topics=topic, group_configs={"share.partition.max.record.locks": "100"},
        retry=Retry(initial_delay="4500ms", jitter=0),
    )  # fmt: skip
    async def flaky(value: bytes, record: Record) -> None:
        if value == b"flaky" and record.attempt == 1:
            raise TimeoutError
        done.append((value, time.monotonic()))

    async with app:
        for _ in range(10):
            await send(bootstrap, topic, *[b"x"] * 2)
        await until(lambda: len(done) == 20)
        began = time.monotonic()
        await send(bootstrap, topic, b"flaky")
        for _ in range(20):
            await send(bootstrap, topic, *[b"x"] * 50)
        await until(lambda: len(done) == 1021)
    times = [when for value, when in done if value == b"x"]
    ((_, again),) = [call for call in done if call[0] == b"flaky"]
    assert max(times) < again
    assert again - began >= 4.5
    assert [event.name for event in events if event.name in ("record.held", "record.failed")] == [
        "record.failed",
        "record.held",
    ]


@run
async def test_stop_reports_all_records_that_were_handled(
    bootstrap: str, group: str, topic: str
) -> None:
    app, _ = app_of(bootstrap)

    @app.share_group(group, topics=topic)
    async def work(value: bytes) -> None:
        pass

    await app.start()
    await send(bootstrap, topic, b"1", b"2", b"3")
    await until(lambda: app.worker and app.worker.counts[0].succeeded == 3)
    report = await app.stop()
    assert str(report) == "handled=3 finished=0 interrupted=0 released=0"


@pytest.mark.slow
@run
async def test_automatic_concurrency_follows_the_duration_of_handlers(
    bootstrap: str, group: str, topic: str
) -> None:
    app, _ = app_of(bootstrap)
    together, capacity = Together(), asyncio.Semaphore(6)

    @app.share_group(group, topics=topic, concurrency="auto")
    async def work(value: bytes) -> None:
        with together:
            async with capacity:
                await asyncio.sleep(0.005)

    async with app:
        await send(bootstrap, topic, *[b"x"] * 2000)
        await until(lambda: together.done == 2000)
    assert 8 <= together.most <= 48


@run
async def test_stop_interrupts_handlers_in_processes(
    bootstrap: str, group: str, topic: str
) -> None:
    app, events = app_of(bootstrap)
    app.share_group(group, topics=topic, handler=handlers.pid_of, processes=2)
    await app.start()
    await send(bootstrap, topic, b"hang", b"hang", b"hang")
    await until(lambda: app.worker and app.worker.counts[0].running == 2)
    report = await app.stop("200ms")
    assert report is not None
    assert (report.finished, report.interrupted) == (0, 2)
    assert named(events, "record.failed") == []


@run
async def test_without_renewal_a_handler_ends_with_its_lock(
    bootstrap: str, group: str, topic: str
) -> None:
    app, events = app_of(bootstrap)
    deliveries: list[int] = []
    settings = {**SHORT_LOCK, "share.renew.acknowledge.enable": "false"}

    @app.share_group(group, topics=topic, group_configs=settings)
    async def slow(value: bytes, record: Record) -> None:
        deliveries.append(record.delivery_attempt)
        if record.delivery_attempt == 1:
            await asyncio.sleep(60)

    async with app:
        await send(bootstrap, topic, b"x")
        await until(lambda: app.worker and app.worker.counts[0].succeeded == 1)
    assert deliveries == [1, 2]
    assert len(named(events, "record.lock_lost")) == 1
    assert named(events, "record.failed") == []
