"""How much a member takes, changed while it runs: on a broker in the process."""

import asyncio

from sharegroup.client import Record
from sharegroup.client.inbox import Inbox, Parcel
from sharegroup.client.locks import AcquisitionLock
from tests.unit.client.group_on_a_broker import POLL_SECONDS, WHERE, Bench, play, values
from tests.unit.client.test_membership import answer, exchange, member, said
from tests.unit.client.test_window import Flight


def test_a_window_is_widened_and_narrowed_while_it_runs() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member(in_flight_max=1) as member:
            first = await member.poll(POLL_SECONDS)
            assert (values(first), await member.poll(0.01)) == ([b"0"], [])
            member.flow.resize(3, acquire_mode="record_limit", max_wait_ms=20)
            second: list[Record] = []
            while len(second) < 2:
                second += await member.poll(POLL_SECONDS)
            assert values(second) == [b"1", b"2"]
            for record in (*first, *second):
                record.accept()
            assert await member.commit() == {WHERE: None}

    play(scenario)


def test_the_next_fetch_is_as_strict_and_as_patient_as_the_window_says() -> None:
    flight = Flight(in_flight_max=100)
    flight.window.in_flight_max = 7
    flight.window.acquire_mode = "record_limit"
    limits = flight.window.to_fetch(500, [flight.held], 0, 500)
    assert limits is not None
    assert (limits.max_records, limits.acquire_mode) == (7, "record_limit")


def test_a_quiet_member_keeps_its_locks_and_leaves_the_rest_to_others() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member(in_flight_max=1) as quiet, bench.member(in_flight_max=10) as other:
            (mine,) = await quiet.poll(POLL_SECONDS)
            quiet.flow.quiet(give_back_below=4)
            theirs: list[bytes] = []
            async with asyncio.timeout(POLL_SECONDS):
                while len(theirs) < 3:
                    theirs += values(await other.poll(0.1))
            assert (mine.value, sorted(theirs)) == (b"0", [b"1", b"2", b"3"])
            assert await quiet.poll(0.05) == []
            assert quiet.flow.is_joined
            mine.accept()
            assert await quiet.commit() == {WHERE: None}
            quiet.flow.resume()
            await bench.fill(b"4")
            both = await quiet.poll(POLL_SECONDS / 2) or await other.poll(POLL_SECONDS / 2)
            assert values(both) == [b"4"]

    play(scenario)


def test_a_quiet_member_asks_for_no_partitions_and_does_not_join() -> None:
    quiet = member("orders")
    exchange(quiet, answer(epoch=3, partitions=(0,)))
    quiet.quiet = True
    assert said(quiet) == (3, None, ())
    exchange(quiet, answer(epoch=4, partitions=()))
    assert (said(quiet), quiet.wants_heartbeat) == ((4, None, None), True)
    quiet.reset()
    assert not quiet.wants_heartbeat
    quiet.quiet = False
    assert (said(quiet), quiet.wants_heartbeat) == ((0, "rack-1", ("orders",)), True)


def test_what_waits_goes_back_but_for_what_was_delivered_too_often() -> None:
    flight = Flight(in_flight_max=100)
    held, inbox = flight.held, Inbox(flight.config)
    locks = [
        AcquisitionLock(
            held, first, first + 10, count, acquired_at=0, deadline=30, record_bytes=10.0
        )
        for first, count in ((100, 1), (110, 4), (120, 3))
    ]
    for lock in locks:
        held.acquired(lock)
    locks[0].waiting_from = 105  # Its first half is in somebody's hands.
    inbox.add([Parcel(held, b"", locks)])
    inbox.give_back(delivered_below=4)
    (unit,) = held.take()
    assert [(run.first, run.end, run.ack_type) for run in unit.runs] == [
        (105, 110, 2),
        (120, 130, 2),
    ]
    assert inbox.waiting == 10
