"""Cuts the damaged end of a log and sets aside the bytes behind the cut.

Above the recovery point the first batch that is not whole ends the log.  The bytes from there on
may be the torn end of a write that was never confirmed.  If whole batches follow, the batch was
damaged later, and the batches behind it may have been confirmed.  The two cases cannot be told
apart for certain.  So in both the bytes are set aside before the log is cut, and a WARNING tells
how many whole batches they contain.

If the disk is too full for a copy, the bytes stay in place and the segment takes no more appends;
the next start tries again.  Whole segments behind the cut are moved, which needs no space.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from typing import NamedTuple

from sharegroup.ids import LEADER_EPOCH
from sharegroup.storage.disk.set_aside import DAMAGED_LOG, TORN_LOG, SetAside
from sharegroup.storage.segment.batch_scan import PlacedBatch, is_whole, placed_in
from sharegroup.storage.segment.segment import Segment, segment_name
from sharegroup.wire.batches.batches import HEADER_BYTES, MAGIC

log = logging.getLogger(__name__)

SEARCH_BYTES_MAX = 64 << 20
"""Maximum number of bytes of a tail that are searched for whole batches."""

CHECKED_BYTES_MAX = 4 * SEARCH_BYTES_MAX
"""Maximum number of bytes compared with checksums in a search, because headers may overlap."""

RANGES_TOLD_MAX = 10

# Every batch of this broker has these bytes at a fixed place, so they are quick to search for.
_EPOCH_AND_MAGIC = struct.pack(">ib", LEADER_EPOCH, MAGIC)
_EPOCH_AT = 12


class Sound(NamedTuple):
    """The number of whole batches in some bytes, of their records, and their offsets."""

    batches: int
    records: int
    offsets: str
    """Ranges, the last offset inclusive: ``3-4,7-7``."""


def cut_tail(segment: Segment, file_size: int, set_aside: SetAside) -> None:
    """Cut a segment's file at the segment's size and set aside the bytes behind it."""
    folder, _, name = segment.log.path.rpartition("/")
    partition = folder.rpartition("/")[2]
    first = segment.size
    sound = sound_in(segment.log.read(min(file_size - first, SEARCH_BYTES_MAX), first))
    try:
        path = set_aside.copy(
            segment.log,
            first=first,
            why=DAMAGED_LOG if sound.batches else TORN_LOG,
            name=f"{partition}/{segment_name(segment.end_offset, '.log')}",
        )
    except OSError as error:
        segment.is_sealed = True
        log.warning(
            "event=tail_kept folder=%s file=%s position=%d bytes=%d %s error=%r action='free "
            "space on the disk, or raise sharegroup.set.aside.max.bytes: these bytes are not "
            "served and stay in the file'",
            partition, name, first, file_size - first, _told(sound), str(error),
        )  # fmt: skip
        return
    segment.log.truncate(first)
    log.warning(
        "event=tail_set_aside folder=%s file=%s position=%d bytes=%d %s set_aside=%s%s",
        partition, name, first, file_size - first, _told(sound), path, _action(sound, path),
    )  # fmt: skip


def cut_segment(segment: Segment, end_offset: int, set_aside: SetAside) -> None:
    """Remove a segment behind ``end_offset``, where the log ends; its bytes are set aside."""
    folder, _, name = segment.log.path.rpartition("/")
    partition = folder.rpartition("/")[2]
    size = segment.log.size()
    sound = sound_in(segment.log.read(min(size, SEARCH_BYTES_MAX), 0))
    for file in segment.index_files:
        file.remove()
    segment.log.close()
    if not size:
        segment.log.remove()
        return
    path = set_aside.move_away(
        segment.log.path, size=size, why=DAMAGED_LOG, name=f"{partition}/{name}"
    )
    log.warning(
        "event=segment_set_aside folder=%s file=%s end_offset=%d bytes=%d %s set_aside=%s%s",
        partition, name, end_offset, size, _told(sound), path, _action(sound, path),
    )  # fmt: skip


def sound_in(data: bytes) -> Sound:
    """Find and summarize the whole batches in some bytes."""
    batches = list(whole_batches(data))
    ranges: list[list[int]] = []
    for batch in batches:
        if ranges and ranges[-1][1] == batch.base_offset:
            ranges[-1][1] = batch.end_offset
        else:
            ranges.append([batch.base_offset, batch.end_offset])
    offsets = ",".join(f"{first}-{end - 1}" for first, end in ranges[:RANGES_TOLD_MAX])
    ellipsis = ",..." if len(ranges) > RANGES_TOLD_MAX else ""
    return Sound(len(batches), sum(batch.offset_count for batch in batches), offsets + ellipsis)


def whole_batches(data: bytes) -> Iterator[PlacedBatch]:
    """Iterate over the batches with a matching checksum at any position of some bytes."""
    view, checked = memoryview(data), 0
    pattern_at = data.find(_EPOCH_AND_MAGIC, _EPOCH_AT)
    while pattern_at >= 0 and checked < CHECKED_BYTES_MAX:
        position, search_from = pattern_at - _EPOCH_AT, pattern_at + 1
        header = placed_in(
            view[position : position + HEADER_BYTES], position=position, limit=len(data)
        )
        if header is not None:
            checked += header.size
            if is_whole(view[position : header.end_position]):
                yield header
                search_from = header.end_position + _EPOCH_AT
        pattern_at = data.find(_EPOCH_AND_MAGIC, search_from)


def _told(sound: Sound) -> str:
    if not sound.batches:
        return "sound_batches=0"
    return f"sound_batches={sound.batches} records={sound.records} offsets={sound.offsets}"


def _action(sound: Sound, path: str) -> str:
    if not sound.batches:
        return ""
    folder = path.rpartition("/")[0]
    return f" action='these records are not served: read them with sharegroup logs {folder}'"
