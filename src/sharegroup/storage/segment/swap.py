"""Replaces segments by one compacted segment, in steps that a crash may interrupt.

The new segment is written beside the old ones and replaces them in steps.  Each step is durable
before the next begins:

    1  A.log.cleaned  A.index.cleaned  ...  written; the old segments are valid
    2  A.log.cleaned  A.index.swap     ...
    3  A.log.swap     A.index.swap     ...  from here on the new segment is valid
    4                                       the files of the old segments are removed
    5  A.log          A.index.swap     ...  the log file gets its final name
    6  A.log          A.index          ...  the indexes get their final names

A is the base offset of the first old segment.  The last batch of the last old segment is always in
the new one.  So the new file itself tells which segments it replaces.  `finish_swaps` completes an
interrupted swap at start.  The names tell the step: up to step 2 the new files are removed, from
step 3 on the remaining steps are repeated.

The start removes no segment for a new file that is damaged, or that is not one of a swap.  If the
old segments still have all records up to the recovery point, the new file is set aside, and they
stay in use.  Otherwise the log cannot be opened, and the error says where their records end.

A file named `COMPACTED` marks a log whose segments may have holes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sharegroup.errors import CorruptMessage
from sharegroup.storage.disk.files import SEGMENT_BYTES_MAX, Files
from sharegroup.storage.disk.set_aside import DAMAGED_LOG, SetAside
from sharegroup.storage.disk.stored_file import StoredFile
from sharegroup.storage.segment.batch_scan import headers
from sharegroup.storage.segment.segment import Segment, offset_of, segment_name

log = logging.getLogger(__name__)

COMPACTED = "compacted"
CLEANED = ".cleaned"
SWAP = ".swap"
LOG = ".log"
INDEXES = (".index", ".timeindex", ".txnindex")


def hold(files: Files, folder: str, segment: Segment) -> None:
    """Blocking, steps 1 to 3: make a written new segment the valid one.

    The caller has called ``begin_sync`` of its files.
    """
    for file in segment.files:
        file.sync()
    # Before the new segment is valid: without the mark a start would end the log at its first hole.
    if not files.exists(f"{folder}/{COMPACTED}"):
        files.close(files.open(f"{folder}/{COMPACTED}", create=True))
    # The names of step 1 first: an index with the name of step 2 and no new log file would pass for
    # one of a complete swap.
    files.sync_directory(folder)
    for file in segment.index_files:
        files.rename(file.path, _to_swap(file.path))
    files.sync_directory(folder)
    files.rename(segment.log.path, _to_swap(segment.log.path))
    files.sync_directory(folder)


def holds(segment: Segment) -> None:
    """Set the new names of the segment's files after `hold`; called in the event loop."""
    for file in segment.files:
        file.path = _to_swap(file.path)


def discard(files: Files, folder: str, base_offset: int | None = None) -> None:
    """Blocking, before step 4: remove the new files of one segment, or of all.

    The old segments stay valid. The indexes are removed first: without a new log file they would be
    taken for indexes of the old one.
    """
    new = [
        name
        for name in _segment_files(files.names(folder))
        if name.step and base_offset in (None, name.base_offset)
    ]
    for is_log in (False, True):
        group = [name for name in new if (name.kind == LOG) is is_log]
        for name in group:
            files.remove(f"{folder}/{name.text}")
        if group:
            files.sync_directory(folder)


def remove_replaced(files: Files, folder: str, segment: Segment) -> None:
    """Blocking, step 4: remove the files of the segments that the new one replaces."""
    names = _segment_files(files.names(folder))
    for name in _replaced(names, segment.base_offset, segment.end_offset):
        files.remove(f"{folder}/{name.text}")
    files.sync_directory(folder)


def is_unsettled(segment: Segment) -> bool:
    """Return whether the segment is valid but some of its files lack their final names."""
    return any(file.path.endswith(SWAP) for file in segment.files)


def take_names(files: Files, of: Iterable[StoredFile]) -> None:
    """Steps 5 and 6: rename the files to their final names.

    It runs in the event loop, because that may open a file at any time; the renames are quick.
    """
    for file in of:
        if file.path.endswith(SWAP):
            files.rename(file.path, file.path.removesuffix(SWAP))
            file.path = file.path.removesuffix(SWAP)


