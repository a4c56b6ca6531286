"""Dead letters and the way back as an application sees them; on either broker (`conftest`)."""

from __future__ import annotations

import asyncio

import pytest

from sharegroup.client import Producer
from sharegroup.dead_letters.letter import letter_of
from sharegroup.dead_letters.queue import DeadLetterQueue
from sharegroup.dead_letters.redrive import Redrive
from sharegroup.dead_letters.redrive_copies import RedriveOptions
from sharegroup.errors import InvalidConfig
from sharegroup.worker import App, BrokerDeadLetter, DeadLetter, Record, Reject, Retry
from tests.integration.worker.collecting import Collected, on_a_loop
from tests.integration.worker.dead import make_topics, until_there

AT_ONCE = Retry(max_attempts=2, initial_delay="1ms", multiplier=1, jitter=0)


def app_of(bootstrap: str) -> App:
    return App("dead", bootstrap_servers=bootstrap, grace="5s")


async def send(bootstrap: str, topic: str, *values: bytes) -> None:
    async with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
        for value in values:
            headers = [("tag", b"\xff"), ("tag", None)]
            await producer.send_and_wait(topic, value, key=b"k", headers=headers)


async def redrive(
    bootstrap: str, dead: str, *, topic: str = "", **options: object
) -> dict[str, int]:
    """Redrive the letters of a group, or those that claim to be from ``topic``."""
    async with (
        DeadLetterQueue(dead, bootstrap_servers=bootstrap) as queue,
        Producer(bootstrap_servers=bootstrap) as producer,
    ):
        names = frozenset({topic, f"{dead.removesuffix('.dead')}.retry"})
        run = Redrive(queue, producer, RedriveOptions(confirmed=names, **options))  # type: ignore[arg-type]
        return dict((await run.run(asyncio.Event())).sent)


@on_a_loop
async def test_redriven_records_are_handled_after_a_bug_is_fixed(
    bootstrap: str, group: str, topic: str
) -> None:
    app, runs = app_of(bootstrap), Collected()
    is_fixed = False

    @app.share_group(group, topics=topic, retry=AT_ONCE, dead_letter=DeadLetter())
    async def bill(value: bytes, record: Record) -> None:
        runs.add("run" if is_fixed else "failed", value, record)
        if not is_fixed:
            raise ZeroDivisionError("a bug")

    @app.share_group(f"{group}.other", topics=topic)
    async def other(value: bytes) -> None:
        runs.add("other", value)

    await make_topics(bootstrap, topic)
    dead = f"{group}.dead"
    async with app:
        await send(bootstrap, topic, b"a", b"b")
        await runs.wait_for(6)
        letters = await until_there(bootstrap, dead, 2)
        is_fixed = True
        assert await redrive(bootstrap, dead) == {f"{group}.retry": 2}
        await runs.wait_for(8)
    death = letter_of(dead, 0, letters[0]).death
    assert (death.reason, death.group, death.handler) == ("attempts-exhausted", group, "bill")
    assert (death.error_class, death.error_message) == ("builtins.ZeroDivisionError", "a bug")
    assert 'raise ZeroDivisionError("a bug")' in death.traceback
    assert len(runs.seen("other")) == 2, "another group has nothing to do with it"
    again: list[Record] = sorted(
        (run[1] for run in runs.seen("run")), key=lambda record: record.offset
    )
    assert [(record.topic, record.offset, record.value) for record in again] == [
        (topic, 0, b"a"), (topic, 1, b"b"),
    ]  # fmt: skip
    first = again[0]
    assert (first.key, tuple(first.headers)) == (b"k", (("tag", b"\xff"), ("tag", None)))
    assert (first.attempt, first.redrives, first.redrive_id) == (1, 1, f"{group}/{topic}/0/0/0")
    assert [attempt.message for attempt in first.history] == ["a bug", "a bug"]


@on_a_loop
async def test_redriven_record_that_fails_again_has_both_histories(
    bootstrap: str, group: str, topic: str
) -> None:
    app, runs = app_of(bootstrap), Collected()

    @app.share_group(group, topics=topic, retry=AT_ONCE, dead_letter=DeadLetter())
    async def bill(value: bytes, record: Record) -> None:
        runs.add("run", record.redrives)
        raise ZeroDivisionError(f"after {record.redrives} redrives")

    await make_topics(bootstrap, topic)
    dead = f"{group}.dead"
    async with app:
        await send(bootstrap, topic, b"a")
        for redrives in range(2):
            await until_there(bootstrap, dead, redrives + 1)
            assert await redrive(bootstrap, dead, redrives_max=2) == {f"{group}.retry": 1}
        letters = await until_there(bootstrap, dead, 3)
        assert await redrive(bootstrap, dead, redrives_max=2) == {}, "no circle"
    assert [number for (number,) in runs.seen("run")] == [0, 0, 1, 1, 2, 2]
    last = letter_of(dead, 0, letters[2])
    assert (last.story.failures, last.redrives) == (2, 2)
    assert [attempt.message[:7] for attempt in last.story.attempts] == [
        "after 0", "after 0", "after 1", "after 1", "after 2", "after 2",
    ]  # fmt: skip
    assert last.story.origin is not None
    assert last.story.origin[:3] == (topic, 0, 0)


