"""Records in flight over several polls, and locks that begin anew, on a broker in the process."""

import asyncio
import time

import pytest

from sharegroup.client import (
    AcknowledgementResult,
    IllegalStateError,
    Record,
    ShareConsumer,
)
from sharegroup.errors import InvalidConfig, InvalidRecordState, TopicAuthorizationFailed
from sharegroup.testing import ManualClock
from tests.integration.client.group_on_a_broker import (
    LOCK_SECONDS,
    POLL_SECONDS,
    WHERE,
    Bench,
    play,
    values,
)
from tests.support.limits import HANGING_SECONDS

SHORT_LOCKS = {"share_record_lock_duration_ms": "1000"}


def test_window_allows_polls_while_records_are_open() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member(in_flight_max=3, max_poll_records=2) as member:
            first = await member.poll(POLL_SECONDS)
            second = await member.poll(POLL_SECONDS)
            assert (values(first), values(second)) == ([b"0", b"1"], [b"2"])
            assert member.in_flight == 3
            assert await member.poll(0.01) == [], "the window is full"
            second[0].accept()
            assert values(await member.poll(POLL_SECONDS)) == [b"3"]

    play(scenario)


def test_poll_waiting_for_room_continues_when_a_record_is_settled() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member(in_flight_max=4) as member:
            records = await member.poll(POLL_SECONDS)
            await bench.fill(b"4")
            assert await member.poll(0.3) == [], "nothing is left that could wake the next one"
            waiting = asyncio.create_task(member.poll(POLL_SECONDS))
            for _ in range(10):  # The poll has sent all its requests.
                await asyncio.sleep(0)
            assert not waiting.done()
            records[2].accept()
            async with asyncio.timeout(POLL_SECONDS / 2):
                assert values(await waiting) == [b"4"]
            assert await member.commit() == {WHERE: None}

    play(scenario)


def test_iteration_returns_as_many_records_as_the_window_holds() -> None:
    """Two handlers run beside the reading loop; never more than two records are open."""

    async def scenario(bench: Bench) -> None:
        open_counts: list[int] = []
        async with bench.member(in_flight_max=2) as member:

            async def handle(record: Record) -> None:
                await asyncio.sleep(0)
                open_counts.append(member.in_flight)
                record.accept()

            async with asyncio.TaskGroup() as handlers:
                count = 0
                async for record in member:
                    handlers.create_task(handle(record))
                    count += 1
                    if count == 4:
                        break
        assert len(open_counts) == 4
        assert max(open_counts) <= 2
        assert await bench.lag() == 0

    play(scenario)


def test_window_in_bytes_returns_at_least_one_record() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member(in_flight_bytes=1) as member:
            (first,) = await member.poll(POLL_SECONDS)
            assert await member.poll(0.01) == []
            first.accept()
            (second,) = await member.poll(POLL_SECONDS)
            assert values([first, second]) == [b"0", b"1"]

    play(scenario)


@pytest.mark.parametrize("option", ["in_flight_max", "in_flight_bytes"])
def test_a_window_needs_explicit_mode(option: str) -> None:
    with pytest.raises(InvalidConfig, match="need share_acknowledgement_mode='explicit'"):
        ShareConsumer("t", group_id="g", **{option: 5})  # type: ignore[arg-type]


def test_redelivered_record_is_not_settled_by_its_first_handler() -> None:
    clock = ManualClock()

    async def scenario(bench: Bench) -> None:
        heard: list[AcknowledgementResult] = []
        async with bench.member(in_flight_max=100) as member:
            member.set_acknowledgement_commit_callback(heard.append)
            slow, *_ = await member.poll(POLL_SECONDS)
            clock.advance(LOCK_SECONDS)
            again, *_ = await member.poll(POLL_SECONDS)
            assert (slow.offset, again.offset, again.delivery_count) == (0, 0, 2)
            slow.accept()
            assert (await member.commit())[WHERE] is not None
            assert [(list(result.offsets), type(result.error)) for result in heard] == [
                ([0], InvalidRecordState)
            ]
            again.accept()
            assert await member.commit() == {WHERE: None}

    play(scenario, clock=clock)


def test_renewed_lock_lasts_for_a_whole_duration() -> None:
    clock = ManualClock()

    async def scenario(bench: Bench) -> None:
        heard: list[AcknowledgementResult] = []
        async with bench.member() as member:
            member.set_acknowledgement_commit_callback(heard.append)
            kept, *others = await member.poll(POLL_SECONDS)
            before = kept.deadline
            clock.advance(LOCK_SECONDS * 2 / 3)
            kept.renew()
            assert await member.commit() == {WHERE: None}
            assert [(list(result.offsets), result.is_renewal) for result in heard] == [([0], True)]
            assert kept.deadline > before
            clock.advance(LOCK_SECONDS * 2 / 3)
            kept.accept()
            assert await member.commit() == {WHERE: None}
            others[0].accept()
            assert isinstance((await member.commit())[WHERE], InvalidRecordState)
            for record in others[1:]:
                record.release()
        assert await bench.lag() == 3

    play(scenario, clock=clock)


