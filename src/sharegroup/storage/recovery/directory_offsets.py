"""Holds the offsets that a data directory stores for all its logs, in one checkpoint file per kind.

recovery-point-offset-checkpoint    recovery points: the logs are on disk below these offsets
log-start-offset-checkpoint         log start offsets after DeleteRecords or retention
cleaner-offset-checkpoint           end offsets of the last compaction of compacted logs
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from sharegroup.ids import TopicId, TopicIdPartition
from sharegroup.storage.disk.checkpoint_files import read_checkpoint
from sharegroup.storage.disk.files import Files
from sharegroup.storage.disk.set_aside import DAMAGED_FILE, SetAside

log = logging.getLogger(__name__)

RECOVERY_POINTS_FILE = "recovery-point-offset-checkpoint"
START_OFFSETS_FILE = "log-start-offset-checkpoint"
CLEANED_FILE = "cleaner-offset-checkpoint"


class DirectoryOffsets:
    """The offsets of the three checkpoint files, with the changes since they were read.

    Only the event loop changes or replaces the mappings.
    """

    __slots__ = ("cleaned", "recovery_points", "start_offsets")

    def __init__(self) -> None:
        self.recovery_points: dict[TopicIdPartition, int] = {}
        self.start_offsets: dict[TopicIdPartition, int] = {}
        self.cleaned: dict[TopicIdPartition, int] = {}

    def read(self, files: Files, root: str, set_aside: SetAside) -> None:
        """Read the three files. A damaged file is set aside and counts as empty."""
        self.recovery_points = _read(files, root, RECOVERY_POINTS_FILE, set_aside)
        self.start_offsets = _read(files, root, START_OFFSETS_FILE, set_aside)
        self.cleaned = _read(files, root, CLEANED_FILE, set_aside)

    def forget_topics(self, topic_ids: Collection[TopicId]) -> None:
        """Remove the offsets of topics that an earlier run of the broker deleted."""
        for offsets in (self.recovery_points, self.start_offsets, self.cleaned):
            for key in [key for key in offsets if key.topic_id in topic_ids]:
                del offsets[key]

    def forget(self, key: TopicIdPartition) -> None:
        """Remove the offsets of a deleted partition."""
        for offsets in (self.recovery_points, self.start_offsets, self.cleaned):
            offsets.pop(key, None)


def _read(files: Files, root: str, name: str, set_aside: SetAside) -> dict[TopicIdPartition, int]:
    """Return the offsets in a checkpoint file. A damaged file is set aside and counts as empty.

    Without recovery points recovery reads all segments; without start offsets deleted records may
    be served again. Neither loses a record.
    """
    try:
        return read_checkpoint(files, root, name)
    except ValueError as error:
        path = set_aside.move(f"{root}/{name}", size=0, why=DAMAGED_FILE, name=name)
        log.warning(
            "event=checkpoint_set_aside file=%s reason=%r set_aside=%s", name, str(error), path
        )
        return {}