def finish_swaps(
    files: Files, folder: str, names: list[str], *, recovery_point: int, set_aside: SetAside
) -> list[str]:
    """Blocking, at start: complete swaps that a crash interrupted.

    Returns the names in the folder after that.
    """
    new = [name for name in _segment_files(names) if name.step]
    if not new:
        return names
    for name in new:
        if name.kind + name.step == LOG + SWAP:
            _finish(_NewSegment(files, folder, name.base_offset, recovery_point), set_aside)
    new = [name for name in _segment_files(files.names(folder)) if name.step]
    begun = {name.base_offset for name in new if name.step == CLEANED}
    for name in new:
        # The indexes before the log file, as in `discard`: alone they would pass for those of a
        # complete swap.
        if name.step == SWAP and name.base_offset in begun:
            files.remove(f"{folder}/{name.text}")
    files.sync_directory(folder)
    for name in new:
        if name.step == CLEANED:
            files.remove(f"{folder}/{name.text}")
        elif name.base_offset not in begun:
            files.rename(f"{folder}/{name.text}", f"{folder}/{name.text.removesuffix(SWAP)}")
    files.sync_directory(folder)
    log.info("event=compaction_finished folder=%s", folder.rpartition("/")[2])
    return files.names(folder)


class DamagedSwap(NamedTuple):
    """The new segment of an interrupted swap that a start does not use."""

    file: str
    reason: CorruptMessage
    is_undone: bool
    """Whether the start sets it aside; otherwise it does not open the log."""


def damaged_swaps(files: Files, folder: str, *, recovery_point: int) -> Iterator[DamagedSwap]:
    """Yield the new segments that `finish_swaps` would not use; nothing is changed."""
    names = _segment_files(files.names(folder))
    for name in names:
        if name.kind + name.step != LOG + SWAP:
            continue
        new = _NewSegment(files, folder, name.base_offset, recovery_point)
        try:
            _checked_end(new, names)
        except CorruptMessage as error:
            end = _chain_end(new, _bases(names))
            yield DamagedSwap(name.text, error, new.is_replaceable(end))


class _NewSegment(NamedTuple):
    """The new segment of an interrupted swap."""

    files: Files
    folder: str
    base_offset: int
    recovery_point: int
    """0 if it is not known."""

    @property
    def file(self) -> str:
        """The name of the log file, which lacks its final name."""
        return segment_name(self.base_offset, LOG + SWAP)

    def is_replaceable(self, end: int) -> bool:
        """Return whether older segments whose batches end at ``end`` have all records for sure."""
        return 0 < self.recovery_point <= end


def _finish(new: _NewSegment, set_aside: SetAside) -> None:
    """Repeat steps 4 and 5 for a new segment, unless it is damaged."""
    files, folder, base_offset, _ = new
    path = f"{folder}/{segment_name(base_offset, LOG)}"
    names = _segment_files(files.names(folder))
    try:
        end = _checked_end(new, names)
    except CorruptMessage as error:
        _undo(new, names, set_aside, error)
        return
    for name in _replaced(names, base_offset, end):
        # The rename below replaces this one in a single step.
        if (name.base_offset, name.kind) != (base_offset, LOG):
            files.remove(f"{folder}/{name.text}")
    files.sync_directory(folder)
    files.rename(path + SWAP, path)
    files.sync_directory(folder)


def _checked_end(new: _NewSegment, names: list[_Name]) -> int:
    """Return the end offset of a new segment; raise CorruptMessage if it is damaged or foreign.

    It must consist of whole batches and end where another segment begins.  Without the second check
    a damaged offset in it, which no checksum covers, would remove later segments.  The next segment
    may be missing if it was new when the power failed.  Then the end must not be above the recovery
    point, if that is known: nothing above it is compacted.
    """
    files, folder, base_offset, recovery_point = new
    path = f"{folder}/{new.file}"
    end, position, size = _walk(files, path, base_offset)
    if not position:
        raise CorruptMessage(f"{path} does not begin with a record batch; it has {size} bytes")
    if position < size:
        raise CorruptMessage(
            f"{path} is damaged at byte {position}: expected {size} bytes of whole batches"
        )
    bases = _bases(names)
    is_last = max(bases, default=0) < end
    if end not in bases and not (is_last and (recovery_point == 0 or end <= recovery_point)):
        raise CorruptMessage(f"{path} ends at offset {end}, where no segment begins")
    before = max((base for base in bases if base < base_offset), default=None)
    if before is not None and base_offset not in bases:
        before_path = f"{folder}/{segment_name(before, LOG)}"
        before_end, _, _ = _walk(files, before_path, before)
        if before_end > base_offset:
            raise CorruptMessage(
                f"{path} begins within another segment: {before_path} ends at offset {before_end}"
            )
    return end


