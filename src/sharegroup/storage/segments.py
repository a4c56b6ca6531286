"""The segments of one log as a whole: rolling, cutting back, dropping old ones.

    | closed | closed | closed | active |
                                   ^ appends

Only the active segment takes appends; it is closed, and a new one begun, when it is full or
has been open for too long.  What was written since the last sync, and which names of files are
new, is remembered here until a round of the `Syncer` takes it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sharegroup.storage.batch_scan import PlacedBatch
from sharegroup.storage.boundaries import BatchMap
from sharegroup.storage.parts import StorageParts
from sharegroup.storage.segment import Segment, SegmentEnd, SegmentLimits
from sharegroup.storage.stored_file import StoredFile
from sharegroup.storage.syncer import SyncWork

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the log: everything before it was written by the time it was taken."""

    offset: int
    segment: Segment | None
    segment_end: SegmentEnd | None
    """None where there is no segment."""


class Segments:
    """See the module's text.  ``name`` is the log's, for messages."""

    __slots__ = ("_folder", "_name", "_parts", "all", "map", "new_names", "unsynced")

    def __init__(self, parts: StorageParts, folder: str, name: str, loaded: list[Segment]) -> None:
        self._parts = parts
        self._folder = folder
        self._name = name
        self.all = loaded
        """Ascending; the log's reader looks into the same list."""
        self.map = BatchMap()
        if loaded:
            self.map.begin(loaded[-1])
        self.unsynced: dict[StoredFile, None] = {}
        self.new_names: dict[str, None] = {}
        """Folders with names that are not durable."""
        if loaded and not loaded[-1].size:
            # Recovery had nothing to sync there.  After `kill -9` the name of an empty file may be
            # in the system's memory only, and what will be written to it must not go with it.
            self.new_names[folder] = None

    @property
    def active(self) -> Segment | None:
        """The one that takes appends, None in an empty log."""
        return self.all[-1] if self.all else None

    @property
    def size(self) -> int:
        """Bytes of all."""
        return sum(segment.size for segment in self.all)

    def active_end(self) -> tuple[str, int] | None:
        """Path and size of the active segment's file."""
        active = self.active
        return None if active is None else (active.log.path, active.size)

    def mark(self, offset: int) -> Mark:
        """The end as it is now, at ``offset``."""
        active = self.active
        return Mark(offset, active, None if active is None else active.end())

    def from_offset(self, offset: int) -> Iterator[Segment]:
        """The segments that hold ``offset`` or what comes after it."""
        return (segment for segment in self.all if segment.end_offset > offset)

    def for_append(self, batch: PlacedBatch, *, first: int, limits: SegmentLimits) -> Segment:
        """The segment that takes ``batch`` from offset ``first`` on; a new one if need be."""
        active = self.active
        if active is not None and active.has_room(batch, first + batch.offset_count, limits):
            return active
        return self.roll(first)

    def roll(self, offset: int) -> Segment:
        """Close the active segment and begin one at ``offset``.  An OSError changes nothing."""
        active = self.active
        if active is not None:
            active.flush_indexes()
        else:
            self._parts.files.make_directory(self._folder)
            self.new_names[self._parts.root] = None
        segment = Segment(self._parts.opened, self._folder, offset)
        segment.log.fd(create=True)
        segment.log.truncate(0)
        self.new_names[self._folder] = None
        self.all.append(segment)
        self.map.begin(segment)
        return segment

    def appended(self, segment: Segment, batch: PlacedBatch, *, now_ms: int) -> None:
        """``batch`` was written to the active segment."""
        segment.touched_ms = now_ms
        self.map.append(batch)
        self.unsynced[segment.log] = None

    def begin_sync(self) -> SyncWork:
        """Hand what is not durable to a round of syncs."""
        work = SyncWork(tuple(self.unsynced), tuple(self.new_names))
        self.unsynced.clear()
        self.new_names.clear()
        return work

    def cut_to(self, mark: Mark) -> list[str]:
        """Go back to ``mark``, in memory and, if possible, on disk; files that must go."""
        doomed: list[str] = []
        while self.all and self.all[-1] is not mark.segment:
            segment = self.all.pop()
            # At once: after a failed sync the system may hold records that the disk never gets,
            # and whoever opens the log next, without a loss of power between, would believe them.
            self._truncate(segment, 0)
            self._forget(segment)
            doomed += (file.path for file in segment.files)
        active = self.active
        if active is not None:
            assert mark.segment_end is not None
            try:
                active.truncate(mark.segment_end)
            except OSError as error:
                # It is done again before the fence goes.
                log.warning("event=truncate_failed %s error=%r", self._name, str(error))
            self.unsynced[active.log] = None
            self.map.truncate(active)
        return doomed

    def cut_unwritten(self) -> None:
        """A write failed: take what it left behind out of the file, if possible."""
        active = self.active
        if active is not None:
            self._truncate(active, active.size)

    def drop_before(self, offset: int) -> list[str]:
        """Let go of closed segments that end by ``offset``; their files."""
        paths: list[str] = []
        while len(self.all) > 1 and self.all[0].end_offset <= offset:
            segment = self.all.pop(0)
            self._forget(segment)
            paths += (file.path for file in segment.files)
        return paths

    def swap_in(self, old: Sequence[Segment], new: Segment) -> bool:
        """Let ``new`` stand for the closed segments ``old``; False when all of them went."""
        left = [segment for segment in old if segment in self.all]
        if not left:
            return False
        at = self.all.index(left[0])
        self.all[at : at + len(left)] = [new]
        for segment in left:
            self._forget(segment)
        return True

    def close(self) -> None:
        for segment in self.all:
            segment.close()

    def _truncate(self, segment: Segment, size: int) -> None:
        """Cut the end off a segment's file, if the disk lets us."""
        try:
            segment.log.truncate(size)
        except OSError as error:
            # It is done again before the fence goes.
            log.warning("event=truncate_failed %s error=%r", self._name, str(error))

    def _forget(self, segment: Segment) -> None:
        self.map.forget(segment)
        self.unsynced.pop(segment.log, None)
        segment.close()
