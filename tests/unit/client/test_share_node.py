"""What a node does next, and what it does again.

The node runs on virtual time against a scripted broker; each test says what that answers.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from sharegroup.client.records import AcknowledgementResult
from sharegroup.client.settings.consumer_config import ShareConsumerConfig
from sharegroup.client.share.consumer.inbox import Inbox
from sharegroup.client.share.consumer.record import Record
from sharegroup.client.share.consumer.share_node import BEFORE_CLOSE_MAX, RequestOutcome, ShareNode
from sharegroup.client.share.session.acknowledgements import AckRun
from sharegroup.client.share.session.share_requests import FetchLimits, SessionMember
from sharegroup.errors import (
    CoordinatorNotAvailable,
    InvalidRecordState,
    KafkaError,
    NetworkException,
    NoAnswer,
    NotLeaderOrFollower,
    ShareSessionNotFound,
)
from sharegroup.ids import GroupId, MemberId
from sharegroup.testing import virtual_time
from tests.unit.client.scripted_broker import (
    KEY,
    ScriptedBroker,
    ack_batches,
    acknowledged,
    fetched,
)

LIMITS = FetchLimits(max_records=500, max_bytes=1_000, max_wait_ms=500)
CONFIG = ShareConsumerConfig(group_id="g", share_acknowledgement_mode="explicit")


class Bench:
    """A node that runs, and what it handed in."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.outcomes: asyncio.Queue[RequestOutcome] = asyncio.Queue()
        self.results: list[AcknowledgementResult] = []
        self.inbox = Inbox(CONFIG)
        member = SessionMember(GroupId("g"), MemberId("m"))
        self.node = ShareNode(1, broker, CONFIG, member, take_in=self.take_in)  # type: ignore[arg-type]
        self.node.wanted = (KEY,)

    def take_in(self, node: ShareNode, outcome: RequestOutcome) -> None:
        self.inbox.drop(outcome.lost)
        self.inbox.add(outcome.parcels)
        self.results += outcome.results
        self.outcomes.put_nowait(outcome)

    async def fetch(self) -> list[Record]:
        """Fetch and hand out, as a poll does."""
        self.node.fetch(LIMITS)
        await self.outcomes.get()
        return self.inbox.take(500, now=0.0)

    async def settle(self) -> list[tuple[list[int], type | None]]:
        """Have everything sent and see it through; what became of it."""
        tickets = self.node.pending_results()
        self.node.flush()
        for ticket in tickets:
            await ticket.done.wait()
        results, self.results = self.results, []
        return [(list(result.offsets), None if result.error is None else type(result.error))
                for result in results]  # fmt: skip

    def sent(self) -> list[list[tuple[int, int, Sequence[int]]]]:
        """The acknowledgements of each request but the first, which opened the session."""
        return [ack_batches(request) for request in self.broker.requests[1:]]


def play(scenario: Callable[[Bench], Coroutine[Any, Any, None]], *answers: Any) -> None:
    async def run() -> None:
        bench = Bench(ScriptedBroker(*answers))
        running = asyncio.create_task(bench.node.run())
        try:
            async with asyncio.timeout(100):
                await scenario(bench)
        finally:
            running.cancel()
        assert bench.broker.answers == [], "the script was not played to its end"

    virtual_time.run(run())


def test_acknowledgements_are_sent_with_the_next_fetch() -> None:
    async def scenario(bench: Bench) -> None:
        for record in await bench.fetch():
            record.accept()
        await bench.fetch()
        assert [(list(result.offsets), result.error) for result in bench.results] == [
            ([0, 1], None)
        ]
        assert bench.sent() == [[(0, 1, (1,))]]

    play(scenario, fetched(b"a", b"b"), fetched(b"c", first=2, ack_error=0))


