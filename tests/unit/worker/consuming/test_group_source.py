"""A member of an in-memory consumer group: commits, metadata that does not fit, rebalances."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any

import pytest

from sharegroup.core.delivery.delivery import SharePartitionLimits
from sharegroup.errors import (
    KafkaError,
    MessageTooLarge,
    NotCoordinator,
    OffsetMetadataTooLarge,
    UnreadableBatch,
)
from sharegroup.worker.consuming import group_source, owned_partition
from sharegroup.worker.consuming.commit_metadata import PREFIX, read
from sharegroup.worker.consuming.group_log import GroupReading
from sharegroup.worker.consuming.group_source import GroupSource
from sharegroup.worker.consuming.owned_partition import ConsumedRecord
from sharegroup.worker.declarations.route import StartFrom
from sharegroup.worker.ports import BufferedRecord, DeliveredRecord
from sharegroup.worker.records.unreadable_range import UnreadableRange
from sharegroup.worker.retrying.tier_log import Committed, OwnershipLost
from sharegroup.worker.retrying.tier_moves import MovesRefused
from sharegroup.worker.testing.app_test import drained
from sharegroup.worker.transport.group_log_memory import MemoryConsumerGroup, MemoryGroupLog
from sharegroup.worker.transport.memory import MemoryWorld
from sharegroup.worker.transport.memory_log import MemoryLog, MemoryRecord
from tests.support.limits import HANGING_SECONDS

GROUP, TOPIC = "audit", "orders"


class Changes:
    """Rebalances that are noted; a revocation waits for `may_end`."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, list[int]]] = []
        self.may_end = asyncio.Event()
        self.may_end.set()

    def assigned(self, topic: str, partitions: Collection[int]) -> None:
        self.seen.append(("assigned", sorted(partitions)))

    async def revoke(self, topic: str, partitions: Collection[int], within_seconds: float) -> None:
        self.seen.append(("revoke", sorted(partitions)))
        await self.may_end.wait()

    def gone(self, topic: str, partitions: Collection[int], *, is_lost: bool) -> None:
        self.seen.append(("lost" if is_lost else "gone", sorted(partitions)))


class SceneLog(MemoryGroupLog):
    """The topic, of which some offsets of partition 0 cannot be read; a commit may wait or fail."""

    damaged = range(0)

    def __init__(
        self, member_id: str, group: MemoryConsumerGroup, topic: str, log: MemoryLog
    ) -> None:
        super().__init__(member_id, group, topic, log)
        self.may_commit = asyncio.Event()
        self.may_commit.set()
        self.commit_error: KafkaError | None = None
        self.tried: list[tuple[list[int], int]] = []
        """The partitions of each commit, and the number of its outputs."""

    async def commit(
        self, offsets: Mapping[int, Committed], records: Sequence[BufferedRecord] = ()
    ) -> None:
        self.tried.append((sorted(offsets), len(records)))
        await self.may_commit.wait()
        if self.commit_error is not None:
            raise self.commit_error
        await super().commit(offsets, records)

    def _read(self, room: int) -> list[MemoryRecord]:
        damaged = self.damaged
        if room and self.owned.get(0) in damaged and 0 not in self.paused:
            raise UnreadableBatch(
                *("a checksum that differs",),
                topic=TOPIC,
                partition=0,
                first=damaged.start,
                end=damaged.stop,
                action="the reader goes on behind them",
            )
        records = super()._read(room)
        if any(record.partition == 0 and record.offset in damaged for record in records):
            self.owned[0] = damaged.start
            records = [r for r in records if r.partition != 0 or r.offset < damaged.start]
        return records


