"""Putting one compacted segment in the place of several others, so that no crash comes between.

The new segment is written beside the old ones and takes their place in steps, each durable
before the next begins:

    1  A.log.cleaned  A.index.cleaned  ...  written; the old segments hold
    2  A.log.cleaned  A.index.swap     ...
    3  A.log.swap     A.index.swap     ...  from here on the new one holds
    4                                       the files of the old segments go
    5  A.log          A.index.swap     ...  the new one takes its name
    6  A.log          A.index          ...  and its indexes theirs

A is the base offset of the first old segment, and the last batch of the last one is always in the
new one, so the new file itself says which segments it replaces.  `finish_swaps` does at start
what is left to do.  Which step it was is in the names: up to step 2 the new files go, from step 3
on the others are done again.

A file named `COMPACTED` says that segments of this log may have holes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from sharegroup.errors import CorruptMessage
from sharegroup.storage.batch_scan import headers
from sharegroup.storage.files import Files
from sharegroup.storage.segment import Segment
from sharegroup.storage.stored_file import StoredFile

log = logging.getLogger(__name__)

COMPACTED = "compacted"
CLEANED = ".cleaned"
SWAP = ".swap"
LOG = ".log"
INDEXES = (".index", ".timeindex", ".txnindex")


def hold(files: Files, folder: str, segment: Segment) -> None:
    """Blocking, steps 1 to 3: let a new segment that was written be the one that holds.

    The caller has begun to sync its files.
    """
    for file in segment.files:
        file.sync()
    if not files.exists(f"{folder}/{COMPACTED}"):
        files.close(files.open(f"{folder}/{COMPACTED}", create=True))
    files.sync_directory(folder)
    for file in segment.index_files:
        files.rename(file.path, _to_swap(file.path))
    files.sync_directory(folder)
    files.rename(segment.log.path, _to_swap(segment.log.path))
    files.sync_directory(folder)


def holds(segment: Segment) -> None:
    """In the event loop, after `hold`: the segment's files have other names now."""
    for file in segment.files:
        file.path = _to_swap(file.path)


def discard(files: Files, folder: str, base_offset: int | None = None) -> None:
    """Blocking, before step 4: new files go, of this segment or of all; the old ones hold.

    The indexes go first: without a log they would be believed to belong to the old one.
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
    """Blocking, step 4: the files of the segments that the new one replaces go."""
    for name in _replaced(files.names(folder), segment.base_offset, segment.end_offset):
        files.remove(f"{folder}/{name}")
    files.sync_directory(folder)


def is_unsettled(segment: Segment) -> bool:
    """Whether the segment holds and has not all of its names yet."""
    return any(file.path.endswith(SWAP) for file in segment.files)


def take_names(files: Files, of: Iterable[StoredFile]) -> None:
    """Steps 5 and 6, in the event loop, which may open a file at any time: quick renames."""
    for file in of:
        if file.path.endswith(SWAP):
            files.rename(file.path, file.path.removesuffix(SWAP))
            file.path = file.path.removesuffix(SWAP)


def finish_swaps(files: Files, folder: str, names: list[str]) -> list[str]:
    """Blocking, at start: bring what a crash left of the steps to its end; the names after it."""
    if not any(name.endswith((CLEANED, SWAP)) for name in names):
        return names
    for name in names:
        if name.endswith(LOG + SWAP):
            _finish(files, folder, int(name.removesuffix(LOG + SWAP)))
    names = files.names(folder)
    begun = {_base(name) for name in names if name.endswith(CLEANED)}
    for name in names:
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


def _finish(files: Files, folder: str, base_offset: int) -> None:
    """Steps 4 and 5 once more."""
    path = f"{folder}/{base_offset:020d}{LOG}"
    end = _end_offset(files, path + SWAP, base_offset)
    for name in _replaced(files.names(folder), base_offset, end):
        if name != f"{base_offset:020d}{LOG}":
            files.remove(f"{folder}/{name}")
    files.sync_directory(folder)
    files.rename(path + SWAP, path)
    files.sync_directory(folder)


def _end_offset(files: Files, path: str, base_offset: int) -> int:
    fd = files.open(path)
    try:
        size, end_offset, position = files.size(fd), base_offset, 0
        for batch in headers(lambda size, at: files.read(fd, size, at), 0, limit=size):
            end_offset, position = batch.end_offset, batch.end_position
    finally:
        files.close(fd)
    if position < size:
        raise CorruptMessage(f"{path} is damaged at byte {position}; it replaces older segments")
    return end_offset


def _replaced(names: list[str], base_offset: int, end_offset: int) -> list[str]:
    """Files of segments with a base offset in ``[base_offset, end_offset)``, by their names."""
    found = []
    for name in names:
        base, dot, suffix = name.partition(".")
        if dot + suffix in (LOG, *INDEXES) and base_offset <= int(base) < end_offset:
            found.append(name)
    return found


def _to_swap(path: str) -> str:
    return path.removesuffix(CLEANED) + SWAP


def _base(name: str) -> str:
    return name.partition(".")[0]
