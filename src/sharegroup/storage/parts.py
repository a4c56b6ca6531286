"""What the logs of one data directory share."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from sharegroup.ids import TopicPartition
from sharegroup.storage.files import Files
from sharegroup.storage.read_ahead import ReadAhead
from sharegroup.storage.stored_file import OpenFiles
from sharegroup.storage.syncer import Syncer


class Durability(enum.Enum):
    """When an append counts as done."""

    FSYNC = "fsync"
    """When the disk has it; survives the loss of power."""

    OS = "os"
    """When the system has it; survives the end of the process."""


@dataclass(frozen=True, slots=True)
class StorageParts:
    """Handed to every log by its directory."""

    root: str
    opened: OpenFiles
    syncer: Syncer
    durability: Durability
    appended: Callable[[int], None]
    """Told how many bytes were appended to any log: a checkpoint comes due by bytes."""
    delete_before: Callable[[Mapping[TopicPartition, int]], Awaitable[None]]
    """Move the starts of logs up; see `LogDirectory.delete_before`."""

    ahead: ReadAhead = field(default_factory=ReadAhead)

    @property
    def files(self) -> Files:
        return self.opened.files