def test_only_settled_records_are_acknowledged() -> None:
    async def scenario(bench: Bench) -> None:
        first, second, third = await bench.fetch()
        first.release()
        third.reject()
        assert await bench.settle() == [([0, 2], None)]
        second.accept()
        assert await bench.settle() == [([1], None)]
        assert bench.sent() == [[(0, 0, (2,)), (2, 2, (3,))], [(1, 1, (1,))]]

    play(scenario, fetched(b"a", b"b", b"c"), acknowledged(), acknowledged())


def test_records_settled_after_a_fetch_call_are_sent_with_the_next_call() -> None:
    """When the request is sent depends on chance: a pause, or a waiting fetch before it."""

    async def scenario(bench: Bench) -> None:
        first, second, third = await bench.fetch()
        first.accept()
        bench.node.fetch(LIMITS)  # It leaves when this test next waits.
        second.accept()
        await bench.outcomes.get()
        assert bench.sent() == [[(0, 0, (1,))]]
        second.release()  # Not sent, so it may still be changed.
        bench.node.flush()
        third.accept()
        bench.node.flush()
        await bench.outcomes.get()
        assert bench.sent()[1:] == [[(1, 2, (2, 1))]]

    play(
        scenario,
        fetched(b"a", b"b", b"c"),
        fetched(b"d", first=3, ack_error=0),
        acknowledged(),
    )


def test_lost_session_fails_the_acknowledgements_of_its_records() -> None:
    async def scenario(bench: Bench) -> None:
        sent, late = await bench.fetch()
        sent.accept()
        assert await bench.settle() == [([0], NetworkException)]
        late.accept()
        assert await bench.settle() == [([1], ShareSessionNotFound)]

    play(scenario, fetched(b"a", b"b"), NetworkException("cut"))


def test_transient_error_of_the_broker_is_retried_after_a_pause() -> None:
    async def scenario(bench: Bench) -> None:
        for record in await bench.fetch():
            record.accept()
        began = asyncio.get_running_loop().time()
        assert await bench.settle() == [([0, 1], None)]
        assert asyncio.get_running_loop().time() - began == pytest.approx(0.3, abs=0.01)
        assert bench.sent() == [[(0, 1, (1,))]] * 3

    play(
        scenario,
        fetched(b"a", b"b"),
        acknowledged(error=CoordinatorNotAvailable.code),
        acknowledged(error=CoordinatorNotAvailable.code),
        acknowledged(),
    )


def test_repeated_immediate_empty_responses_are_followed_by_a_pause() -> None:
    async def scenario(bench: Bench) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(4):
            assert await bench.fetch() == []
        assert loop.time() == 0.0
        assert await bench.fetch() == []
        assert loop.time() == pytest.approx(0.1, rel=0.3)
        assert len(await bench.fetch()) == 1
        before = loop.time()
        await bench.fetch()
        assert loop.time() == before

    play(scenario, *[fetched()] * 5, fetched(b"a"), fetched())


def test_nothing_is_tried_again_when_its_lock_has_ended() -> None:
    async def scenario(bench: Bench) -> None:
        (record,) = await bench.fetch()
        record.accept()
        record._shared.deadline = 0.0
        assert await bench.settle() == [([0], CoordinatorNotAvailable)]

    play(scenario, fetched(b"a"), acknowledged(error=CoordinatorNotAvailable.code))


def test_ended_lock_does_not_fail_acknowledgements_under_other_locks() -> None:
    """Two ranges; the lock of the first one has ended, as client and broker know."""

    async def scenario(bench: Bench) -> None:
        records = await bench.fetch()
        for record in records:
            record.accept()
        records[0]._shared.deadline = 0.0
        assert await bench.settle() == [([0, 1], InvalidRecordState), ([2, 3], None)]
        assert bench.sent() == [[(0, 3, (1,))], [(2, 3, (1,))]]

    play(
        scenario,
        fetched(b"a", b"b", b"c", b"d", acquired=[(0, 2), (2, 4)]),
        acknowledged(error=InvalidRecordState.code),
        acknowledged(),
    )