@on_a_loop
async def test_group_that_handles_dead_letters_has_separate_attempts(
    bootstrap: str, group: str, topic: str
) -> None:
    app, runs = app_of(bootstrap), Collected()
    dead = f"{group}.dead"

    @app.share_group(group, topics=topic, retry=None, dead_letter=DeadLetter(dead))
    async def bill(value: bytes) -> None:
        raise ZeroDivisionError

    @app.share_group(f"{group}.triage", topics=dead, retry=AT_ONCE)
    async def triage(value: bytes, record: Record) -> None:
        runs.add("triage", record)
        if record.attempt == 1:
            raise TimeoutError

    await make_topics(bootstrap, topic, dead)
    async with app:
        await send(bootstrap, topic, b"a")
        await runs.wait_for(2)
    records: list[Record] = [record for (record,) in runs.seen("triage")]
    assert [record.attempt for record in records] == [1, 2]
    assert {(record.topic, record.offset) for record in records} == {(dead, 0)}


@on_a_loop
async def test_record_sent_back_to_its_topic_is_a_new_one_for_others(
    bootstrap: str, group: str, topic: str
) -> None:
    app, runs = app_of(bootstrap), Collected()

    @app.share_group(group, topics=topic, retry=None, dead_letter=DeadLetter())
    async def bill(value: bytes, record: Record) -> None:
        runs.add("bill", record.redrives)
        if not record.redrives:
            raise Reject("not yet")

    @app.share_group(f"{group}.other", topics=topic, retry=AT_ONCE)
    async def other(value: bytes, record: Record) -> None:
        runs.add("other", record.offset, record.attempt)
        if record.offset == 1 and record.attempt == 1:
            raise TimeoutError

    await make_topics(bootstrap, topic)
    async with app:
        await send(bootstrap, topic, b"a")
        await until_there(bootstrap, f"{group}.dead", 1)
        assert await redrive(bootstrap, f"{group}.dead", topic=topic, to="original") == {topic: 1}
        await runs.wait_for(5)
    assert runs.seen("bill") == [(0,), (1,)]
    assert runs.seen("other") == [(0, 1), (1, 1), (1, 2)]


@on_a_loop
async def test_largest_record_can_be_dead_lettered_and_redriven(
    bootstrap: str, group: str, topic: str
) -> None:
    app, runs = app_of(bootstrap), Collected()
    largest = b"x" * (1024 * 1024 - 200)

    @app.share_group(group, topics=topic, retry=None, dead_letter=DeadLetter())
    async def bill(value: bytes, record: Record) -> None:
        runs.add("run", value)
        if not record.redrives:
            raise ValueError("too large to be done")

    await make_topics(bootstrap, topic)
    async with app:
        await send(bootstrap, topic, largest)
        await until_there(bootstrap, f"{group}.dead", 1)
        async with (
            DeadLetterQueue(f"{group}.dead", bootstrap_servers=bootstrap) as queue,
            Producer(bootstrap_servers=bootstrap, request_bytes_max=2**21) as producer,
        ):
            options = RedriveOptions(confirmed=frozenset({f"{group}.retry"}))
            await Redrive(queue, producer, options).run(asyncio.Event())
        await runs.wait_for(2)
    assert runs.seen("run") == [(largest,), (largest,)]


@on_a_loop
async def test_broker_writes_the_letters_of_a_group_with_broker_dead_letter(
    bootstrap: str, group: str, topic: str
) -> None:
    app, runs = app_of(bootstrap), Collected()
    dead = f"dlq.{group}"

    @app.share_group(group, topics=topic, retry=AT_ONCE, dead_letter=BrokerDeadLetter(dead))
    async def bill(value: bytes, record: Record) -> None:
        runs.add("run", record.redrives, record.redrive_id, tuple(record.headers))
        if not record.redrives:
            raise ZeroDivisionError

    await make_topics(bootstrap, topic)
    async with app:
        await send(bootstrap, topic, b"a")
        (letter,) = await until_there(bootstrap, dead, 1)
        assert await redrive(bootstrap, dead) == {f"{group}.retry": 1}
        await runs.wait_for(3)
    assert letter_of(dead, 0, letter).death.by_broker
    assert runs.seen("run")[2] == (1, f"{dead}/0/0", (("tag", b"\xff"), ("tag", None)))


@on_a_loop
async def test_redrive_without_confirmations_is_refused(bootstrap: str, topic: str) -> None:
    """It would mark letters as sent back that no broker has."""
    await make_topics(bootstrap, topic)
    async with (
        DeadLetterQueue(topic, bootstrap_servers=bootstrap) as queue,
        Producer(bootstrap_servers=bootstrap, acks=0, idempotent=False) as producer,
    ):
        with pytest.raises(InvalidConfig, match="acks=0 never does"):
            Redrive(queue, producer, RedriveOptions())
