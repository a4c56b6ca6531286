"""How a consumer is woken, left alone, closed and looked at, on a broker in the process."""

import asyncio
import threading

import pytest

from sharegroup.client import (
    AcknowledgementResult,
    IllegalStateError,
    ShareConsumer,
    UnreadableRecord,
    WakeupError,
)
from sharegroup.errors import InvalidConfig, RequestTimedOut, ShareSessionNotFound
from tests.integration.client.group_on_a_broker import POLL_SECONDS, WHERE, Bench, play, values


def test_a_wakeup_ends_the_poll_that_waits() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member() as member:
            member.accept(await member.poll(POLL_SECONDS))
            waiting = asyncio.create_task(member.poll(POLL_SECONDS))
            await asyncio.sleep(0)
            threading.Thread(target=member.wakeup).start()
            with pytest.raises(WakeupError):
                await waiting
            assert await member.poll(0.01) == [], "it counts once"

    play(scenario)


def test_a_wakeup_between_polls_ends_the_next_one() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member() as member:
            member.wakeup()
            with pytest.raises(WakeupError):
                await member.poll(POLL_SECONDS)
            assert len(await member.poll(POLL_SECONDS)) == 4

    play(scenario)


def test_consumer_without_polls_leaves_and_rejoins_with_the_next_poll(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(bench: Bench) -> None:
        heard: list[AcknowledgementResult] = []
        async with bench.member(max_poll_interval_ms=100) as slow:
            slow.set_acknowledgement_commit_callback(heard.append)
            records = await slow.poll(POLL_SECONDS)
            async with bench.member() as other:
                theirs = await other.poll(POLL_SECONDS)
                assert [record.delivery_count for record in theirs] == [2] * 4
                slow.accept(records)
                other.release(theirs)
            again = await slow.poll(POLL_SECONDS)
            assert [record.delivery_count for record in again] == [3] * 4
            assert [(list(result.offsets), type(result.error)) for result in heard] == [
                ([0, 1, 2, 3], ShareSessionNotFound)
            ]
            slow.accept(again)
            assert await slow.commit() == {WHERE: None}

    play(scenario)
    said = [record.getMessage() for record in caplog.records]
    assert (
        len([message for message in said if message.startswith("event=consumer.left group=g")]) == 1
    )


def test_a_long_poll_is_not_an_absence(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member(max_poll_interval_ms=50) as member:
            member.accept(await member.poll(POLL_SECONDS))
            assert await member.poll(0.3) == []
            assert member.assignment == {WHERE}

    play(scenario)
    assert "consumer.left" not in caplog.text


def test_close_reports_acknowledged_and_released_records() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member(in_flight_max=3) as member:
            first, second, _ = await member.poll(POLL_SECONDS)
            first.accept()
            second.reject()
            report = await member.close()
            assert [(list(result.offsets), result.error) for result in report.acknowledged] == [
                ([0, 1], None)
            ]
            assert report.released == {WHERE: 2}, "one in hand, one never handed out"
            assert report.error is None
            assert (await member.close()).acknowledged == ()
        assert await bench.lag() == 2

    play(scenario)


def test_close_times_out_and_reports_acknowledgements_in_doubt() -> None:
    """The broker does not return, so settled records cannot be sent any more."""

    async def scenario(bench: Bench) -> None:
        member = ShareConsumer(
            "t",
            bootstrap_servers=bench.bootstrap_servers,
            group_id=bench.group,
            share_acknowledgement_mode="explicit",
            connect_timeout_ms=100,
        )
        records = await member.poll(POLL_SECONDS)
        member.accept(records)
        member._member.cluster.close()
        report = await member.close(1)
        ((offsets, error),) = [
            (list(result.offsets), result.error) for result in report.acknowledged
        ]
        assert offsets == [0, 1, 2, 3]
        assert isinstance(error, ShareSessionNotFound)
        assert report.error is not None

    play(scenario)


def test_a_commit_need_not_wait() -> None:
    async def scenario(bench: Bench) -> None:
        heard: list[AcknowledgementResult] = []
        async with bench.member() as member:
            member.set_acknowledgement_commit_callback(heard.append)
            member.accept(await member.poll(POLL_SECONDS))
            assert await member.commit(wait=False) == {}
            assert heard == []
            assert await member.poll(0.05) == []
            assert [(list(result.offsets), result.error) for result in heard] == [
                ([0, 1, 2, 3], None)
            ]

    play(scenario)


def test_commit_that_times_out_is_reported_by_a_later_commit() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member() as member:
            member.accept(await member.poll(POLL_SECONDS))
            with pytest.raises(RequestTimedOut, match="no response to acknowledgements within 0 s"):
                await member.commit(0)
            assert await member.commit() == {WHERE: None}
        assert await bench.lag() == 0

    play(scenario)


def test_records_are_settled_one_by_one_or_together() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member() as member:
            first, *others = await member.poll(POLL_SECONDS)
            member.release(first)
            member.reject(others)
            member.accept(iter(others[:1]))
            assert await member.commit() == {WHERE: None}
            (again,) = await member.poll(POLL_SECONDS)
            assert again.delivery_count == 2
            again.accept()

    play(scenario)


def test_deadlines_are_one_lock_duration_after_the_fetch() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member() as member:
            assert member.acquisition_lock_timeout_ms is None
            before = asyncio.get_running_loop().time()
            records = await member.poll(POLL_SECONDS)
            after = asyncio.get_running_loop().time()
            assert member.acquisition_lock_timeout_ms == 30_000
            assert before + 30 <= records[0].deadline <= after + 30
            member.accept(records)

    play(scenario)


def test_consumer_metrics_have_kafkas_names() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member() as member:
            member.accept(await member.poll(POLL_SECONDS))
            await member.commit()
            metrics = member.metrics()
            fetches = metrics["consumer-share-fetch-manager-metrics"]
            assert fetches["records-consumed-total"] == 4
            assert fetches["acknowledgements-send-total"] == 4
            assert fetches["acknowledgements-error-total"] == 0
            assert fetches["records-per-request-max"] == 4
            assert fetches["fetch-total"] >= 1
            coordinator = metrics["consumer-share-coordinator-metrics"]
            assert coordinator["heartbeat-total"] >= 1
            assert coordinator["rebalance-total"] == 1
            assert 0 <= metrics["consumer-share-metrics"]["last-poll-seconds-ago"] < 30

    play(scenario)


def test_on_deserialization_error_raw_delivers_unreadable_bytes() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.fill(b"four")
        async with bench.member(value_deserializer=int, on_deserialization_error="raw") as member:
            *good, bad = await member.poll(POLL_SECONDS)
            assert (values(good), bad.value) == ([0, 1, 2, 3], b"four")
            assert isinstance(bad, UnreadableRecord)
            member.accept(good)
            bad.reject()
            assert await member.commit() == {WHERE: None}
        assert await bench.lag() == 0

    play(scenario)


def test_raw_needs_explicit_acknowledgement() -> None:
    with pytest.raises(InvalidConfig, match="on_deserialization_error='raw' needs"):
        ShareConsumer("t", group_id="g", value_deserializer=int, on_deserialization_error="raw")


def test_columns_and_deserializers_exclude_each_other() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member(value_deserializer=int) as member:
            with pytest.raises(IllegalStateError, match="deserializers are not applied"):
                await member.poll_arrow(POLL_SECONDS)

    play(scenario)


def test_columns_are_accepted_by_the_next_poll_in_implicit_mode() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member("implicit") as member:
            batch = await member.poll_arrow(POLL_SECONDS)
            assert batch is not None
            assert batch["value"].to_pylist() == [b"0", b"1", b"2", b"3"]
            assert await member.poll_arrow(0.01) is None
            assert await member.commit() == {WHERE: None}
            assert await bench.lag() == 0

    play(scenario)


def test_explicit_mode_wants_columns_settled_before_the_next_poll() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member() as member:
            batch = await member.poll_arrow(POLL_SECONDS, 3)
            assert batch is not None
            member.accept(batch.slice(0, 2))
            with pytest.raises(IllegalStateError, match="1 records of topic 't' partition 0"):
                await member.poll_arrow(POLL_SECONDS)
            member.reject(batch.slice(2))
            rest = await member.poll_arrow(POLL_SECONDS)
            assert rest is not None
            assert rest["offset"].to_pylist() == [3]
            member.accept(rest)
        assert await bench.lag() == 0

    play(scenario)


def test_a_deleted_topic_ends_nothing() -> None:
    """Acknowledgements of its records fail; the consumer continues and can read another topic."""

    async def scenario(bench: Bench) -> None:
        async with bench.member() as member:
            records = await member.poll(POLL_SECONDS)
            await bench.delete_topic()
            member.accept(records)
            error = (await member.commit())[WHERE]
            assert error is not None
            assert await member.poll(0.2) == []
            await bench.create_topic("other")
            member.subscribe("other")
            await bench.fill(b"o", topic="other")
            (record,) = await member.poll(POLL_SECONDS)
            assert (record.topic, record.value) == ("other", b"o")
            record.accept()

    play(scenario)


def test_partitions_that_are_added_are_read() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member() as member:
            member.accept(await member.poll(POLL_SECONDS))
            await bench.grow_topic(3)
            await bench.fill(b"new", partition=2)
            (record,) = await member.poll(POLL_SECONDS)
            assert (record.partition, record.value) == (2, b"new")
            record.accept()

    play(scenario, group={"share_heartbeat_interval_ms": "100"})