def test_lock_that_ended_only_on_the_broker_is_found_by_halving() -> None:
    async def scenario(bench: Bench) -> None:
        for record in await bench.fetch():
            record.accept()
        assert await bench.settle() == [([0], None), ([1], InvalidRecordState), ([2, 3], None)]
        assert bench.sent() == [
            [(0, 3, (1,))],
            [(0, 1, (1,))],
            [(0, 0, (1,))],
            [(1, 1, (1,))],
            [(2, 3, (1,))],
        ]

    refused = acknowledged(error=InvalidRecordState.code)
    play(
        scenario,
        fetched(b"a", b"b", b"c", b"d", acquired=[(0, 1), (1, 2), (2, 3), (3, 4)]),
        refused,
        refused,
        acknowledged(),
        refused,
        acknowledged(),
    )


def test_retried_acknowledgement_is_sent_alone() -> None:
    async def scenario(bench: Bench) -> None:
        first, second = await bench.fetch()
        first.accept()
        ticket = bench.node.pending_results()
        bench.node.flush()
        await bench.outcomes.get()
        second.accept()
        assert await bench.settle() == [([0], None), ([1], None)]
        assert all(request.done.is_set() for request in ticket)
        assert bench.sent() == [[(0, 0, (1,))], [(0, 0, (1,))], [(1, 1, (1,))]]

    play(
        scenario,
        fetched(b"a", b"b"),
        acknowledged(error=CoordinatorNotAvailable.code),
        acknowledged(),
        acknowledged(),
    )


def test_moved_leader_fails_the_acknowledgements_of_its_records() -> None:
    async def scenario(bench: Bench) -> None:
        first, second = await bench.fetch()
        first.accept()
        assert await bench.settle() == [([0], NotLeaderOrFollower)]
        second.accept()
        assert await bench.settle() == [([1], NotLeaderOrFollower)]
        outcome = bench.outcomes.get_nowait()
        assert outcome.outdated == {KEY}
        assert len(outcome.lost) == 1

    play(scenario, fetched(b"a", b"b"), acknowledged(error=6))


def test_fetch_refused_by_a_former_leader_drops_waiting_records() -> None:
    async def scenario(bench: Bench) -> None:
        bench.node.fetch(LIMITS)
        await bench.outcomes.get()
        assert bench.inbox.waiting == 1
        bench.node.fetch(LIMITS)
        assert (await bench.outcomes.get()).outdated == {KEY}
        assert bench.inbox.waiting == 0

    play(scenario, fetched(b"a"), fetched(error=6))


def test_partitions_of_an_unreachable_broker_are_marked_as_outdated() -> None:
    async def scenario(bench: Bench) -> None:
        bench.broker.refuses = True
        bench.node.fetch(LIMITS)
        outcome = await bench.outcomes.get()
        assert outcome.outdated == {KEY}
        assert [type(error) for error in outcome.failures] == [NetworkException]

    play(scenario)


@pytest.mark.parametrize("error", [NoAnswer("silent"), NetworkException("cut")])
def test_partitions_of_a_broker_that_did_not_answer_are_marked_as_outdated(
    error: KafkaError,
) -> None:
    async def scenario(bench: Bench) -> None:
        bench.node.fetch(LIMITS)
        assert (await bench.outcomes.get()).outdated == {KEY}
        # A lost connection may work again immediately; a silent broker is doubtful.
        assert bench.broker.doubted == ([1] if isinstance(error, NoAnswer) else [])

    play(scenario, error)


def test_partitions_are_not_outdated_when_the_broker_lost_the_session() -> None:
    async def scenario(bench: Bench) -> None:
        bench.node.fetch(LIMITS)
        assert (await bench.outcomes.get()).outdated == set()

    play(scenario, ShareSessionNotFound("gone"))


