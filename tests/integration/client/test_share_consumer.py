"""The consumer's rules, on a broker in the same process."""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from sharegroup.client import (
    AcknowledgementResult,
    AcknowledgeType,
    DeserializationError,
    IllegalStateError,
    ShareConsumer,
)
from sharegroup.errors import InvalidRecordState, TopicAuthorizationFailed, UnsupportedVersion
from sharegroup.testing import ManualClock
from tests.integration.client.group_on_a_broker import (
    LOCK_SECONDS,
    POLL_SECONDS,
    WHERE,
    Bench,
    kafka,
    play,
    values,
)


def test_explicit_mode_wants_every_record_settled_before_the_next_poll() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member() as member:
            first, *others = await member.poll(POLL_SECONDS)
            first.accept()
            with pytest.raises(IllegalStateError, match="3 records of topic 't' partition 0"):
                await member.poll(POLL_SECONDS)
            for record in others:
                member.acknowledge(record)
            assert await member.commit() == {WHERE: None}
            assert await member.commit() == {}
        assert await bench.lag() == 0

    play(scenario)


def test_record_that_is_released_with_a_delay_comes_again_after_it() -> None:
    """On a broker without delays the consumer keeps the record for that time."""

    async def scenario(bench: Bench) -> None:
        async with bench.member() as member:
            first, second, *others = await member.poll(POLL_SECONDS)
            began = time.monotonic()
            first.release(delay="600ms")
            second.release(delay=timedelta(0))
            member.accept(others)
            (again,) = await member.poll(POLL_SECONDS)
            assert (again.offset, again.delivery_count) == (1, 2)
            assert time.monotonic() - began < 0.6, "it has no delay"
            again.accept()
            (again,) = await member.poll(POLL_SECONDS)
            assert (again.offset, again.delivery_count) == (0, 2)
            assert time.monotonic() - began >= 0.6
            with pytest.raises(ValueError, match="0 to 24 hours, found 1 day, 0:00:01"):
                again.release(delay=timedelta(days=1, seconds=1))
            with pytest.raises(ValueError, match="expected numbers with units, as '250ms'"):
                again.release(delay="30")
            again.accept()

    play(scenario)


