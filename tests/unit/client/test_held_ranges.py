"""What is held from one broker, with the broker's answers played by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from struct import Struct
from typing import Any
from uuid import UUID

import pytest
from kio.static.primitive import i8, i32, i64

from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.client.share.ranges.held_ranges import REQUESTS_MAX, HeldRanges
from sharegroup.client.share.session.acknowledgements import AckRun
from sharegroup.client.share.session.acquired_records import AcquiredRecords
from sharegroup.client.share.session.offset_set import EMPTY, OffsetSet
from sharegroup.client.share.session.share_requests import FetchLimits
from sharegroup.client.share.session.share_session import FetchedPartition, SessionAnswer
from sharegroup.errors import (
    CoordinatorNotAvailable,
    InvalidRecordState,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailable,
    NetworkException,
    NotLeaderOrFollower,
    ShareSessionNotFound,
)
from sharegroup.ids import TopicId, TopicIdPartition
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.wire.messages.share_fetch_v2 import LogBatch

GAP, ACCEPT, REJECT, RENEW = 0, 1, 3, 4
KEY = TopicIdPartition(TopicId(UUID(int=1)), 0)
OTHER = TopicIdPartition(TopicId(UUID(int=1)), 1)
LIMITS = FetchLimits(max_records=500, max_bytes=1_000_000, max_wait_ms=0)
OVER = InvalidRecordState("the lock is over")

Runs = Mapping[TopicIdPartition, Sequence[AckRun]]


class Session:
    """A session whose broker refuses every request that has a record of ``over``."""

    def __init__(self) -> None:
        self.over = EMPTY
        self.brings: list[FetchedPartition] = []
        self.answers: list[KafkaError | None] = []
        self.lost: KafkaError | None = None
        self.sent: list[list[tuple[int, int, int]]] = []
        self.moved: list[TopicIdPartition] = []

    async def fetch(
        self, wanted: Sequence[TopicIdPartition], acks: Runs, limits: Any
    ) -> SessionAnswer:
        return SessionAnswer(self.brings, lock_ms=30_000)

    async def acknowledge(
        self, acks: Runs, *, close: bool = False, renew: bool = False
    ) -> SessionAnswer:
        self.sent += [[tuple(run) for run in acks[key]] for key in acks]
        if self.lost is not None:
            return SessionAnswer(
                results=dict.fromkeys(acks, self.lost), lost=self.lost, failure=self.lost
            )
        return SessionAnswer(results={key: self._judge(acks[key]) for key in acks})

    def _judge(self, runs: Sequence[AckRun]) -> KafkaError | None:
        if self.answers:
            return self.answers.pop(0)
        return OVER if OffsetSet.of((run.first, run.end) for run in runs) & self.over else None


def play(
    scenario: Callable[[HeldRanges, Session], Coroutine[Any, Any, None]],
    *acquired: tuple[int, int],
    records: bytes = b"",
    key: TopicIdPartition = KEY,
) -> None:
    async def run() -> None:
        session = Session()
        ranges = tuple(AcquiredRecords.of_range(first, end, 1) for first, end in acquired)
        session.brings = [FetchedPartition(key, records, ranges, None)]
        config = ClientConfig(retry_backoff_ms=1, retry_backoff_max_ms=1)
        held = HeldRanges(
            session,  # type: ignore[arg-type]
            Cluster(config),
            on_moved=session.moved.append,
        )
        if acquired:
            await held.fetch([key], LIMITS)
        await scenario(held, session)

    asyncio.run(run())


def accepts(*some: tuple[int, int]) -> dict[TopicIdPartition, tuple[AckRun, ...]]:
    return {KEY: tuple(AckRun(first, end, ACCEPT) for first, end in some)}


def test_confirmed_ranges_are_no_longer_held() -> None:
    async def scenario(held: HeldRanges, session: Session) -> None:
        confirmed = await held.acknowledge(accepts((0, 60)))
        assert confirmed == {KEY: OffsetSet(((0, 60),))}
        assert held.held == {KEY: OffsetSet(((60, 100),))}

    play(scenario, (0, 100))


def test_single_record_whose_lock_has_ended_is_found() -> None:
    async def scenario(held: HeldRanges, session: Session) -> None:
        session.over = OffsetSet(((731, 732),))
        confirmed = await held.acknowledge(accepts((0, 1_000)))
        assert confirmed == {KEY: OffsetSet(((0, 731), (732, 1_000)))}
        assert len(session.sent) == 21
        assert held.held == {}

    play(scenario, (0, 1_000))


def test_halving_keeps_the_types_and_the_holes() -> None:
    async def scenario(held: HeldRanges, session: Session) -> None:
        session.over = OffsetSet(((0, 2),))
        runs = (AckRun(0, 2, ACCEPT), AckRun(2, 3, REJECT), AckRun(10, 13, ACCEPT))
        confirmed = await held.acknowledge({KEY: runs})
        assert confirmed == {KEY: OffsetSet(((2, 3), (10, 13)))}
        assert session.sent == [
            [(0, 2, ACCEPT), (2, 3, REJECT), (10, 13, ACCEPT)],
            [(10, 13, ACCEPT)],
            [(0, 2, ACCEPT), (2, 3, REJECT)],
            [(1, 2, ACCEPT), (2, 3, REJECT)],
            [(2, 3, REJECT)],
            [(1, 2, ACCEPT)],
            [(0, 1, ACCEPT)],
        ]

    play(scenario, (0, 3), (10, 13))


def test_when_nearly_all_locks_are_over_the_search_ends() -> None:
    """Ranges not yet divided then count as refused, although one record of them was not."""

    async def scenario(held: HeldRanges, session: Session) -> None:
        session.over = OffsetSet(((0, 5_000), (5_001, 10_000)))
        confirmed = await held.acknowledge(accepts((0, 10_000)))
        assert confirmed == {KEY: EMPTY}
        assert len(session.sent) == 1 + REQUESTS_MAX

    play(scenario, (0, 10_000))


def test_acknowledgement_is_retried_after_a_storage_error() -> None:
    async def scenario(held: HeldRanges, session: Session) -> None:
        session.answers = [KafkaStorageError("disk full"), KafkaStorageError("disk full")]
        assert await held.acknowledge(accepts((0, 10))) == {KEY: OffsetSet(((0, 10),))}
        assert len(session.sent) == 3

    play(scenario, (0, 10))


def test_acknowledgement_is_not_retried_after_the_leader_moved() -> None:
    async def scenario(held: HeldRanges, session: Session) -> None:
        session.answers = [NotLeaderOrFollower("moved")]
        assert await held.acknowledge(accepts((0, 10))) == {KEY: EMPTY}
        assert len(session.sent) == 1
        assert held.held == {}

    play(scenario, (0, 10))


def test_lost_session_empties_the_held_ranges() -> None:
    async def scenario(held: HeldRanges, session: Session) -> None:
        session.lost = NetworkException("the connection broke")
        assert await held.acknowledge(accepts((0, 5))) == {KEY: EMPTY}
        assert held.held == {}

    play(scenario, (0, 10))


def test_offsets_that_are_not_held_are_not_sent() -> None:
    async def scenario(held: HeldRanges, session: Session) -> None:
        confirmed = await held.acknowledge(
            {KEY: (AckRun(5, 15, ACCEPT),), OTHER: (AckRun(0, 3, ACCEPT),)}
        )
        assert confirmed == {KEY: OffsetSet(((5, 10),))}
        assert session.sent == [[(5, 10, ACCEPT)]]

    play(scenario, (0, 10))


def test_renewal_finds_the_lock_that_has_ended_and_keeps_the_others() -> None:
    async def scenario(held: HeldRanges, session: Session) -> None:
        session.over = OffsetSet(((7, 8),))
        await held.renew()
        assert held.held == {KEY: OffsetSet(((0, 7), (8, 100)))}
        session.sent.clear()
        await held.renew()
        assert session.sent == [[(0, 7, AcknowledgeType.RENEW), (8, 100, AcknowledgeType.RENEW)]]

    play(scenario, (0, 100))


def test_a_group_that_forbids_renewal_keeps_its_locks_until_they_end() -> None:
    async def scenario(held: HeldRanges, session: Session) -> None:
        session.over = OffsetSet(((0, 4),))
        await held.renew()
        assert held.held == {KEY: OffsetSet(((0, 4),))}
        session.over = EMPTY
        assert await held.acknowledge(accepts((0, 4))) == {KEY: OffsetSet(((0, 4),))}

    play(scenario, (0, 4))


def test_group_that_forbids_renewal_gets_one_request_per_renewal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The error text says that no renewal can succeed, so the client searches for no ended lock."""

    async def scenario(held: HeldRanges, session: Session) -> None:
        for _ in range(2):
            session.answers = [InvalidRecordState("share.renew.acknowledge.enable is false")]
            await held.renew()
        assert session.sent == [[(0, 4, AcknowledgeType.RENEW)]] * 2
        assert held.held == {KEY: OffsetSet(((0, 4),))}

    play(scenario, (0, 4))
    assert [text.split()[0] for text in caplog.messages] == ["event=locks.not_renewed"]