def _undo(new: _NewSegment, names: list[_Name], set_aside: SetAside, error: CorruptMessage) -> None:
    """Set a damaged new segment aside, if the old segments still have all records.

    Otherwise raise CorruptMessage: it may have the only copy of some records.
    """
    files, folder, base_offset, recovery_point = new
    end = _chain_end(new, _bases(names))
    if not new.is_replaceable(end):
        expected = f"{recovery_point} or more" if recovery_point else "an offset that is not known"
        raise CorruptMessage(
            f"{error}. The older segments that it replaces are not complete: their batches end at "
            f"offset {end}, expected {expected}. Restore {folder} from a copy, or move the file "
            "out of it to start without the other records"
        ) from error
    for name in names:  # The indexes first, as in `discard`.
        if name.base_offset == base_offset and name.step and name.kind != LOG:
            files.remove(f"{folder}/{name.text}")
    files.sync_directory(folder)
    file, partition = new.file, folder.rpartition("/")[2]
    size = _walk(files, f"{folder}/{file}", base_offset).size
    path = set_aside.move_away(
        f"{folder}/{file}", size=size, why=DAMAGED_LOG, name=f"{partition}/{file}"
    )
    log.warning(
        "event=swap_undone folder=%s file=%s bytes=%d reason=%r set_aside=%s action='delete it: "
        "the segments that it was to replace are complete'",
        partition, file, size, str(error), path,
    )  # fmt: skip


def _chain_end(new: _NewSegment, bases: list[int]) -> int:
    """Return the end of the consecutive batches in the old segments from the base offset on."""
    offset = new.base_offset
    end = max((base for base in bases if base <= offset), default=offset)
    for base in [base for base in bases if base >= end]:
        if base != end:
            break  # A segment is missing, or the one before is damaged.
        end = _walk(new.files, f"{new.folder}/{segment_name(base, LOG)}", base).end_offset
    return end


class _Walked(NamedTuple):
    """The end of the plausible batches at the start of a segment's file, and the file's size."""

    end_offset: int
    position: int
    size: int


def _walk(files: Files, path: str, base_offset: int) -> _Walked:
    """Step through the headers of a segment's file while their offsets ascend."""
    fd = files.open(path)
    try:
        size, end_offset, position = files.size(fd), base_offset, 0
        # A sparse file can have any size, and only the first part of it can be a segment.
        limit = min(size, SEGMENT_BYTES_MAX)
        for batch in headers(lambda size, at: files.read(fd, size, at), 0, limit=limit):
            # Where compaction removed batches, offsets jump ahead; they never go back.
            if batch.base_offset < end_offset:
                break
            end_offset, position = batch.end_offset, batch.end_position
    finally:
        files.close(fd)
    return _Walked(end_offset, position, size)


class _Name(NamedTuple):
    """The name of a file of a segment, for example ``00000000000000000007.index.swap``."""

    text: str
    base_offset: int
    kind: str
    """`LOG`, or one of `INDEXES`."""
    step: str
    """`CLEANED`, `SWAP`, or "" for the final name."""


def _segment_files(names: Iterable[str]) -> list[_Name]:
    """Return the names of the files of segments in this order; other names are left out."""
    segment_files = []
    for text in names:
        step = next((step for step in (CLEANED, SWAP) if text.endswith(step)), "")
        for kind in (LOG, *INDEXES):
            base_offset = offset_of(text, kind + step)
            if base_offset is not None:
                segment_files.append(_Name(text, base_offset, kind, step))
    return segment_files


def _bases(names: Iterable[_Name]) -> list[int]:
    """Return the base offsets of the segments with their final names, in this order."""
    return [name.base_offset for name in names if name.kind + name.step == LOG]


def _replaced(names: Iterable[_Name], base_offset: int, end_offset: int) -> list[_Name]:
    """Return the names of segment files with a base offset in ``[base_offset, end_offset)``."""
    return [
        # Not the files of the new segment, whose names still have a step.
        name
        for name in names
        if not name.step and base_offset <= name.base_offset < end_offset
    ]


def _to_swap(path: str) -> str:
    return path.removesuffix(CLEANED) + SWAP