@pytest.mark.skipif(bool(kafka), reason="there every broker has no delays")
def test_consumer_says_once_that_it_keeps_records_itself(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker that does not name the feature; records that are settled meanwhile stay settled."""
    monkeypatch.setattr("sharegroup.client.net.connection.DELAY_FEATURE", "unknown")

    async def scenario(bench: Bench) -> None:
        async with bench.member() as member:
            records = await member.poll(POLL_SECONDS)
            for record in records:
                record.release(delay=timedelta(seconds=0.3))
            records[0].accept()
            with pytest.raises(IllegalStateError, match="can't be released later: it is settled"):
                records[0].release(delay=timedelta(seconds=0.3))
            again = await member.poll(POLL_SECONDS)
            assert [record.offset for record in again] == [1, 2, 3]
            member.accept(again)
        assert await bench.lag() == 0

    with caplog.at_level(logging.INFO):
        play(scenario)
    assert caplog.text.count("event=release.held") == 1


def test_implicit_mode_accepts_with_the_next_poll_and_with_commit() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member("implicit") as member:
            assert values(await member.poll(POLL_SECONDS, max_records=3)) == [b"0", b"1", b"2"]
            assert values(await member.poll(POLL_SECONDS)) == [b"3"]
            await member.commit()
            assert await bench.lag() == 0

    play(scenario)


def test_implicit_mode_releases_records_after_an_exception() -> None:
    async def scenario(bench: Bench) -> None:
        async def interrupted() -> None:
            async with bench.member("implicit") as member:
                await member.poll(POLL_SECONDS)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await interrupted()
        async with bench.member("implicit") as member:
            assert [record.delivery_count for record in await member.poll(POLL_SECONDS)] == [2] * 4

    play(scenario)


@pytest.mark.parametrize("columns", [False, True], ids=["records", "columns"])
@pytest.mark.parametrize("end", ["leave", "close", "unsubscribe"])
def test_implicit_mode_releases_what_no_later_call_accepted(
    end: str, columns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member("implicit") as member:
            poll = member.poll_arrow if columns else member.poll
            await poll(POLL_SECONDS, max_records=3)
            await poll(POLL_SECONDS)  # Accepts the first three.
            if end == "close":
                assert (await member.close()).released == {WHERE: 1}
            elif end == "unsubscribe":
                await member.unsubscribe()
        assert await bench.lag() == 1
        async with bench.member("implicit") as member:
            (again,) = await member.poll(POLL_SECONDS)
            assert (again.value, again.delivery_count) == (b"3", 2)
            await member.commit()
        assert await bench.lag() == 0

    play(scenario)
    lines = [line for line in caplog.messages if "event=consumer.released" in line]
    assert len(lines) == (end != "unsubscribe"), "one line for an exit, none for unsubscribe"
    assert all(" records=1 " in line and "commit()" in line for line in lines)


def test_nothing_is_logged_when_every_record_was_accepted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member("implicit") as member:
            await member.poll(POLL_SECONDS)
            await member.commit()
        async with bench.member() as member:
            await member.poll(0.01)

    play(scenario)
    assert "consumer.released" not in caplog.text


def test_iteration_accepts_a_record_when_the_next_one_is_requested() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member("implicit") as member:
            async for record in member:
                if record.value == b"2":
                    break
        assert await bench.lag() == 2

    play(scenario)


def test_released_records_are_redelivered_and_rejected_ones_are_not() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member() as member:
            for record in await member.poll(POLL_SECONDS):
                if record.value == b"1":
                    record.release()
                else:
                    record.settle(AcknowledgeType.REJECT)
            (again,) = await member.poll(POLL_SECONDS)
            assert (again.value, again.delivery_count) == (b"1", 2)
            again.accept()

    play(scenario)


def test_a_record_is_settled_by_its_position() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member() as member:
            await member.poll(POLL_SECONDS)
            for offset in range(4):
                member.acknowledge_offset("t", 0, offset, AcknowledgeType.ACCEPT)
            with pytest.raises(IllegalStateError, match="offset 4 is not held"):
                member.acknowledge_offset("t", 0, 4, AcknowledgeType.ACCEPT)
            assert await member.commit() == {WHERE: None}

    play(scenario)


def test_callback_gets_all_results_during_the_next_call() -> None:
    async def scenario(bench: Bench) -> None:
        heard: list[AcknowledgementResult] = []
        async with bench.member() as member:
            member.set_acknowledgement_commit_callback(heard.append)
            first, *others = await member.poll(POLL_SECONDS)
            first.accept()
            await member.commit(wait=False)
            for record in others:
                record.accept()
            await member.commit()
        assert sorted(offset for result in heard for offset in result.offsets) == [0, 1, 2, 3]
        assert {result.error for result in heard} == {None}

    play(scenario)


def test_results_of_acknowledgements_in_a_fetch_are_returned_by_the_next_commit() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member() as member:
            for record in await member.poll(POLL_SECONDS):
                record.accept()
            # The acknowledgements are sent with a fetch that finds no records and waits.
            assert await member.poll(0.01) == []
            assert await member.commit() == {WHERE: None}
        assert await bench.lag() == 0

    play(scenario)


def test_commit_returns_its_own_results_and_logs_an_older_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The first accepts fail with a fetch because their locks ended; the second are durable."""
    clock = ManualClock()

    async def scenario(bench: Bench) -> None:
        async with bench.member() as member:
            for record in await member.poll(POLL_SECONDS):
                record.accept()
            clock.advance(LOCK_SECONDS)
            again = await member.poll(POLL_SECONDS)
            assert [record.delivery_count for record in again] == [2] * 4
            for record in again:
                record.accept()
            assert await member.commit() == {WHERE: None}
            assert await member.commit() == {}
        assert await bench.lag() == 0

    play(scenario, clock=clock)
    (logged,) = failures(caplog)
    assert "group=g" in logged
    assert "topic=t partition=0 error=InvalidRecordState(" in logged


def test_commit_without_acknowledgements_returns_an_earlier_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()

    async def scenario(bench: Bench) -> None:
        async with bench.member() as member:
            for record in await member.poll(POLL_SECONDS):
                record.accept()
            clock.advance(LOCK_SECONDS)
            await member.poll(POLL_SECONDS)
            assert [type(error) for error in (await member.commit()).values()] == [
                InvalidRecordState
            ]

    play(scenario, clock=clock)
    assert failures(caplog) == []


def test_a_failure_of_the_last_acknowledgements_is_logged_at_close(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()

    async def scenario(bench: Bench) -> None:
        async with bench.member() as member:
            for record in await member.poll(POLL_SECONDS):
                record.accept()
            clock.advance(LOCK_SECONDS)
        assert await bench.lag() == 4

    play(scenario, clock=clock)
    (logged,) = failures(caplog)
    assert "topic=t partition=0 error=InvalidRecordState(" in logged


def test_calls_of_a_closed_consumer_are_refused() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member() as member:
            records = await member.poll(POLL_SECONDS)
        for record in records:
            record.accept()
        for late in (member.commit, member.unsubscribe, member.poll):
            with pytest.raises(IllegalStateError, match="this consumer is closed"):
                await late()
        with pytest.raises(IllegalStateError, match="this consumer is closed"):
            await member.commit(wait=False)

    play(scenario)


def failures(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.getMessage().startswith("event=acknowledgement.failed")
    ]


def test_deserialization_error_ends_a_poll_and_its_record_is_not_accepted() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.fill(b"four")
        async with bench.member("implicit", value_deserializer=int) as member:
            assert values(await member.poll(POLL_SECONDS)) == [0, 1, 2, 3]
            with pytest.raises(DeserializationError, match="'t' partition 0 offset 4"):
                await member.poll(POLL_SECONDS)
            await member.commit()
            assert await bench.lag() == 1

    play(scenario)


def test_one_poll_at_a_time() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member() as member:
            for record in await member.poll(POLL_SECONDS):
                record.accept()
            waiting = asyncio.create_task(member.poll(POLL_SECONDS))
            await asyncio.sleep(0)
            with pytest.raises(IllegalStateError, match="poll is already running"):
                await member.poll()
            await bench.fill(b"4")
            (record,) = await waiting
            record.accept()

    play(scenario)


def test_a_closed_consumer_ends_a_poll_that_waits() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member() as member:
            for record in await member.poll(POLL_SECONDS):
                record.accept()
            waiting = asyncio.create_task(member.poll(POLL_SECONDS))
            await asyncio.sleep(0)
            await member.close()
            with pytest.raises(IllegalStateError, match="was closed during a poll"):
                await waiting
            with pytest.raises(IllegalStateError, match="is closed"):
                await member.poll()
        assert await bench.lag() == 0

    play(scenario)


def test_unsubscribe_releases_records_and_a_new_subscription_starts_over() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member() as member:
            given_up, *_ = await member.poll(POLL_SECONDS)
            await member.unsubscribe()
            with pytest.raises(IllegalStateError, match="offset 0 is not held"):
                given_up.accept()
            assert member.assignment == frozenset()
            with pytest.raises(IllegalStateError, match="is not subscribed to any topics"):
                await member.poll()
            member.subscribe("t")
            again = await member.poll(POLL_SECONDS)
            assert [record.delivery_count for record in again] == [2] * 4

    play(scenario)


@pytest.mark.parametrize("topics", [(), ([],)], ids=["no topics", "an empty list"])
def test_subscribing_to_no_topics_leaves_the_group_and_releases_records(
    topics: tuple[Any, ...],
) -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member() as member:
            given_up, *_ = await member.poll(POLL_SECONDS)
            member.subscribe(*topics)
            assert member.subscription == frozenset()
            with pytest.raises(IllegalStateError, match="is not subscribed to any topics"):
                await member.poll()
            member.subscribe(["t"])
            again = await member.poll(POLL_SECONDS)
            assert [record.delivery_count for record in again] == [2] * 4
            with pytest.raises(IllegalStateError, match="offset 0 is not held"):
                given_up.accept()

    play(scenario)


def test_unsubscribe_leaves_the_group_after_an_unfinished_earlier_leave() -> None:
    async def until(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(POLL_SECONDS):
            while not condition():
                await asyncio.sleep(0.01)

    async def scenario(bench: Bench) -> None:
        async with bench.member() as member:
            await member.poll(POLL_SECONDS)
            member.subscribe()
            await until(lambda: not member.flow.is_joined)
            member.subscribe("t")
            await until(lambda: bool(member.assignment))
            await member.unsubscribe()
            assert (member.flow.is_joined, member.assignment) == (False, frozenset())

    play(scenario)


def test_close_after_subscribing_to_no_topics_leaves_the_group() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member("implicit") as member:
            await member.poll(POLL_SECONDS)
            member.subscribe()
        assert await bench.lag() == 4  # Implicit mode accepts nothing here, as in Java.

    play(scenario)


def test_a_consumer_that_never_subscribed_can_unsubscribe_and_not_poll() -> None:
    async def scenario(bench: Bench) -> None:
        consumer = ShareConsumer(bootstrap_servers=bench.bootstrap_servers, group_id="g")
        async with consumer:
            consumer.subscribe()
            for poll in (consumer.poll, consumer.poll_arrow):
                with pytest.raises(IllegalStateError, match="is not subscribed to any topics"):
                    await poll()

    play(scenario)


@pytest.mark.parametrize(
    ("topics", "error", "message"),
    [
        ((7,), TypeError, "topic 7: expected the name of a topic, found int"),
        (("t", ["u"]), TypeError, r"topic \['u'\]: expected the name of a topic, found list"),
        ((["t", None],), TypeError, "topic None: expected the name of a topic, found NoneType"),
        ((b"t",), TypeError, "topic b't': expected the name of a topic, found bytes"),
        ((" ",), ValueError, "topic ' ': expected the name of a topic, found blanks"),
    ],
)
def test_subscription_to_an_invalid_topic_is_refused(
    topics: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member() as member:
            with pytest.raises(error, match=message):
                member.subscribe(*topics)
            assert member.subscription == {"t"}

    play(scenario)


def test_two_members_share_one_partition() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member() as consumer, bench.member() as other:
            mine = await consumer.poll(POLL_SECONDS, max_records=4)
            await bench.fill(b"4")
            (theirs,) = await other.poll(POLL_SECONDS)
            assert (values(mine), theirs.value) == ([b"0", b"1", b"2", b"3"], b"4")
            for record in (*mine, theirs):
                record.accept()

    play(scenario)


def test_a_group_refused_by_the_broker_ends_the_poll() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member("implicit") as member:
            member._member.group.heartbeats.failure = UnsupportedVersion("no share groups here")
            with pytest.raises(UnsupportedVersion):
                await member.poll(POLL_SECONDS)

    play(scenario)


def test_errors_of_heartbeats_and_of_fetches_are_raised_one_after_the_other() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member("implicit") as member:
            member._member.group.heartbeats.report = TopicAuthorizationFailed("by a heartbeat")
            member._member.failure = InvalidRecordState("auto_renew is now disabled")
            with pytest.raises(TopicAuthorizationFailed, match="by a heartbeat"):
                await member.poll(POLL_SECONDS)
            with pytest.raises(InvalidRecordState, match="auto_renew is now disabled"):
                await member.poll(POLL_SECONDS)
            assert len(await member.poll(POLL_SECONDS)) == 4, "each error is raised once"

    play(scenario)