def test_renewal_after_a_transient_refusal_still_finds_the_ended_lock(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(held: HeldRanges, session: Session) -> None:
        session.answers = [CoordinatorNotAvailable("away")]
        await held.renew()
        session.over = OffsetSet(((7, 8),))
        await held.renew()
        assert held.held == {KEY: OffsetSet(((0, 7), (8, 100)))}

    play(scenario, (0, 100))
    assert [text.split()[0] for text in caplog.messages] == ["event=locks.ended"]


@pytest.mark.parametrize("request_kind", ["acknowledge", "renew", "fetch"])
def test_moved_leader_ends_all_locks_of_the_partition(request_kind: str) -> None:
    async def scenario(held: HeldRanges, session: Session) -> None:
        moved = NotLeaderOrFollower("moved")
        session.answers = [moved]
        session.brings = [FetchedPartition(KEY, b"", (), moved)]
        match request_kind:
            case "acknowledge":
                assert await held.acknowledge(accepts((0, 5))) == {KEY: EMPTY}
                assert session.moved == [KEY]
            case "renew":
                await held.renew()
                assert session.moved == [KEY]
            case "fetch":
                fetched = await held.fetch([KEY], LIMITS)
                assert (fetched.errors, fetched.outdated) == ({KEY: moved}, {KEY})
        assert held.held == {}

    play(scenario, (0, 10))


def test_acknowledgement_is_retried_after_a_transient_error() -> None:
    async def scenario(held: HeldRanges, session: Session) -> None:
        session.answers = [LeaderNotAvailable("electing")]
        assert await held.acknowledge(accepts((0, 10))) == {KEY: OffsetSet(((0, 10),))}
        assert len(session.sent) == 2

    play(scenario, (0, 10))


# Offsets without a record.

_HEADER = Struct(">qiibIhiqqqhii")
CONTROL = 0x20


def batch(first: int, end: int, attributes: int = 0) -> bytes:
    """The header of a log batch; nobody looks behind it."""
    return _HEADER.pack(
        first, 49, 0, 2, 0, attributes, end - first - 1, 0, 0, -1, -1, -1, end - first
    )


def test_a_marker_and_a_compacted_hole_are_acknowledged_as_gaps() -> None:
    async def scenario(held: HeldRanges, session: Session) -> None:
        await held.acknowledge(accepts((0, 20)))
        assert session.sent == [
            [
                (0, 5, ACCEPT),
                (5, 6, AcknowledgeType.GAP),
                (6, 10, ACCEPT),
                (10, 15, AcknowledgeType.GAP),
                (15, 20, ACCEPT),
            ]
        ]

    records = batch(0, 5) + batch(5, 6, CONTROL) + batch(6, 10) + batch(15, 20)
    play(scenario, (0, 20), records=records)


def test_a_range_without_any_record_is_settled_and_not_reported() -> None:
    async def scenario(held: HeldRanges, session: Session) -> None:
        session.brings = [
            FetchedPartition(
                KEY,
                batch(20, 21, CONTROL) + batch(21, 25),
                (AcquiredRecords.of_range(20, 21, 1), AcquiredRecords.of_range(22, 25, 2)),
                None,
            )
        ]
        fetched = await held.fetch([KEY], LIMITS)
        assert fetched.acquired == {KEY: (AcquiredRecords.of_range(22, 25, 2),)}
        await held.acknowledge_empty()
        assert session.sent == [[(20, 21, AcknowledgeType.GAP)]]
        assert held.held == {KEY: OffsetSet(((22, 25),))}

    play(scenario)


def test_truncated_batch_at_the_end_of_a_response_is_no_gap() -> None:
    async def scenario(held: HeldRanges, session: Session) -> None:
        await held.acknowledge(accepts((0, 10)))
        assert session.sent == [[(0, 10, ACCEPT)]]

    play(scenario, (0, 10), records=batch(0, 5) + batch(5, 10)[:30])


def test_a_batch_with_an_impossible_end_is_no_record() -> None:
    async def scenario(held: HeldRanges, session: Session) -> None:
        await held.acknowledge(accepts((0, 10)))
        assert session.sent == [[(0, 5, ACCEPT), (5, 7, AcknowledgeType.GAP), (7, 10, ACCEPT)]]

    play(scenario, (0, 10), records=batch(0, 5) + batch(6, 4) + batch(7, 10))


def test_bytes_that_are_no_batch_hide_no_record() -> None:
    async def scenario(held: HeldRanges, session: Session) -> None:
        await held.acknowledge(accepts((0, 10)))
        assert session.sent == [[(0, 10, ACCEPT)]]

    play(scenario, (0, 10), records=b"\xff" * 100)


def test_records_of_a_new_session_are_kept_when_the_old_one_was_lost() -> None:
    async def scenario(held: HeldRanges, session: Session) -> None:
        async def fetch(*_: Any) -> SessionAnswer:
            gone = ShareSessionNotFound("gone")
            fresh = FetchedPartition(KEY, b"", (AcquiredRecords.of_range(50, 60, 1),), None)
            return SessionAnswer([fresh], lost=gone)

        session.fetch = fetch  # type: ignore[method-assign]
        await held.fetch([KEY], LIMITS)
        assert held.held == {KEY: OffsetSet(((50, 60),))}

    play(scenario, (0, 10))


@pytest.mark.parametrize(
    "answer",
    [
        SessionAnswer(lost=ShareSessionNotFound("gone")),
        SessionAnswer([FetchedPartition(KEY, b"", (), NotLeaderOrFollower("moved"))]),
    ],
    ids=["session", "leader"],
)
def test_a_range_without_records_is_forgotten_with_its_lock(answer: SessionAnswer) -> None:
    """An unclean election can put records at these offsets, which no gap may pass over."""

    async def scenario(held: HeldRanges, session: Session) -> None:
        anew = SessionAnswer(
            [FetchedPartition(KEY, batch(0, 3), (AcquiredRecords.of_range(0, 3, 1),), None)]
        )
        answers = [answer, anew]

        async def fetch(*_: Any) -> SessionAnswer:
            return answers.pop(0)

        session.fetch = fetch  # type: ignore[method-assign]
        await held.fetch([KEY], LIMITS)
        await held.fetch([KEY], LIMITS)
        await held.acknowledge_empty()
        assert session.sent == []
        assert held.held == {KEY: OffsetSet(((0, 3),))}

    play(scenario, (0, 3), records=batch(0, 3, CONTROL))


def test_a_range_without_records_is_forgotten_by_a_close() -> None:
    async def scenario(held: HeldRanges, session: Session) -> None:
        await held.close()
        session.brings = [
            FetchedPartition(KEY, batch(0, 3), (AcquiredRecords.of_range(0, 3, 1),), None)
        ]
        await held.fetch([KEY], LIMITS)
        await held.acknowledge_empty()
        assert session.sent == []

    play(scenario, (0, 3), records=batch(0, 3, CONTROL))


def test_listed_batches_tell_which_offsets_are_gaps_as_their_bytes_do() -> None:
    """Offset 5 is a marker, 10 to 14 were compacted, and nothing is known of 20 to 27."""

    async def scenario(held: HeldRanges, session: Session) -> None:
        session.brings = [
            FetchedPartition(
                KEY,
                b"",
                (AcquiredRecords(0, 27, 1),),
                None,
                tuple(listed(*batch) for batch in ((0, 5), (5, 6, 1), (6, 10), (15, 20))),
            )
        ]
        fetched = await held.fetch([KEY], LIMITS)
        assert (fetched.offset_count, fetched.record_bytes) == (28, 4_000)
        await held.acknowledge(accepts((0, 28)))
        assert session.sent == [
            [
                *((0, 5, ACCEPT), (5, 6, GAP), (6, 10, ACCEPT)),
                *((10, 15, GAP), (15, 28, ACCEPT)),
            ]
        ]

    play(scenario)


def listed(first: int, end: int, flags: int = 0) -> LogBatch:
    return LogBatch(first_offset=i64(first), end_offset=i64(end), size=i32(1_000), flags=i8(flags))
