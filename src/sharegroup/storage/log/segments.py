"""Manages the segments of one log: rolling, cutting back, dropping old ones.

    | closed | closed | closed | active |
                                   ^ appends

Only the active segment takes appends.  When it is full, or its records span too much time, it is
closed and a new one is begun.  The files with unsynced writes and the folders with new file names
are remembered until a round of the `Syncer` takes them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sharegroup.storage.disk.metadata_files import Metadata, write_partition_metadata
from sharegroup.storage.disk.stored_file import StoredFile
from sharegroup.storage.parts import StorageParts
from sharegroup.storage.segment.batch_scan import PlacedBatch
from sharegroup.storage.segment.boundaries import BatchMap
from sharegroup.storage.segment.segment import Segment, SegmentEnd, SegmentLimits
from sharegroup.storage.sync.syncer import SyncWork

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Mark:
    """A position in the log: everything before it was written when the mark was taken."""

    offset: int
    segment: Segment | None
    segment_end: SegmentEnd | None
    """None if there is no segment."""


class Segments:
    """The segments of one log in order; ``name`` names the log in messages."""

    __slots__ = (
        "_folder",
        "_metadata",
        "_name",
        "_parts",
        "all",
        "has_new_metadata",
        "map",
        "new_names",
        "unsynced",
    )

    def __init__(
        self,
        parts: StorageParts,
        folder: str,
        name: str,
        loaded: list[Segment],
        *,
        metadata: Metadata,
    ) -> None:
        self._parts = parts
        self._folder = folder
        self._name = name
        self._metadata = metadata.content
        self.has_new_metadata = metadata.is_new
        """Whether ``partition.metadata`` was written and may not be durable yet."""
        self.all = loaded
        """The segments in ascending order; the log's reader uses the same list."""
        self.map = BatchMap()
        if loaded:
            self.map.begin(loaded[-1])
        self.unsynced: dict[StoredFile, None] = {}
        self.new_names: dict[str, None] = {}
        """Folders with file names that are not durable."""
        if loaded and not loaded[-1].size:
            # Recovery had nothing to sync there.  After `kill -9` the name of an empty file may be
            # only in the system's memory; the records to be written must not be lost with it.
            self.new_names[folder] = None

    @property
    def active(self) -> Segment | None:
        """The segment that takes appends, or None in an empty log."""
        return self.all[-1] if self.all else None

    @property
    def size(self) -> int:
        """The bytes of all segments."""
        return sum(segment.size for segment in self.all)

    def active_end(self) -> tuple[str, int] | None:
        """Return path and size of the active segment's file, or None if it must not be cut."""
        active = self.active
        return None if active is None or active.is_sealed else (active.log.path, active.size)

    def paths(self) -> list[str]:
        """Return the paths of the segments' log files."""
        return [segment.log.path for segment in self.all]

    def mark(self, offset: int) -> Mark:
        """Return a mark of the current end of the log, which is at ``offset``."""
        active = self.active
        return Mark(offset, active, None if active is None else active.end())

    def from_offset(self, offset: int) -> Iterator[Segment]:
        """Iterate over the segments that end after ``offset``."""
        return (segment for segment in self.all if segment.end_offset > offset)

    def for_append(
        self, batch: PlacedBatch, *, first: int, end: int, limits: SegmentLimits
    ) -> Segment:
        """Return the segment that takes ``batch`` at ``[first, end)``; roll if necessary."""
        if self.all and self.all[-1].has_room(batch, end, limits):
            return self.all[-1]
        return self.roll(first)

    def roll(self, offset: int) -> Segment:
        """Close the active segment and begin one at ``offset``.  An OSError changes nothing."""
        active = self.active
        if active is not None:
            active.flush_indexes()
        else:
            self._parts.files.make_directory(self._folder, parents=False)
            # Not synced here: the first checkpoint does it, and a start writes it again if it is
            # missing (ADR 0019).
            write_partition_metadata(self._parts.files, self._folder, self._metadata)
            self.has_new_metadata = True
            self.new_names[self._parts.root] = None
        segment = Segment(self._parts.opened, self._folder, offset)
        segment.log.fd(create=True)
        # An attempt that failed may have left a file of this name.
        segment.log.truncate(0)
        self.new_names[self._folder] = None
        self.all.append(segment)
        self.map.begin(segment)
        return segment

    def appended(self, segment: Segment, batch: PlacedBatch, *, now_ms: int) -> None:
        """Note that ``batch`` was written to the active segment and is not synced."""
        segment.touched_ms = now_ms
        self.map.append(batch)
        self.unsynced[segment.log] = None

    def begin_sync(self) -> SyncWork:
        """Return the files and folders to sync, and forget them."""
        work = SyncWork(tuple(self.unsynced), tuple(self.new_names))
        # If the sync fails, the probe of the fence syncs all files and folders of the log.
        self.unsynced.clear()
        self.new_names.clear()
        return work

    def flush_indexes(self) -> tuple[list[StoredFile], tuple[Segment, ...]]:
        """Write index entries that are only in memory.

        Returns the index files that are not durable, and the segments with new index files.
        """
        for segment in self.all:
            # A segment is flushed when it is closed; recovery may have added entries since.
            if segment is self.active or segment.has_unwritten:
                segment.flush_indexes()
        files = [file for owner in self.all for file in owner.index_files if file.unsynced_bytes]
        return files, tuple(segment for segment in self.all if segment.has_new_files)

    def cut_to(self, mark: Mark) -> list[str]:
        """Cut the log back to ``mark``, in memory and, if possible, on disk.

        Returns the paths of the files that must be removed.
        """
        doomed: list[str] = []
        while self.all and self.all[-1] is not mark.segment:
            segment = self.all.pop()
            # Cut it at once: after a failed sync the system's memory may hold records that never
            # reach the disk.  Recovery after a restart without a power loss would accept them.
            self._truncate(segment, 0)
            self._forget(segment)
            doomed += (file.path for file in segment.files)
        active = self.active
        if active is not None:
            assert mark.segment_end is not None
            try:
                active.truncate(mark.segment_end)
            except OSError as error:
                # The probe of the fence repeats it before the log takes appends again.
                log.warning("event=truncate_failed %s error=%r", self._name, str(error))
            self.unsynced[active.log] = None
            self.map.truncate(active)
        return doomed

    def cut_unwritten(self) -> None:
        """Cut off what a failed write left in the file, if possible."""
        active = self.active
        if active is not None and not active.is_sealed:
            self._truncate(active, active.size)

    def drop_before(self, offset: int) -> list[str]:
        """Drop the closed segments that end by ``offset``; return the paths of their files."""
        paths: list[str] = []
        # Not the active one: it takes the next append, and `begin_at` closes it before if nothing
        # of it is kept.
        while len(self.all) > 1 and self.all[0].end_offset <= offset:
            segment = self.all.pop(0)
            self._forget(segment)
            paths += (file.path for file in segment.files)
        return paths

    def swap_in(self, old: Sequence[Segment], new: Segment) -> bool:
        """Replace the closed segments ``old`` by ``new``. False if all of them were dropped."""
        present = [segment for segment in old if segment in self.all]
        if not present:
            return False
        at = self.all.index(present[0])
        self.all[at : at + len(present)] = [new]
        for segment in present:
            self._forget(segment)
        return True

    def close(self) -> None:
        """Close the files of all segments."""
        for segment in self.all:
            segment.close()

    def _truncate(self, segment: Segment, size: int) -> None:
        """Truncate a segment's file; a failure is logged."""
        try:
            segment.log.truncate(size)
        except OSError as error:
            # The probe of the fence repeats it before the log takes appends again.
            log.warning("event=truncate_failed %s error=%r", self._name, str(error))

    def _forget(self, segment: Segment) -> None:
        self.map.forget(segment)
        self.unsynced.pop(segment.log, None)
        segment.close()