class Scene:
    """A topic, and members of a group that read it."""

    def __init__(self, partitions: int = 1) -> None:
        self.world = MemoryWorld(SharePartitionLimits(lock_ms=30_000, delivery_count_max=10))
        self.world.log.create(TOPIC, partitions=partitions)
        self.logs: list[SceneLog] = []
        self.changes: list[Changes] = []

    def member(self) -> GroupSource:
        group = self.world.consumer_group(GROUP)
        self.logs.append(SceneLog(f"m{len(self.logs)}", group, TOPIC, self.world.log))
        self.changes.append(Changes())
        reading = GroupReading(GROUP, TOPIC, 1_000_000, "consumer", StartFrom.EARLIEST)
        return GroupSource(reading, self.logs[-1], self.world.clock, self.changes[-1])

    def write(self, count: int, partition: int = 0) -> None:
        for number in range(count):
            self.world.log.append(TOPIC, b"%d" % number, partition=partition)

    def committed(self, partition: int = 0) -> Committed:
        return self.world.log.committed[GROUP, TOPIC, partition]

    async def pass_seconds(self, seconds: float) -> None:
        until = self.world.clock.now() + seconds
        while self.world.clock.now() < until:
            await drained()
            self.world.clock.move_to(min(until, self.world.clock.now() + 0.25))
        await drained()

    async def take(self, source: GroupSource, room: int = 1_000) -> Sequence[DeliveredRecord]:
        taking = asyncio.ensure_future(source.take(room, 1.0))
        for _ in range(8):
            await drained()
            if taking.done():
                break
            self.world.clock.move_to(self.world.clock.now() + 0.25)
        return await taking


