"""What a query's reader does between two batches, with a share group played by hand."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from sharegroup.client import AcknowledgeType, SharePartitionOffset
from sharegroup.client.records import IdlePeriod
from sharegroup.client.share.ranges.share_ranges import AcquiredRanges
from sharegroup.client.share.session.acknowledgements import UNSTARTED, AckRun, released_after
from sharegroup.client.share.session.acquired_records import AcquiredRecords
from sharegroup.client.share.session.offset_set import EMPTY, OffsetSet
from sharegroup.errors import GroupAuthorizationFailed, NetworkException, UnsupportedVersion
from sharegroup.ids import TopicId, TopicIdPartition, TopicName
from sharegroup.spark.carry import Carry, DecidedOffsets
from sharegroup.spark.offsets import StreamOffset, Subscription, parse
from sharegroup.spark.share_stream import ShareStream, StreamTimes

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
TOPIC = TopicId(UUID(int=1))
KEY = TopicIdPartition(TOPIC, 0)
OTHER = TopicIdPartition(TOPIC, 1)
BILLING = Subscription("billing", ("orders",))
START = StreamOffset(BILLING)


NO_WAITING = StreamTimes(poll_ms=0, positions_seconds=0, idle_seconds=0)


class Group:
    """Hands out what it was given, remembers what it was told, refuses what it is told to."""

    def __init__(self, *deliveries: tuple[int, int, int]) -> None:
        self.deliveries = [*deliveries]
        self.told: list[tuple[int, int, int]] = []
        self.ahead: list[int] = []
        self.waits_ms: list[int] = []
        self.refused = EMPTY
        self.start_offset = 0
        self.lag: int | None = None
        self.end_offset = 1_000
        self.topic_id: TopicId | None = TOPIC
        self.failure: Exception | None = None
        self.held: dict[TopicIdPartition, OffsetSet] = {}
        self.assigned = frozenset({KEY})
        self.idle: IdlePeriod | None = None
        self.has_delays = True

    def check_delays(self, keys: Iterable[TopicIdPartition]) -> None:
        if not self.has_delays:
            raise UnsupportedVersion(f"no delays for {[*keys]}")

    async def acquire(self, *, records_max: int, wait_ms: int) -> AcquiredRanges:
        self.waits_ms.append(wait_ms)
        if isinstance(self.failure, NetworkException):
            return AcquiredRanges(failure=self.failure)
        if self.failure is not None:
            raise self.failure
        if not self.deliveries:
            return AcquiredRanges()
        return AcquiredRanges({KEY: (AcquiredRecords.of_range(*self.deliveries.pop(0)),)})

    def acquire_ahead(self, *, records_max: int) -> None:
        self.ahead.append(records_max)

    async def acknowledge(
        self, runs: Mapping[TopicIdPartition, Sequence[AckRun]]
    ) -> dict[TopicIdPartition, OffsetSet]:
        self.told += [tuple(run) for some in runs.values() for run in some]
        asked = {
            key: OffsetSet.of((range_.first, range_.end) for range_ in runs[key]) for key in runs
        }
        return {key: asked[key] & self.refused for key in runs if asked[key] & self.refused}

    async def positions(self) -> dict[TopicIdPartition, SharePartitionOffset]:
        return {KEY: SharePartitionOffset(self.start_offset, None, self.lag)}

    async def end_offsets(self) -> dict[TopicIdPartition, int]:
        return {KEY: self.end_offset}

    async def topic_ids(self) -> dict[TopicName, TopicId | None]:
        return {TopicName("orders"): self.topic_id}

    def name_of(self, topic_id: TopicId) -> TopicName:
        return TopicName("orders")


class Decided:
    """Decisions by the number of the batch."""

    def __init__(self, **decided: Mapping[int, OffsetSet]) -> None:
        self.decided = {int(name.removeprefix("batch")): kinds for name, kinds in decided.items()}
        self.announced: list[str] = []

    def outcomes(self, batch: StreamOffset) -> DecidedOffsets:
        kinds = self.decided.get(batch.seq)
        return {} if kinds is None else {KEY: kinds}

    def announce(self, query: str) -> None:
        self.announced.append(query)


def stream_of(
    group: Group, decided: Decided | None = None, times: StreamTimes = NO_WAITING
) -> ShareStream:
    return ShareStream(group, decided or Decided(), query="query", load="load", times=times)


def advance(stream: ShareStream, *starts: StreamOffset) -> StreamOffset:
    """Ask for the offset after each of these, and after that for the one after the answer."""

    async def run() -> StreamOffset:
        offset = START
        for start in starts:
            offset = await stream.advance(start)
        return offset

    return asyncio.run(run())


def ranges(*some: tuple[int, int]) -> OffsetSet:
    return OffsetSet.of(some)


def test_acquired_ranges_are_the_next_offset() -> None:
    group = Group((10, 20, 1))
    end = advance(stream_of(group), START)
    assert (end.seq, end.acquired, end.names) == (
        1,
        {KEY: (AcquiredRecords.of_range(10, 20, 1),)},
        {TOPIC: "orders"},
    )
    assert group.told == []


@pytest.mark.parametrize(("records_max", "ahead"), [(9, [9]), (10, [10]), (11, [])])
def test_only_a_batch_that_the_limit_ended_lets_the_next_be_acquired_ahead(
    records_max: int, ahead: list[int]
) -> None:
    group = Group((10, 20, 1))
    stream = stream_of(group)
    asyncio.run(stream.acquire_ahead(advance(stream, START), records_max))
    assert group.ahead == ahead


def test_a_batch_is_accepted_when_its_end_is_the_start_of_a_question() -> None:
    group = Group((10, 20, 1))
    stream = stream_of(group)
    end = advance(stream, START)
    again = advance(stream, end)
    assert again is end, "with nothing new the offset must not change"
    assert group.told == [(10, 20, ACCEPT)]


def test_repeated_commit_acknowledges_a_batch_once() -> None:
    group = Group((10, 20, 1))
    stream = stream_of(group)
    end = advance(stream, START)
    advance(stream, end, end, end)
    assert group.told == [(10, 20, ACCEPT)]


def test_restarted_run_announces_its_folder_before_it_runs_the_batch_of_an_earlier_run() -> None:
    restarted = Decided()
    stream = stream_of(Group(), restarted)
    batch = StreamOffset(BILLING, 3, "query", "load")
    stream.runs_again(batch)
    assert restarted.announced == [], "the batch of this run"
    stream.runs_again(replace(batch, load="earlier"))
    assert restarted.announced == ["query"]


def test_batch_of_an_earlier_run_needs_no_folder_if_it_cannot_be_made() -> None:
    class Full(Decided):
        def announce(self, query: str) -> None:
            raise OSError(errno.ENOSPC, query)

    stream_of(Group(), Full()).runs_again(StreamOffset(BILLING, 3, "query", "earlier"))


def test_offsets_say_that_the_query_decides_from_its_first_decision_on() -> None:
    """The files are announced before Spark logs an offset that says so, also after a restart."""
    decided = Decided(batch1={RELEASE: ranges((12, 13))})
    stream = stream_of(Group((10, 20, 1), (20, 30, 1), (30, 40, 1)), decided)
    first = advance(stream, START)
    assert (first.decides, decided.announced) == (False, [])
    second = advance(stream, first)
    assert (second.decides, decided.announced) == (True, ["query"])
    assert advance(stream, second).decides
    restarted = Decided()
    assert advance(stream_of(Group((30, 40, 1)), restarted), second).decides
    assert restarted.announced == ["query"]


def test_decisions_are_sent_and_the_rest_is_accepted() -> None:
    group = Group((10, 20, 1))
    decided = Decided(batch1={REJECT: ranges((12, 13)), RELEASE: ranges((15, 20))})
    stream = stream_of(group, decided)
    advance(stream, advance(stream, START))
    assert group.told == [(10, 12, ACCEPT), (12, 13, REJECT), (13, 15, ACCEPT), (15, 20, RELEASE)]
    report = stream.report()
    assert [report[name] for name in ("accepted", "rejected", "released")] == [4, 1, 5]


def test_releases_with_a_delay_are_sent_and_count_as_released() -> None:
    group = Group((10, 20, 1))
    later = released_after(500)
    stream = stream_of(group, Decided(batch1={later: ranges((12, 13)), RELEASE: ranges((13, 15))}))
    advance(stream, advance(stream, START))
    assert group.told == [
        (10, 12, ACCEPT),
        (12, 13, later),
        (13, 15, RELEASE),
        (15, 20, ACCEPT),
    ]
    report = stream.report()
    assert [report[name] for name in ("accepted", "released", "rejected")] == [7, 3, 0]


def test_delay_that_the_broker_does_not_keep_is_refused_before_anything_is_acknowledged() -> None:
    group = Group((10, 20, 1))
    group.has_delays = False
    stream = stream_of(group, Decided(batch1={released_after(0): ranges((12, 13))}))
    end = advance(stream, START)
    with pytest.raises(UnsupportedVersion, match="no delays for"):
        advance(stream, end)
    assert group.told == []


def test_after_a_restart_the_lost_batch_is_recognised_and_not_shown_again() -> None:
    """The new member cannot acknowledge records of the old one; it accepts their redelivery."""
    end = advance(stream_of(Group((10, 20, 1))), START)
    logged = parse(end.to_json(), BILLING)
    group = Group((10, 20, 2))
    group.refused = ranges((10, 20))
    stream = stream_of(group)
    assert advance(stream, logged) is logged
    assert stream.report()["carried"] == 10, "the broker refuses it still, so it stays carried"
    group.refused = EMPTY
    group.told.clear()
    group.deliveries = [(8, 25, 3)]
    end = advance(stream, logged)
    assert group.told == [(10, 20, ACCEPT)]
    assert end.acquired == {
        KEY: (AcquiredRecords.of_range(8, 10, 3), AcquiredRecords.of_range(20, 25, 3))
    }
    assert end.carry == Carry()
    assert stream.report()["recognised"] == 10


def test_a_lost_release_is_not_carried() -> None:
    end = advance(stream_of(Group((10, 20, 1))), START)
    group = Group((10, 20, 2))
    group.refused = ranges((10, 20))
    stream = stream_of(group, Decided(batch1={RELEASE: ranges((10, 20))}))
    again = advance(stream, end)
    assert again.acquired == {KEY: (AcquiredRecords.of_range(10, 20, 2),)}
    assert again.carry == Carry()


def test_a_lost_reject_is_rejected_again() -> None:
    end = advance(stream_of(Group((10, 12, 1))), START)
    group = Group((30, 31, 1))
    group.refused = ranges((10, 12))
    stream = stream_of(group, Decided(batch1={REJECT: ranges((11, 12))}))
    second = advance(stream, end)
    assert second.carry == Carry({KEY: ranges((10, 11))}, {KEY: ranges((11, 12))})
    group.refused = EMPTY
    group.told.clear()
    group.deliveries = [(10, 12, 2)]
    assert advance(stream, second) is second
    assert group.told == [(30, 31, ACCEPT), (10, 11, ACCEPT), (11, 12, REJECT)]
    assert stream.report()["carried"] == 0


def test_report_has_the_warning_about_an_idle_member() -> None:
    group = Group()
    stream = stream_of(group)
    assert (stream.report()["idleSeconds"], stream.report()["idleCause"]) == (0, None)
    group.idle = IdlePeriod(20.7, "assigned=0 action='check that the topics exist'")
    assert stream.report()["idleSeconds"] == 21
    assert stream.report()["idleCause"] == "assigned=0 action='check that the topics exist'"


def test_the_carry_is_pruned_by_the_start_offset() -> None:
    end = advance(stream_of(Group((10, 20, 1))), START)
    group = Group()
    group.refused = ranges((10, 20))
    group.start_offset = 18
    stream = stream_of(group)
    advance(stream, end)
    assert stream.report()["carried"] == 2
    assert stream.report()["lostAcknowledgements"] == 10


def test_carried_records_acquired_ahead_are_recognised_below_the_start_offset() -> None:
    """Their log was deleted meanwhile, or their locks ended and another member settled them."""
    end = advance(stream_of(Group((10, 20, 1))), START)
    group = Group((10, 15, 2))
    group.refused = ranges((10, 20))
    group.start_offset = 30
    stream = stream_of(group)
    assert advance(stream, end) is end
    assert group.told[1:] == [(10, 15, ACCEPT)]
    assert stream.report()["carried"] == 0


def test_carried_offsets_of_a_deleted_topic_are_dropped() -> None:
    end = advance(stream_of(Group((10, 20, 1))), START)
    group = Group()
    group.refused = ranges((10, 20))
    group.topic_id = TopicId(UUID(int=2))  # The topic was recreated with the same name.
    stream = stream_of(group)
    advance(stream, end)
    assert stream.report()["carried"] == 0


def test_carried_offsets_stay_while_a_broker_does_not_know_their_topic_yet() -> None:
    """They are recognised when they are delivered again; otherwise a sink would get them twice."""
    end = advance(stream_of(Group((10, 20, 1))), START)
    group = Group()
    group.refused = ranges((10, 20))
    group.topic_id = None
    stream = stream_of(group)
    for known in (None, TOPIC, None):
        group.topic_id = known
        advance(stream, end)
        assert stream.report()["carried"] == 10
    stream = stream_of(group, times=replace(NO_WAITING, deleted_seconds=0))
    advance(stream, end)
    assert stream.report()["carried"] == 0


def test_an_unreachable_broker_is_waited_for() -> None:
    group = Group()
    group.failure = NetworkException("no broker can be reached")
    assert advance(stream_of(group), START) is START


def test_missing_topic_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    group = Group()
    group.assigned = frozenset()
    group.topic_id = None
    stream = stream_of(group)
    advance(stream, START, START)
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "event=topics.missing names=['orders'] action='the stream waits until they are created'"
    ], "once"


def test_permanent_error_is_raised() -> None:
    group = Group()
    group.failure = GroupAuthorizationFailed("group 'billing' is not open to this user")
    with pytest.raises(GroupAuthorizationFailed, match="billing"):
        advance(stream_of(group), START)


def available_now(
    group: Group, times: StreamTimes = NO_WAITING
) -> tuple[ShareStream, StreamOffset]:
    stream = stream_of(group, times=times)

    async def run() -> StreamOffset:
        await stream.stop_at_the_end()
        return await stream.advance(START)

    return stream, asyncio.run(run())


def test_available_now_ends_when_the_group_has_no_lag() -> None:
    group = Group()
    group.lag = 0
    _, end = available_now(group)
    assert end is START


def test_available_now_ends_without_a_wait_once_its_last_batch_is_settled() -> None:
    """Positions that were asked for just before the acknowledgement do not delay the end."""
    group = Group((990, 1_000, 1))
    group.start_offset, group.lag = 990, 10
    times = replace(NO_WAITING, poll_ms=1_000, positions_seconds=60, idle_seconds=1)
    stream, first = available_now(group, times=times)

    async def run() -> StreamOffset:
        await stream.refresh_positions()  # As Spark's progress report does.
        group.start_offset, group.lag = 1_000, 0
        return await stream.advance(first)

    assert asyncio.run(run()) is first
    assert group.waits_ms == [0, 0], "a call with a wait would hold up the end of the run"


def test_available_now_includes_later_records_of_the_last_range() -> None:
    group = Group((990, 1_010, 1))
    _, end = available_now(group)
    assert end.acquired == {KEY: (AcquiredRecords.of_range(990, 1_010, 1),)}
    assert group.told == []


def test_available_now_releases_records_written_after_its_start() -> None:
    """Without the delay of the group: the query has not begun them."""
    group = Group((1_000, 1_010, 1))
    _, end = available_now(group)
    assert end is START
    assert group.told == [(1_000, 1_010, UNSTARTED)]


class TwoPartitions(Group):
    """Hands out of both in the order they were given, and has records before 1,000 in each."""

    def __init__(self, *deliveries: tuple[TopicIdPartition, int, int]) -> None:
        super().__init__()
        self.of_both = [*deliveries]
        self.assigned = frozenset({KEY, OTHER})
        self.starts = {KEY: 0, OTHER: 0}

    async def acquire(self, *, records_max: int, wait_ms: int) -> AcquiredRanges:
        if not self.of_both:
            return AcquiredRanges()
        key, first, end = self.of_both.pop(0)
        return AcquiredRanges({key: (AcquiredRecords.of_range(first, end, 1),)})

    async def positions(self) -> dict[TopicIdPartition, SharePartitionOffset]:
        return {key: SharePartitionOffset(start, None, 5) for key, start in self.starts.items()}

    async def end_offsets(self) -> dict[TopicIdPartition, int]:
        return {KEY: 1_000, OTHER: 1_000}


def test_available_now_reads_each_partition_to_its_end_while_another_grows() -> None:
    group = TwoPartitions((KEY, 1_000, 1_010), (OTHER, 0, 1_000), (KEY, 1_010, 1_020))
    stream, first = available_now(group, times=replace(NO_WAITING, idle_seconds=60))
    assert first.acquired == {KEY: (AcquiredRecords.of_range(1_000, 1_010, 1),)}, (
        "nothing of OTHER has come yet"
    )
    second = advance(stream, first)
    assert second.acquired == {OTHER: (AcquiredRecords.of_range(0, 1_000, 1),)}
    group.starts = {KEY: 1_010, OTHER: 1_000}
    assert advance(stream, second) is second
    assert group.told[-1] == (1_010, 1_020, UNSTARTED)


def test_available_now_ends_while_other_members_hold_records_of_a_partition() -> None:
    group = TwoPartitions((KEY, 0, 1_000), (KEY, 1_000, 1_010), (KEY, 1_010, 1_020))
    stream, first = available_now(group)
    assert advance(stream, first) is first
    assert group.told[-1] == (1_000, 1_010, UNSTARTED)


def test_available_now_does_not_wait_for_records_held_by_other_members() -> None:
    group = Group()
    group.lag = 5
    _, end = available_now(group)
    assert end is START


def test_available_now_fails_when_no_broker_answers() -> None:
    group = Group()
    group.failure = NetworkException("no broker can be reached")
    with pytest.raises(NetworkException):
        available_now(group, times=replace(NO_WAITING, join_seconds_max=0))
