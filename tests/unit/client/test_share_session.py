"""What becomes of acknowledgements when a session goes well, and when it breaks.

A scripted broker stands in for the cluster: each test says what it answers, in order.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from sharegroup.client.share.session.acknowledgements import AckRun
from sharegroup.client.share.session.acquired_records import AcquiredRecords
from sharegroup.client.share.session.share_requests import FetchLimits, SessionMember
from sharegroup.client.share.session.share_session import (
    FetchedPartition,
    SessionAnswer,
    ShareSession,
)
from sharegroup.errors import (
    CorruptMessage,
    InvalidRecordState,
    NetworkException,
    NoAnswer,
    NotLeaderOrFollower,
    ShareSessionNotFound,
    UnsupportedVersion,
)
from sharegroup.ids import GroupId, MemberId, TopicIdPartition
from sharegroup.protocol_enums import AcquireMode
from tests.unit.client.scripted_broker import (
    KEY,
    ScriptedBroker,
    ack_batches,
    acknowledged,
    fetched,
)

OTHER = TopicIdPartition(KEY.topic_id, 1)
ONE = {KEY: (AckRun(0, 1, 1),)}
RENEWAL = {KEY: (AckRun(0, 1, 4),)}

Scenario = Callable[[ShareSession, ScriptedBroker], Coroutine[Any, Any, None]]


def play(scenario: Scenario, *answers: Any, version: int = 2) -> None:
    async def run() -> None:
        broker = ScriptedBroker(*answers, version=version)
        member = SessionMember(GroupId("g"), MemberId("m"))
        session = ShareSession(1, broker, member, request_timeout_ms=1_000)  # type: ignore[arg-type]
        await scenario(session, broker)
        assert broker.answers == [], "the script was not played to its end"

    asyncio.run(run())


async def fetch(
    session: ShareSession, acks: Any = None, mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED
) -> SessionAnswer:
    limits = FetchLimits(max_records=500, max_bytes=1_000, max_wait_ms=500, acquire_mode=mode)
    return await session.fetch([KEY], acks or {}, limits)


def kinds(answer: SessionAnswer) -> list[type | None]:
    return [None if error is None else type(error) for error in answer.results.values()]


def test_a_fetch_opens_the_session_and_the_next_one_carries_acknowledgements() -> None:
    async def scenario(session: ShareSession, broker: ScriptedBroker) -> None:
        first = await fetch(session)
        (partition,) = first.partitions
        assert partition.acquired == (AcquiredRecords.of_range(0, 2, 1),)
        assert first.lock_ms == 30_000
        second = await fetch(session, {KEY: (AckRun(0, 2, 1),)})
        assert second.results == {KEY: None}
        assert [request.share_session_epoch for request in broker.requests] == [0, 1]
        assert ack_batches(broker.requests[1]) == [(0, 1, (1,))]

    play(scenario, fetched(b"a", b"b"), fetched(b"c", first=2, ack_error=0))


def test_acknowledgements_before_the_session_is_open_are_not_sent() -> None:
    async def scenario(session: ShareSession, broker: ScriptedBroker) -> None:
        answer = await fetch(session, ONE)
        assert kinds(answer) == [ShareSessionNotFound]
        assert ack_batches(broker.requests[0]) == []
        assert answer.lost is None

    play(scenario, fetched())


def test_refused_partition_is_reported_and_the_session_continues() -> None:
    async def scenario(session: ShareSession, broker: ScriptedBroker) -> None:
        await fetch(session)
        answer = await session.acknowledge(ONE)
        assert kinds(answer) == [InvalidRecordState]
        assert "group 'g' member m" in str(answer.results[KEY])
        assert "topic 't' partition 0: says the broker" in str(answer.results[KEY])
        assert session.is_alive

    play(scenario, fetched(b"a"), acknowledged(error=121))


def test_missing_right_on_a_topic_or_the_group_is_named() -> None:
    async def scenario(session: ShareSession, broker: ScriptedBroker) -> None:
        (partition,) = (await fetch(session)).partitions
        assert "(the user needs READ on topic 't')" in str(partition.error)
        answer = await session.acknowledge(ONE)
        assert "(the user needs READ on group 'g')" in str(answer.failure)

    play(scenario, fetched(error=29), acknowledged(top=30))


def test_an_acknowledgement_refused_in_a_fetch_leaves_its_records_alone() -> None:
    async def scenario(session: ShareSession, broker: ScriptedBroker) -> None:
        await fetch(session)
        answer = await fetch(session, ONE)
        assert kinds(answer) == [InvalidRecordState]
        said = "topic 't' partition 0: the record is not acquired by this member"
        assert str(answer.results[KEY]).endswith(said)
        assert [partition.acquired for partition in answer.partitions] == [
            (AcquiredRecords.of_range(1, 2, 1),)
        ]

    play(scenario, fetched(b"a"), fetched(b"b", first=1, ack_error=121))


def test_partition_missing_from_a_response_is_a_failure() -> None:
    async def scenario(session: ShareSession, broker: ScriptedBroker) -> None:
        await fetch(session)
        assert kinds(await fetch(session, ONE)) == [InvalidRecordState]
        assert kinds(await session.acknowledge(ONE)) == [InvalidRecordState]

    play(scenario, fetched(b"a"), fetched(), acknowledged(silent=True))


def test_fetch_after_the_connection_ended_opens_and_reports_a_new_session() -> None:
    async def scenario(session: ShareSession, broker: ScriptedBroker) -> None:
        await fetch(session)
        broker.connections[0].is_open = False
        assert session.is_open
        assert not session.is_alive
        answer = await fetch(session, ONE)
        assert kinds(answer) == [ShareSessionNotFound]
        assert isinstance(answer.lost, ShareSessionNotFound)
        assert [partition.acquired for partition in answer.partitions] == [
            (AcquiredRecords.of_range(5, 6, 1),)
        ]
        assert broker.requests[-1].share_session_epoch == 0
        assert ack_batches(broker.requests[-1]) == []

    play(scenario, fetched(b"a"), fetched(b"b", first=5))


def test_a_lost_answer_leaves_acknowledgements_in_doubt() -> None:
    async def scenario(session: ShareSession, broker: ScriptedBroker) -> None:
        await fetch(session)
        answer = await session.acknowledge(ONE)
        assert kinds(answer) == [NetworkException]
        assert isinstance(answer.failure, NetworkException)
        assert isinstance(answer.lost, ShareSessionNotFound)
        again = await session.acknowledge(ONE)  # Its lock went with the connection.
        assert kinds(again) == [ShareSessionNotFound]
        assert len(broker.requests) == 2
        assert not session.is_open

    play(scenario, fetched(b"a", b"b"), NetworkException("cut"))


def test_acknowledgement_on_a_closed_connection_is_not_sent() -> None:
    async def scenario(session: ShareSession, broker: ScriptedBroker) -> None:
        await fetch(session)
        broker.connections[0].is_open = False  # The connection was lost between the two requests.
        answer = await session.acknowledge(ONE)
        assert kinds(answer) == [ShareSessionNotFound]
        assert answer.lost is not None
        assert len(broker.requests) == 1

    play(scenario, fetched(b"a"))


@pytest.mark.parametrize("code", [122, 123, 133])
def test_session_lost_by_the_broker_fails_the_request_and_opens_again(code: int) -> None:
    async def scenario(session: ShareSession, broker: ScriptedBroker) -> None:
        await fetch(session)
        answer = await session.acknowledge(ONE)
        (error,) = answer.results.values()
        assert error is not None
        assert error.code == code
        assert answer.lost is not None
        assert not broker.connections[0].is_open, "closing makes the broker release the locks"
        await fetch(session)
        assert broker.requests[-1].share_session_epoch == 0

    play(scenario, fetched(b"a"), acknowledged(top=code), fetched())


def test_close_sends_acknowledgements_with_the_final_epoch() -> None:
    async def scenario(session: ShareSession, broker: ScriptedBroker) -> None:
        await fetch(session)
        answer = await session.acknowledge(ONE, close=True)
        assert answer.results == {KEY: None}
        assert answer.failure is None
        assert answer.lost is not None
        assert broker.requests[-1].share_session_epoch == -1
        assert not session.is_open

    play(scenario, fetched(b"a", b"b"), acknowledged())


def test_close_without_a_session_sends_nothing() -> None:
    async def scenario(session: ShareSession, broker: ScriptedBroker) -> None:
        assert await session.acknowledge({}, close=True) == SessionAnswer()
        assert broker.requests == []

    play(scenario)


def test_unreachable_broker_is_a_failure_without_a_lost_session() -> None:
    async def scenario(session: ShareSession, broker: ScriptedBroker) -> None:
        broker.refuses = True
        answer = await fetch(session)
        assert isinstance(answer.failure, NetworkException)
        assert (answer.lost, answer.sent_at) == (None, 0.0)

    play(scenario)


def test_a_renewal_is_marked_as_one() -> None:
    async def scenario(session: ShareSession, broker: ScriptedBroker) -> None:
        await fetch(session)
        answer = await session.acknowledge(RENEWAL, renew=True)
        assert answer.results == {KEY: None}
        assert answer.lock_ms == 30_000
        assert broker.requests[-1].is_renew_ack
        assert ack_batches(broker.requests[-1]) == [(0, 0, (4,))]

    play(scenario, fetched(b"a"), acknowledged())


def test_renewal_is_not_sent_to_a_broker_without_renewal() -> None:
    async def scenario(session: ShareSession, broker: ScriptedBroker) -> None:
        await fetch(session)
        answer = await session.acknowledge(RENEWAL, renew=True)
        assert kinds(answer) == [UnsupportedVersion]
        assert "renewing a lock needs ShareAcknowledge version 2" in str(answer.failure)
        assert "but the broker supports up to 1" in str(answer.failure)
        assert session.is_alive

    play(scenario, fetched(b"a"), version=1)


def test_record_limit_is_not_sent_to_a_broker_without_it() -> None:
    async def scenario(session: ShareSession, broker: ScriptedBroker) -> None:
        answer = await fetch(session, mode=AcquireMode.RECORD_LIMIT)
        assert isinstance(answer.failure, UnsupportedVersion)
        assert "share_acquire_mode='record_limit' needs ShareFetch version 2" in str(answer.failure)

    play(scenario, version=1)


@pytest.mark.parametrize(
    "acquired",
    [((0, 2), (1, 3)), ((2, 3), (0, 1)), ((-5, 1),), ((3, 3),), ((3, 2),), ((0, 2**63),)],
    ids=["overlap", "descend", "negative", "empty", "backwards", "endless"],
)
def test_acquired_ranges_that_make_no_sense_are_refused(acquired: Any) -> None:
    async def scenario(session: ShareSession, broker: ScriptedBroker) -> None:
        answer = await fetch(session)
        (partition,) = answer.partitions
        assert partition.acquired == ()
        assert isinstance(partition.error, CorruptMessage)

    play(scenario, fetched(b"a", b"b", b"c", acquired=acquired))


def test_records_of_partitions_not_fetched_are_ignored() -> None:
    async def scenario(session: ShareSession, broker: ScriptedBroker) -> None:
        limits = FetchLimits(max_records=500, max_bytes=1_000, max_wait_ms=500)
        other = KEY._replace(partition=1)
        assert (await session.fetch([other], {}, limits)).partitions == []

    play(scenario, fetched(b"a"))


def test_a_partition_that_is_named_twice_counts_once() -> None:
    async def scenario(session: ShareSession, broker: ScriptedBroker) -> None:
        (partition,) = (await fetch(session)).partitions
        assert partition.acquired == (AcquiredRecords.of_range(0, 1, 1),)

    once = fetched(b"a")
    play(scenario, replace(once, responses=once.responses * 2))


@pytest.mark.parametrize(
    ("answer", "outdated"),
    [
        (SessionAnswer(failure=NetworkException("refused"), sent_at=0), {KEY, OTHER}),
        (SessionAnswer(failure=NoAnswer("silent"), sent_at=5.0), {KEY, OTHER}),
        (SessionAnswer(failure=ShareSessionNotFound("gone"), sent_at=5.0), set()),
        (
            SessionAnswer(
                [FetchedPartition(KEY, b"", (), NotLeaderOrFollower("moved"))], sent_at=5.0
            ),
            {KEY},
        ),
        (SessionAnswer(sent_at=5.0), set()),
    ],
)
def test_a_broker_that_answers_still_leads_partitions_without_an_error(
    answer: SessionAnswer, outdated: set[TopicIdPartition]
) -> None:
    assert answer.outdated_leaders([KEY, OTHER]) == outdated
