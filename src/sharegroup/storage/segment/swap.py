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

A file named `COMPACTED` marks a log whose segments may have holes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from sharegroup.errors import CorruptMessage
from sharegroup.storage.disk.files import Files
from sharegroup.storage.disk.stored_file import StoredFile
from sharegroup.storage.segment.batch_scan import headers
from sharegroup.storage.segment.segment import Segment

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
    names = [
        name
        for name in files.names(folder)
        if name.endswith((CLEANED, SWAP)) and base_offset in (None, int(_base(name)))
    ]
    logs = [name for name in names if LOG in name]
    for group in (set(names) - set(logs), logs):
        for name in sorted(group):
            files.remove(f"{folder}/{name}")
        if group:
            files.sync_directory(folder)


def remove_replaced(files: Files, folder: str, segment: Segment) -> None:
    """Blocking, step 4: remove the files of the segments that the new one replaces."""
    for name in _replaced(files.names(folder), segment.base_offset, segment.end_offset):
        files.remove(f"{folder}/{name}")
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


def finish_swaps(files: Files, folder: str, names: list[str], *, recovery_point: int) -> list[str]:
    """Blocking, at start: complete swaps that a crash interrupted.

    Returns the names in the folder after that.
    """
    if not any(name.endswith((CLEANED, SWAP)) for name in names):
        return names
    for name in names:
        if name.endswith(LOG + SWAP):
            _finish(files, folder, int(name.removesuffix(LOG + SWAP)), recovery_point)
    names = files.names(folder)
    begun = {_base(name) for name in names if name.endswith(CLEANED)}
    for name in names:
        # The indexes before the log file, as in `discard`: alone they would pass for those of a
        # complete swap.
        if name.endswith(SWAP) and _base(name) in begun:
            files.remove(f"{folder}/{name}")
    files.sync_directory(folder)
    for name in names:
        if name.endswith(CLEANED):
            files.remove(f"{folder}/{name}")
        elif name.endswith(SWAP) and _base(name) not in begun:
            files.rename(f"{folder}/{name}", f"{folder}/{name.removesuffix(SWAP)}")
    files.sync_directory(folder)
    log.info("event=compaction_finished folder=%s", folder.rpartition("/")[2])
    return files.names(folder)


def _finish(files: Files, folder: str, base_offset: int, recovery_point: int) -> None:
    """Repeat steps 4 and 5 for the new segment with this base offset."""
    path = f"{folder}/{base_offset:020d}{LOG}"
    end = _end_offset(files, path + SWAP, base_offset)
    names = files.names(folder)
    _check_end(path + SWAP, names, end=end, recovery_point=recovery_point)
    for name in _replaced(names, base_offset, end):
        # The rename below replaces this one in a single step.
        if name != f"{base_offset:020d}{LOG}":
            files.remove(f"{folder}/{name}")
    files.sync_directory(folder)
    files.rename(path + SWAP, path)
    files.sync_directory(folder)


def _check_end(path: str, names: list[str], *, end: int, recovery_point: int) -> None:
    """Raise CorruptMessage unless the new segment ends where another segment begins.

    Without this check a damaged offset in it, which no checksum covers, would remove later
    segments. The next segment may be missing if it was new when the power failed. Then the end must
    not be above the recovery point, if that is known: nothing above it is compacted.
    """
    bases = [int(name.removesuffix(LOG)) for name in names if name.endswith(LOG)]
    is_last = max(bases, default=0) < end
    if end in bases or (is_last and (recovery_point == 0 or end <= recovery_point)):
        return
    raise CorruptMessage(
        f"{path} ends at offset {end}, where no segment begins: it is damaged, so no "
        "segment is removed"
    )


def _end_offset(files: Files, path: str, base_offset: int) -> int:
    fd = files.open(path)
    try:
        size, end_offset, position = files.size(fd), base_offset, 0
        for batch in headers(lambda size, at: files.read(fd, size, at), 0, limit=size):
            end_offset, position = batch.end_offset, batch.end_position
    finally:
        files.close(fd)
    if position < size:
        raise CorruptMessage(
            f"{path} is damaged at byte {position}: expected {size} bytes of whole batches. It "
            "replaces older segments: restore it from a copy"
        )
    return end_offset


def _replaced(names: list[str], base_offset: int, end_offset: int) -> list[str]:
    """Return the names of segment files with a base offset in ``[base_offset, end_offset)``."""
    replaced = []
    for name in names:
        base, dot, suffix = name.partition(".")
        if dot + suffix in (LOG, *INDEXES) and base_offset <= int(base) < end_offset:
            replaced.append(name)
    return replaced


def _to_swap(path: str) -> str:
    return path.removesuffix(CLEANED) + SWAP


def _base(name: str) -> str:
    return name.partition(".")[0]
