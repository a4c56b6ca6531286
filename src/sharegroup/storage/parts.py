"""The parts that all logs of a data directory share."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from sharegroup.core.log.producer_room import ProducerRoom
from sharegroup.ids import TopicIdPartition
from sharegroup.storage.disk.files import Files
from sharegroup.storage.disk.stored_file import OpenFiles
from sharegroup.storage.segment.read_ahead import ReadAhead
from sharegroup.storage.sync.syncer import Syncer


class Durability(enum.Enum):
    """When an append is durable."""

    FSYNC = "fsync"
    """When it is on disk. It survives a loss of power."""

    OS = "os"
    """When it is handed to the operating system. It survives the end of the process."""


@dataclass(frozen=True, slots=True)
class StorageParts:
    """The shared parts that a `LogDirectory` hands to each of its logs."""

    root: str
    opened: OpenFiles
    syncer: Syncer
    durability: Durability
    appended: Callable[[int], None]
    """Called with the number of bytes appended to any log, because bytes make a checkpoint due."""
    delete_before: Callable[[Mapping[TopicIdPartition, int]], Awaitable[None]]
    """Moves the start offsets of logs up; see `LogDirectory.delete_before`."""

    ahead: ReadAhead = field(default_factory=ReadAhead)
    producer_room: ProducerRoom = field(default_factory=ProducerRoom)

    @property
    def files(self) -> Files:
        """The file system of the data directory."""
        return self.opened.files