def run(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    def runs(caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.INFO):
            asyncio.run(test(caplog))

    runs.__name__ = test.__name__
    return runs


def offsets(records: Sequence[DeliveredRecord]) -> list[int]:
    return [record.offset for record in records]


@run
async def test_metadata_that_is_too_large_is_shrunk(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.world.consumer_group(GROUP).metadata_max = 100
    scene.write(2_000)
    source = scene.member()
    records = await scene.take(source, 2_000)
    # In no pattern, so that they cannot be compressed; the first one is not finished.
    done = [record for record in records if hash((record.offset, 3)) % 7 < 3 and record.offset]
    for record in done:
        record.accept()
    await scene.pass_seconds(2)
    text = scene.committed().metadata
    assert 0 < len(text) <= 100
    assert "event=commit_metadata.too_large" in caplog.text
    # The lowest finished records are kept; the others run again after a crash.
    assert read(0, text).finished.ranges[0][0] == done[0].offset
    await source.close(1)


@run
async def test_a_broker_without_room_for_metadata_gets_offsets_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.world.consumer_group(GROUP).metadata_max = 0
    scene.write(10)
    source = scene.member()
    for record in (await scene.take(source))[:4]:
        record.accept()
    await scene.pass_seconds(2)
    assert scene.committed() == (4, "")
    await source.close(1)


@run
async def test_a_nearly_full_partition_is_paused_until_its_oldest_record_is_done(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.world.consumer_group(GROUP).metadata_max = 300
    scene.write(3_000)
    source = scene.member()
    records = list(await scene.take(source, 2_000))
    done = [record for record in records if hash((record.offset, 3)) % 7 < 3 and record.offset]
    for record in done:
        record.accept()
    await scene.pass_seconds(2)
    assert "event=partition.paused" in caplog.text
    # Nothing above the highest finished record is delivered.
    assert offsets(await scene.take(source)) == []
    for record in records:
        if record not in done:
            record.accept()
    await scene.pass_seconds(2)
    assert "event=partition.resumed" in caplog.text
    assert scene.committed().offset == 2_000
    assert offsets(await scene.take(source))[0] == 2_000
    await source.close(1)


@run
async def test_foreign_metadata_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.write(5)
    scene.world.log.committed[GROUP, TOPIC, 0] = Committed(2, f"{PREFIX}of another program")
    source = scene.member()
    assert offsets(await scene.take(source)) == [2, 3, 4]
    assert "event=commit_metadata.ignored" in caplog.text
    await source.close(1)


@run
async def test_a_commit_that_fails_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.write(3)
    source = scene.member()
    records = await scene.take(source)
    group = scene.world.consumer_group(GROUP)
    errors: list[KafkaError] = [NotCoordinator("moved"), NotCoordinator("moved")]
    commit = group.commit

    def failing(topic: str, offsets: Any) -> None:
        if errors:
            raise errors.pop()
        commit(topic, offsets)

    group_commit: Any = failing
    scene.logs[0]._group = type("Failing", (), {
        "__getattr__": lambda _, name: getattr(group, name), "commit": staticmethod(group_commit),
    })()  # fmt: skip
    for record in records:
        record.accept()
    await scene.pass_seconds(4)
    assert scene.committed().offset == 3
    assert caplog.text.count("event=commit.failed") == 2
    await source.close(1)


class SlowAnswers:
    """A log whose commits happen, and whose answers come when `may_answer` is set."""

    def __init__(self, of: MemoryGroupLog) -> None:
        self._of = of
        self.may_answer = asyncio.Event()
        self.commits = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    async def commit(
        self, offsets: Mapping[int, Committed], records: Sequence[BufferedRecord] = ()
    ) -> None:
        await self._of.commit(offsets, records)
        self.commits += 1
        await self.may_answer.wait()


async def slow_commit(scene: Scene) -> tuple[GroupSource, SlowAnswers]:
    """A member whose first record is finished and has an output, and waits for its commit."""
    scene.world.log.create("audits", partitions=1)
    scene.write(3)
    source = scene.member()
    slow: Any = SlowAnswers(scene.logs[0])
    slow.may_answer.set()
    source._log = slow
    record: Any = (await scene.take(source))[0]
    await scene.pass_seconds(2)
    slow.may_answer.clear()
    slow.commits = 0
    record.send("audits", b"done")
    record.accept()
    return source, slow


@run
async def test_outputs_of_a_commit_that_is_interrupted_are_written_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    source, slow = await slow_commit(scene)
    await scene.pass_seconds(2)
    assert slow.commits == 1
    closing = asyncio.ensure_future(source.close(1))  # Cancels the commit under way.
    await drained()
    slow.may_answer.set()
    await closing
    assert scene.committed().offset == 1
    assert [record.value for record in scene.world.log.partitions("audits")[0]] == [b"done"]


@run
async def test_a_revocation_does_not_wait_for_a_transaction_in_doubt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    source, slow = await slow_commit(scene)
    await scene.pass_seconds(2)
    assert slow.commits == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_source, "LAST_COMMIT_SECONDS", 0.01)
        async with asyncio.timeout(HANGING_SECONDS):
            await source.revoked([0])
    assert scene.changes[0].seen[-2:] == [("revoke", [0]), ("gone", [0])]
    assert "event=commit.unanswered" in caplog.text
    slow.may_answer.set()
    await drained()
    assert slow.commits == 1, "what is gone is not committed"
    await source.close(1)


@run
async def test_a_refused_output_holds_up_its_partition_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(partitions=2)
    scene.world.log.fail("small", MovesRefused({0: MessageTooLarge("a record of 2 MB")}))
    scene.write(1, partition=0)
    scene.write(1, partition=1)
    source = scene.member()
    records: Any = await scene.take(source)
    for record in records:
        record.send("small" if record.partition == 0 else "audits", b"done")
        record.accept()
    await scene.pass_seconds(3)
    assert [scene.committed(number).offset for number in (0, 1)] == [0, 1]
    assert "event=commit.failed group=audit topic=orders partitions=[0]" in caplog.text
    scene.world.log.mend("small")
    await scene.pass_seconds(12)
    assert scene.committed(0).offset == 1
    written = {name: len(scene.world.log.partitions(name)[0]) for name in ("small", "audits")}
    assert written == {"small": 1, "audits": 1}
    await source.close(1)


@run
async def test_a_refused_output_is_tried_again_later_and_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.world.log.fail("small", MovesRefused({0: MessageTooLarge("a record of 2 MB")}))
    scene.write(1)
    source = scene.member()
    (record,) = await sent(scene, source, b"done", to="small")
    record.accept()
    await scene.pass_seconds(60)
    attempts = [count for _, count in scene.logs[0].tried if count]
    assert 5 <= len(attempts) <= 12, "each second it would be sixty"
    await source.close(1)


@run
async def test_no_records_are_delivered_while_a_partitions_outputs_fill_their_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    source = scene.member()
    scene.write(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owned_partition, "OUTPUT_BYTES_MAX", 1_000)
        patch.setattr(group_source, "READ_RECORDS", 10)
        (record,) = await sent(scene, source, bytes(1_000))
        log = scene.logs[0]
        log.may_commit.clear()
        record.accept()
        scene.write(50)
        taking = asyncio.ensure_future(source.take(1_000, 1.0))
        await scene.pass_seconds(2)
        assert taking.result() == []
        assert log.paused == {0}, "what was read waits in memory"
        taking = asyncio.ensure_future(source.take(1_000, 1.0))
        log.may_commit.set()
        await scene.pass_seconds(2)
        assert offsets(taking.result()) == [*range(1, 51)]
    await source.close(1)


@run
async def test_outputs_above_the_limit_of_a_transaction_are_split_by_partition(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(partitions=3)
    for number in range(3):
        scene.write(1, partition=number)
    source = scene.member()
    records = await sent(scene, source, bytes(1_000))
    await scene.pass_seconds(2)
    scene.logs[0].tried.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_source, "TRANSACTION_BYTES", 2_000)
        for record in records:
            record.accept()
        await scene.pass_seconds(2)
    assert [entry for entry in scene.logs[0].tried if entry[1]] == [([0], 1), ([1], 1), ([2], 1)]
    await source.close(1)


@run
async def test_a_run_that_sends_too_much_fails(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.write(1)
    source = scene.member()
    (record,) = await sent(scene, source, bytes(9 * 1024 * 1024))
    with pytest.raises(MessageTooLarge, match=r"after 1 others of .* exactly_once writes them in"):
        await record.send("audits", bytes(9 * 1024 * 1024))
    await source.close(1)


async def sent(scene: Scene, source: GroupSource, value: bytes, to: str = "audits") -> list[Any]:
    """Take records; each sends an output."""
    records: list[Any] = list(await scene.take(source))
    for record in records:
        await record.send(to, value)
    return records


@run
async def test_records_of_a_partition_whose_assignment_was_not_told_end_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(partitions=2)
    source = scene.member()
    assert await scene.take(source) == []
    source._owned.pop(0)
    scene.write(1, partition=0)
    assert await scene.take(source) == []
    scene.write(1, partition=1)
    assert [record.partition for record in await scene.take(source)] == [1]
    await source.close(1)


@run
async def test_a_seek_whose_commit_fails_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.write(6)
    source = scene.member()
    records = await scene.take(source, 3)
    records[0].accept()
    scene.logs[0].owned.pop(0)
    with pytest.raises(OwnershipLost):
        await source.seek(0, 5)
    scene.logs[0].owned[0] = 3
    assert offsets(await scene.take(source)) == [3, 4, 5]
    await source.close(1)


@run
async def test_a_seek_commits_nothing_after_the_partition_was_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.write(6)
    source = scene.member()
    await scene.take(source, 3)
    scene.changes[0].may_end.clear()
    seeking = asyncio.ensure_future(source.seek(0, 5))
    await drained()
    await scene.logs[0].lose()
    again = [*await scene.take(source), *await scene.take(source)]
    assert offsets(again) == [0, 1, 2, 3, 4, 5], "it is owned again"
    scene.changes[0].may_end.set()
    with pytest.raises(OwnershipLost, match="partition 0 was taken away"):
        await seeking
    await scene.pass_seconds(2)
    assert scene.committed().offset == 0
    await source.close(1)


@run
async def test_a_seek_writes_the_outputs_of_finished_records(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.world.log.create("bills", partitions=1)
    scene.write(6)
    source = scene.member()
    records = await scene.take(source, 3)
    for record in records[:2]:
        assert isinstance(record, ConsumedRecord)
        await record.send("bills", b"of %d" % record.offset)
        record.accept()
    scene.logs[0].commit_error = NotCoordinator("moved")
    with pytest.raises(NotCoordinator):
        await source.seek(0, 5)
    scene.logs[0].commit_error = None
    await source.seek(0, 5)
    await scene.pass_seconds(2)
    bills = scene.world.log.partitions("bills")[0]
    assert [bill.value for bill in bills] == [b"of 0", b"of 1"]
    assert offsets(await scene.take(source)) == [5]
    await source.close(1)


@run
async def test_a_seek_that_is_cancelled_before_its_turn_commits_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.write(6)
    source = scene.member()
    records = await scene.take(source, 3)
    records[0].accept()
    scene.logs[0].may_commit.clear()
    await scene.pass_seconds(1.5)
    seeking = asyncio.ensure_future(source.seek(0, 5))
    await drained()
    seeking.cancel()
    await asyncio.wait([seeking])
    assert seeking.cancelled()
    scene.logs[0].may_commit.set()
    await drained()
    assert scene.committed().offset == 1, "1 and 2 are not finished"
    await source.close(1)


@run
async def test_a_seek_that_is_cancelled_under_way_leaves_the_committed_offset_as_it_was(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.write(6)
    source = scene.member()
    records = await scene.take(source, 3)
    records[0].accept()
    await scene.pass_seconds(1.5)
    scene.logs[0].may_commit.clear()
    seeking = asyncio.ensure_future(source.seek(0, 5))
    await drained()
    seeking.cancel()
    await asyncio.wait([seeking])
    scene.logs[0].may_commit.set()
    await scene.pass_seconds(2)
    assert scene.committed().offset == 1, "1 and 2 are not finished"
    await source.close(1)


@run
async def test_records_taken_during_a_seek_that_fails_are_delivered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.write(6)
    source = scene.member()
    scene.logs[0].may_commit.clear()
    taking = asyncio.ensure_future(source.take(3, 1.0))
    await scene.pass_seconds(0.5)
    assert not taking.done(), "it waits for the commit of its reservation"
    seeking = asyncio.ensure_future(source.seek(0, 5))
    await drained()
    scene.logs[0].commit_error = NotCoordinator("moved")
    scene.logs[0].may_commit.set()
    await scene.pass_seconds(1)
    with pytest.raises(NotCoordinator):
        await seeking
    assert await taking == []
    scene.logs[0].commit_error = None
    taken = [*await scene.take(source), *await scene.take(source)]
    assert offsets(taken) == [0, 1, 2, 3, 4, 5]
    assert [record.delivery_count for record in taken] == [1] * 6
    await source.close(1)


@run
async def test_a_partition_that_is_held_is_not_fetched(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.write(3)
    source = scene.member()
    await scene.take(source)
    source.hold(0, is_held=True)
    scene.write(3)
    assert await scene.take(source) == []
    assert scene.logs[0].paused == {0}
    source.hold(0, is_held=False)
    assert scene.logs[0].paused == set()
    assert offsets(await scene.take(source)) == [3, 4, 5]
    assert "event=partition" not in caplog.text, "the application knows"
    await source.close(1)


@run
async def test_records_before_an_unreadable_batch_are_delivered_before_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.write(120)
    source = scene.member()
    scene.logs[0].damaged = range(100, 110)
    seen: list[int] = []
    for _ in range(12):
        for delivery in (taken := await scene.take(source, 16)):
            seen.append(delivery.offset)
            delivery.accept()
        assert len(taken) == 1 or not any(isinstance(each, UnreadableRange) for each in taken)
        await scene.pass_seconds(2)
        assert scene.committed().offset <= max(seen) + 10, "no record is passed over"
    assert seen == [*range(101), *range(110, 120)]
    assert scene.committed().offset == 120
    await source.close(1)


@run
async def test_an_unreadable_batch_is_delivered_alone_also_when_it_was_given_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(partitions=2)
    scene.write(6)
    scene.write(40, partition=1)
    source = scene.member()
    scene.logs[0].damaged = range(4)
    deliveries = 0
    for _ in range(16):
        taken = await scene.take(source, 4)
        if any(isinstance(delivery, UnreadableRange) for delivery in taken):
            assert len(taken) == 1
            deliveries += 1
        for delivery in taken:
            if deliveries < 3 and isinstance(delivery, UnreadableRange):
                delivery.release()
            else:
                delivery.accept()
    await scene.pass_seconds(2)
    assert deliveries == 3
    assert scene.committed(0).offset == 6
    assert scene.committed(1).offset == 40
    await source.close(1)


@run
async def test_a_truncated_log_is_read_from_where_it_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.write(8)
    source = scene.member()
    before = await scene.take(source)
    for record in before[:5]:
        record.accept()
    await scene.pass_seconds(2)
    assert scene.committed().offset == 5
    scene.logs[0].seek(0, 2)  # As a reset of the position does.
    again = await scene.take(source)
    if not again:
        again = await scene.take(source)
    assert offsets(again) == [2, 3, 4, 5, 6, 7]
    assert all(record.is_lost for record in before)
    assert scene.changes[0].seen[-2:] == [("lost", [0]), ("assigned", [0])]
    assert "event=partition.rewound" in caplog.text
    before[7].accept()  # Of the log before: it must not count for the record there now.
    for record in again[:2]:
        record.accept()
    await scene.pass_seconds(2)
    assert scene.committed() == (4, scene.committed().metadata)
    assert not read(*scene.committed()).finished
    await source.close(1)


@run
async def test_after_a_truncation_unfinished_records_below_run_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Record 2 runs when the log turns out to have other records from offset 6 on."""
    scene = Scene()
    scene.world.log.create("bills", partitions=1)
    scene.write(12)
    source = scene.member()
    before = await scene.take(source)
    scene.logs[0].may_commit.clear()
    for record in [*before[:2], *before[3:5], *before[8:10]]:
        assert isinstance(record, ConsumedRecord)
        await record.send("bills", b"of %d" % record.offset)
        record.accept()
    await scene.pass_seconds(2)  # A commit is under way now.
    scene.logs[0].seek(0, 6)  # As a divergence of the leader's log does.
    taking = asyncio.ensure_future(source.take(20, 1.0))
    await scene.pass_seconds(2)
    scene.logs[0].may_commit.set()
    again = [*await taking, *await scene.take(source), *await scene.take(source)]
    assert offsets(again) == [2, 5, 6, 7, 8, 9, 10, 11]
    assert all(record.is_lost for record in before)
    late = before[2]  # Its handler was interrupted too late.
    assert isinstance(late, ConsumedRecord)
    await late.send("bills", b"twice")
    late.accept()
    for record in again[1:]:
        record.accept()
    await scene.pass_seconds(2)
    assert scene.committed().offset == 2
    again[0].accept()
    await scene.pass_seconds(2)
    assert scene.committed().offset == 12
    bills = [bill.value for bill in scene.world.log.partitions("bills")[0]]
    assert bills == [b"of %d" % offset for offset in (0, 1, 3, 4, 8, 9)], "each once"
    await source.close(1)


@run
async def test_a_new_member_gets_partitions_after_their_handlers_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(partitions=2)
    scene.write(4, partition=0)
    scene.write(4, partition=1)
    first = scene.member()
    records = await scene.take(first)
    assert len(records) == 8
    scene.changes[0].may_end.clear()
    second = scene.member()
    assert await scene.take(second) == []
    assert scene.changes[0].seen == [("assigned", [0, 1]), ("revoke", [1])]
    for record in records:
        if record.partition == 1 and record.offset != 2:
            record.accept()
    scene.changes[0].may_end.set()
    await scene.pass_seconds(1)
    # Only what was not finished, and not as delivered before.
    again = await scene.take(second)
    assert [(record.offset, record.delivery_count) for record in again] == [(2, 1)]
    assert records[5].is_lost
    await first.close(1)
    await second.close(1)


@run
async def test_records_given_back_are_delivered_again_in_order(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.write(4)
    source = scene.member()
    records = await scene.take(source, 3)
    source.quiet(delivered_below=1)
    for record in reversed(records):
        record.release()
    assert await scene.take(source) == []
    source.resume()
    again = [*await scene.take(source, 3), *await scene.take(source, 3)]
    assert [(record.offset, record.delivery_count) for record in again] == [
        (0, 1), (1, 1), (2, 1), (3, 1),
    ]  # fmt: skip
    await source.close(1)


def test_the_broker_of_these_tests_refuses_long_metadata() -> None:
    group = MemoryWorld(SharePartitionLimits()).consumer_group(GROUP)
    with pytest.raises(OffsetMetadataTooLarge):
        group.commit(TOPIC, {0: Committed(1, "x" * 4_097)})
