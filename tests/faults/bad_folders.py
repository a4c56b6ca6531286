"""A disk of which single logs fail, and the records that tests lose on it."""

from __future__ import annotations

import errno

from kio.schema.offset_commit.v9 import request as offset_commit

from sharegroup.ids import TopicName, topic_id_text
from sharegroup.storage.disk.files import Buffer
from sharegroup.testing.power_loss import PowerLossDisk
from tests.faults.in_process import Broker

INTERNAL = {
    "offsets_topic_num_partitions": "1",
    "share_coordinator_state_topic_num_partitions": "1",
    "transaction_state_log_num_partitions": "1",
}
"""Settings of a broker that has one log for each coordinator."""


class BadFolders(PowerLossDisk):
    """A disk on which nothing in some folders can be synced, or on which some are full."""

    def __init__(self) -> None:
        super().__init__(1, can_sync_tree=False)
        self.failing: str | None = None
        """Part of the paths whose syncs fail."""
        self.full: str | None = None
        """Part of the paths of log files that have room for no more than `writes_left` writes."""
        self.writes_left = 0
        self._paths: dict[int, str] = {}

    def open(self, path: str, *, create: bool = False) -> int:
        fd = super().open(path, create=create)
        self._paths[fd] = path
        return fd

    def write(self, fd: int, buffer: Buffer, position: int) -> None:
        path = self._paths[fd]
        # Not the files beside the log, so that a test can count the appends.
        if self.full is not None and self.full in path and path.endswith(".log"):
            if not self.writes_left:
                raise OSError(errno.ENOSPC, "a write that the test lets fail", path)
            self.writes_left -= 1
        super().write(fd, buffer, position)

    def sync(self, fd: int) -> None:
        self._fail(self._paths[fd])
        super().sync(fd)

    def sync_directory(self, path: str) -> None:
        self._fail(path)
        super().sync_directory(path)

    def _fail(self, path: str) -> None:
        if self.failing is not None and self.failing in path:
            raise OSError(errno.EIO, "a sync that the test lets fail", path)


def fail_syncs_of(broker: Broker, disk: BadFolders, topic: TopicName) -> None:
    disk.failing = _folder_of(broker, topic)


def fill_up(broker: Broker, disk: BadFolders, topic: TopicName, *, writes_left: int = 0) -> None:
    """Let all appends to the logs of a topic fail after ``writes_left`` more."""
    disk.full, disk.writes_left = _folder_of(broker, topic), writes_left


def _folder_of(broker: Broker, topic: TopicName) -> str:
    return topic_id_text(broker.running.parts.topics.catalog.topic(topic).topic_id)


async def commit_all(
    broker: Broker, group: str, topic: str, partitions: int, offset: int = 0
) -> None:
    """Commit an offset of each partition, as a consumer without a group does."""
    entries = tuple(
        offset_commit.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=None
        )
        for index in range(partitions)
    )
    named = offset_commit.OffsetCommitRequestTopic(name=topic, partitions=entries)
    request = offset_commit.OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=(named,)
    )
    answer = await broker.ask(request)
    assert {int(entry.error_code) for entry in answer.topics[0].partitions} == {0}
