"""How much a member takes, changed while it runs: on a broker in the process."""

import asyncio

from sharegroup.client import Flow, Record
from sharegroup.client.share.consumer.flow_control import FlowControl
from tests.integration.client.group_on_a_broker import POLL_SECONDS, WHERE, Bench, play, values


def test_window_can_be_resized_while_the_consumer_runs() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member(in_flight_max=1) as member:
            first = await member.poll(POLL_SECONDS)
            assert (values(first), await member.poll(0.01)) == ([b"0"], [])
            FlowControl(member).resize(3, acquire_mode="record_limit", max_wait_ms=20)
            second: list[Record] = []
            while len(second) < 2:
                second += await member.poll(POLL_SECONDS)
            assert values(second) == [b"1", b"2"]
            for record in (*first, *second):
                record.accept()
            assert await member.commit() == {WHERE: None}

    play(scenario)


def test_a_quiet_member_keeps_its_locks_and_leaves_the_rest_to_others() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member(in_flight_max=1) as quiet, bench.member(in_flight_max=10) as other:
            (mine,) = await quiet.poll(POLL_SECONDS)
            FlowControl(quiet).quiet(release_below=4)
            theirs: list[bytes] = []
            async with asyncio.timeout(POLL_SECONDS):
                while len(theirs) < 3:
                    theirs += values(await other.poll(0.1))
            assert (mine.value, sorted(theirs)) == (b"0", [b"1", b"2", b"3"])
            assert await quiet.poll(0.05) == []
            assert FlowControl(quiet).is_joined
            mine.accept()
            assert await quiet.commit() == {WHERE: None}
            FlowControl(quiet).resume()
            await bench.fill(b"4")
            both = await quiet.poll(POLL_SECONDS / 2) or await other.poll(POLL_SECONDS / 2)
            assert values(both) == [b"4"]

    play(scenario)


def test_records_that_a_quiet_member_keeps_are_handed_out_at_once() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member(in_flight_max=4) as member:
            (mine,) = await member.poll(POLL_SECONDS, 1)
            control = FlowControl(member)
            control.quiet(release_below=1)
            kept = control.take_waiting()
            assert values([mine, *kept]) == [b"0", b"1", b"2", b"3"]
            assert control.take_waiting() == []
            for record in (mine, *kept):
                record.accept()
            assert await member.commit() == {WHERE: None}

    play(scenario)


def test_flow_counts_waiting_records_and_records_in_flight() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member(in_flight_max=4) as member:
            assert member.flow == Flow(
                in_flight=0,
                in_flight_bytes=0,
                in_flight_max=4,
                waiting=0,
                waiting_bytes=0,
                requested=0,
                is_joined=member.flow.is_joined,
                is_paused=False,
                renews_locks=False,
            )
            first = await member.poll(POLL_SECONDS, 1)
            flow = member.flow
            assert (flow.in_flight, flow.waiting, flow.is_joined) == (1, 3, True)
            assert 0 < flow.in_flight_bytes < flow.waiting_bytes
            first[0].accept()
            assert member.flow.in_flight == 0
            assert flow.in_flight == 1  # The earlier values stay as they were.
            second = await member.poll(POLL_SECONDS)
            assert (values(second), member.flow.waiting) == ([b"1", b"2", b"3"], 0)
            for record in second:
                record.accept()

    play(scenario)


def test_flow_counts_the_records_requested_by_a_waiting_poll() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member(in_flight_max=100, max_poll_records=7) as member:
            records = await member.poll(POLL_SECONDS)
            polling = asyncio.ensure_future(member.poll(POLL_SECONDS))
            async with asyncio.timeout(POLL_SECONDS):
                while not member.flow.requested:
                    await asyncio.sleep(0)
            assert member.flow.requested == 7
            polling.cancel()
            for record in records:
                record.accept()

    play(scenario)


def test_flow_reports_pause_and_lock_renewal() -> None:
    async def scenario(bench: Bench) -> None:
        async with bench.member(auto_renew=True) as member:
            FlowControl(member).quiet(release_below=4)
            assert (member.flow.is_paused, member.flow.renews_locks) == (True, True)
            FlowControl(member).resume()
            assert not member.flow.is_paused

    play(scenario)