def test_a_renewal_leaves_at_once_and_moves_the_deadline() -> None:
    async def scenario(bench: Bench) -> None:
        first, second = await bench.fetch()
        before = (first.deadline, second.deadline)
        first.renew()
        await bench.outcomes.get()
        assert (bench.results[0].is_renewal, bench.results[0].error) == (True, None)
        assert first.deadline > before[0]
        assert second.deadline == before[1]
        assert bench.sent() == [[(0, 0, (4,))]]
        assert bench.broker.requests[-1].is_renew_ack
        first.accept()
        bench.results.clear()
        assert await bench.settle() == [([0], None)]

    play(scenario, fetched(b"a", b"b"), acknowledged(), acknowledged())


def test_a_renewal_of_a_record_whose_session_was_lost_fails_once() -> None:
    """It was found again and again, without a pause: the whole process stood still."""

    async def scenario(bench: Bench) -> None:
        sent, late = await bench.fetch()
        sent.accept()
        assert await bench.settle() == [([0], NetworkException)]
        late.renew()
        assert await bench.settle() == [([1], ShareSessionNotFound)]

    play(scenario, fetched(b"a", b"b"), NetworkException("closed"))


def test_a_refused_renewal_is_reported_and_the_record_stays() -> None:
    async def scenario(bench: Bench) -> None:
        (record,) = await bench.fetch()
        before = record.deadline
        record.renew()
        outcome = await bench.outcomes.get()
        ((unit, error),) = outcome.not_renewed
        assert isinstance(error, InvalidRecordState)
        assert unit.runs == (AckRun(0, 1, 4),)
        assert record.deadline == before
        record.accept()
        bench.results.clear()
        assert await bench.settle() == [([0], None)]

    play(scenario, fetched(b"a"), acknowledged(error=121), acknowledged())


def test_a_lock_that_ended_does_not_end_the_renewal_of_others() -> None:
    """Three locks; that of offset 1 is over, as only the broker knows."""

    async def scenario(bench: Bench) -> None:
        records = await bench.fetch()
        before = [record.deadline for record in records]
        bench.node.renew(record._shared for record in records)
        refused = []
        for _ in range(5):
            refused += (await bench.outcomes.get()).not_renewed
        ((unit, error),) = refused
        assert isinstance(error, InvalidRecordState)
        assert unit.renewals == ((records[1]._shared, None),)
        moved = [
            record.deadline > deadline for record, deadline in zip(records, before, strict=True)
        ]
        assert moved == [True, False, True]
        assert bench.sent() == [
            [(0, 2, (4,))],
            [(0, 0, (4,))],
            [(1, 2, (4,))],
            [(1, 1, (4,))],
            [(2, 2, (4,))],
        ]
        assert all(request.is_renew_ack for request in bench.broker.requests[1:])
        assert bench.results == []

    refused = acknowledged(error=InvalidRecordState.code)
    play(
        scenario,
        fetched(b"a", b"b", b"c", acquired=[(0, 1), (1, 2), (2, 3)]),
        refused,
        acknowledged(),
        refused,
        refused,
        acknowledged(),
    )


def test_close_sends_the_settled_records_and_ends_the_session() -> None:
    async def scenario(bench: Bench) -> None:
        first, _ = await bench.fetch()
        first.accept()
        await bench.node.close()
        assert [(list(result.offsets), result.error) for result in bench.results] == [([0], None)]
        assert bench.broker.requests[-1].share_session_epoch == -1
        assert not bench.node.is_open

    play(scenario, fetched(b"a", b"b"), acknowledged())


def test_end_of_a_fetch_is_waited_for_and_its_records_are_there() -> None:
    async def scenario(bench: Bench) -> None:
        parked = asyncio.get_running_loop().create_future()
        bench.broker.answers.append(parked)
        bench.node.fetch(LIMITS)
        await asyncio.sleep(0.1)
        ended = asyncio.create_task(bench.node.fetch_ended())
        await asyncio.sleep(0.1)
        assert not ended.done()
        parked.set_result(fetched(b"a"))
        await ended
        assert [record.value for record in bench.inbox.take(500, now=0.0)] == [b"a"]
        await bench.node.fetch_ended()  # There is none, so it returns.

    play(scenario)