def test_only_open_records_are_renewed() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member() as member:
            first, *others = await member.poll(POLL_SECONDS)
            first.accept()
            with pytest.raises(IllegalStateError, match="offset 0 can't be renewed"):
                first.renew()
            member.renew(others)
            member.accept(others)
            assert await member.commit() == {WHERE: None}

    play(scenario)


def test_group_without_renewal_refuses_it_and_keeps_the_record() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.set_group(share_renew_acknowledge_enable="false")
        async with bench.member() as member:
            records = await member.poll(POLL_SECONDS)
            records[0].renew()
            error = (await member.commit())[WHERE]
            assert isinstance(error, InvalidRecordState)
            ours, kafkas = "share.renew.acknowledge.enable", "locks is not enabled for the group"
            assert ours in str(error) or kafkas in str(error)
            member.accept(records)
            assert await member.commit() == {WHERE: None}

    play(scenario)


def test_locks_are_renewed_by_themselves_while_a_handler_works() -> None:
    """The handler takes twice as long as a lock lasts, and no other member gets its records."""

    async def scenario(bench: Bench) -> None:
        async with bench.member(auto_renew=True) as member, bench.member() as other:
            records = await member.poll(POLL_SECONDS)
            first_deadline = records[0].deadline
            until = first_deadline + 1.0
            while time.monotonic() < until:
                assert await other.poll(0.1) == []
            assert records[0].deadline > until
            member.accept(records)
            assert await member.commit() == {WHERE: None}
        assert await bench.lag() == 0

    play(scenario, group=SHORT_LOCKS)


def test_lock_past_its_maximum_age_is_not_renewed_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(bench: Bench) -> None:
        async with (
            bench.member(auto_renew=True, renew_age_max_ms=300) as member,
            bench.member() as other,
        ):
            records = await member.poll(POLL_SECONDS)
            again = await other.poll(POLL_SECONDS)
            assert [record.delivery_count for record in again] == [2] * 4
            member.accept(records)
            assert isinstance((await member.commit())[WHERE], InvalidRecordState)
            other.accept(again)

    play(scenario, group=SHORT_LOCKS)
    said = [
        record.getMessage() for record in caplog.records if "renewal.ended" in record.getMessage()
    ]
    assert len(said) == 1
    assert "topic=t partition=0 offsets=0-3 renew_age_max_ms=300" in said[0]


def test_automatic_renewal_that_is_refused_is_one_clear_error() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.set_group(share_renew_acknowledge_enable="false")
        async with bench.member(auto_renew=True, in_flight_max=100) as member:
            records = await member.poll(POLL_SECONDS)
            with pytest.raises(InvalidRecordState, match="auto_renew is now disabled"):
                await member.poll(POLL_SECONDS)
            member.accept(records)
            assert await member.poll(0.01) == []

    play(scenario, group=SHORT_LOCKS)


def test_refused_renewal_is_reported_in_place_of_an_error_that_comes_again() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.set_group(share_renew_acknowledge_enable="false")
        async with bench.member(auto_renew=True, in_flight_max=100) as member:
            await member.poll(POLL_SECONDS)
            member._member.failure = TopicAuthorizationFailed("each fetch is refused")
            async with asyncio.timeout(HANGING_SECONDS):
                while member._member.renews:
                    await asyncio.sleep(0)
            with pytest.raises(InvalidRecordState, match="auto_renew is now disabled"):
                await member.poll(POLL_SECONDS)

    play(scenario, group=SHORT_LOCKS)


def test_record_limit_never_returns_more_than_requested() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member(share_acquire_mode="record_limit", max_poll_records=3) as member:
            records = await member.poll(POLL_SECONDS)
            assert values(records) == [b"0", b"1", b"2"]
            assert sum(member._member.held().values()) == 3
            member.accept(records)
            (last,) = await member.poll(POLL_SECONDS)
            last.accept()

    play(scenario)


def test_the_next_fetch_is_on_its_way_before_a_quick_application_s_records_are_read() -> None:
    async def scenario(bench: Bench) -> None:
        under_way = []

        def look(value: bytes) -> bytes:
            metrics = member.metrics()["consumer-metrics"]
            under_way.append(metrics["request-total"] - metrics["response-total"])
            return value

        for value in (b"4", b"5"):
            await bench.fill(value)  # In a batch of its own; the four before are in one.
        settings = {"max_poll_records": 1, "value_deserializer": look}
        async with bench.member("implicit", **settings) as member:
            got = [values(await member.poll(POLL_SECONDS)) for _ in range(6)]
        assert got == [[b"0"], [b"1"], [b"2"], [b"3"], [b"4"], [b"5"]]
        # Nobody knows that it is quick before it came back.
        assert under_way == [0, 0, 0, 0, 1, 1]

    play(scenario)