def test_fetch_that_was_requested_and_is_not_under_way_is_forgotten() -> None:
    async def scenario(bench: Bench) -> None:
        bench.node.fetch(LIMITS)
        bench.node.stop_fetching()
        await asyncio.sleep(1)
        assert bench.broker.requests == []
        assert not bench.node.is_fetching

    play(scenario)


def test_close_sends_what_was_settled_before_and_after_a_result_was_asked_for() -> None:
    """A request carries one unit of each partition, and the session ends with the last."""

    async def scenario(bench: Bench) -> None:
        first, second, third = await bench.fetch()
        for record in (first, second, third):
            record.accept()
            bench.node.pending_results()
        await bench.node.close()
        assert [(list(result.offsets), result.error) for result in bench.results] == [
            ([0], None),
            ([1], None),
            ([2], None),
        ]
        epochs = [request.share_session_epoch for request in bench.broker.requests]
        assert epochs == [0, 1, 2, -1]
        assert not bench.node.is_open

    play(
        scenario,
        fetched(b"a", b"b", b"c"),
        acknowledged(),
        acknowledged(),
        acknowledged(),
    )


def test_close_does_not_wait_for_a_broker_that_refuses_for_now() -> None:
    async def scenario(bench: Bench) -> None:
        first, second = await bench.fetch()
        for record in (first, second):
            record.accept()
            bench.node.pending_results()
        refused = acknowledged(error=CoordinatorNotAvailable.code)
        bench.broker.answers += [refused] * (BEFORE_CLOSE_MAX + 1)
        await bench.node.close()
        assert len(bench.results) == 2
        assert bench.broker.requests[-1].share_session_epoch == -1

    play(scenario, fetched(b"a", b"b"))


def test_node_without_partitions_sends_all_units_before_its_session_ends() -> None:
    async def scenario(bench: Bench) -> None:
        first, second = await bench.fetch()
        bench.node.wanted = ()
        first.accept()
        bench.node.pending_results()
        second.accept()
        assert await bench.settle() == [([0], None), ([1], None)]
        assert not bench.node.is_open

    play(scenario, fetched(b"a", b"b"), acknowledged(), acknowledged())


def test_node_without_partitions_ends_its_session_when_all_records_are_settled() -> None:
    async def scenario(bench: Bench) -> None:
        first, second = await bench.fetch()
        bench.node.wanted = ()
        first.accept()
        assert await bench.settle() == [([0], None)]
        assert bench.node.is_open
        second.accept()
        assert await bench.settle() == [([1], None)]
        assert not bench.node.is_open

    play(scenario, fetched(b"a", b"b"), acknowledged(), acknowledged())


def test_a_close_that_a_silent_broker_holds_up_ends_with_the_node() -> None:
    async def scenario(bench: Bench) -> None:
        (record,) = await bench.fetch()
        record.accept()
        bench.broker.answers.append(asyncio.get_running_loop().create_future())
        bench.node.fetch(LIMITS)
        await asyncio.sleep(0.1)
        closing = asyncio.create_task(bench.node.close())
        await asyncio.sleep(0.1)
        assert not closing.done()
        bench.node.stop()
        await closing
        (result,) = bench.node.abandon()
        assert isinstance(result.error, NetworkException), "sent, and nobody knows"

    play(scenario, fetched(b"a"))


def test_acknowledgements_that_a_stopped_node_did_not_send_are_reported() -> None:
    async def scenario(bench: Bench) -> None:
        (record,) = await bench.fetch()
        record.accept()
        bench.node.stop()
        (result,) = bench.node.abandon()
        assert isinstance(result.error, ShareSessionNotFound)
        assert bench.node.abandon() == []

    play(scenario, fetched(b"a"))
