"""The value of a share update, encoded and decoded by hand because it is the most frequent record.

Every acknowledgement writes one, and every start reads them all, a million in seconds. They are
short and of few shapes, so each takes one call of `struct`:

    version  snapshot epoch  leader epoch  start offset   count+1   batches             tags
    int16    int32           int32         int64          uvarint   20 bytes each       one, or none

    a batch: first offset int64, last offset int64, state int8, count int16, no tags
    the tag: 0, of 4 bytes: delivery complete count int32

Values of another shape are left to the compiled decoder of `share_state_records`, which reads all
that Kafka may write; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct, error
from typing import NamedTuple

BATCHES_MAX = 126
"""Number of batches above which the count takes two bytes."""

_HEAD = "hiiqB"
_BATCH = "qqbhB"
_TAG = "BBBi"
_NO_TAGS = 0
_ONE_TAG = 1
_SIZE_OF_COUNT = 4
_COUNT_UNKNOWN = -1

_ONE = Struct(">2xiiqxqqbh4xi")
"""An update of one batch, without the bytes that are the same in all of them."""

_ONE_AND_ALL = Struct(">2siiqBqqbh4si")
"""An update of one batch, with these bytes."""

_VERSION = b"\0\0"
_COUNT_AT, _TAGS_AT = 18, 38
_TAGS = bytes((_NO_TAGS, _ONE_TAG, 0, _SIZE_OF_COUNT))
"""The tags of the batch (none) and of the value (one, with its number and size)."""

_head = Struct(">" + _HEAD)
_batch = Struct(">" + _BATCH)
_tag = Struct(">" + _TAG)

Batch = tuple[int, int, int, int]
"""First offset, last offset, delivery state and delivery count."""


class UpdateFields(NamedTuple):
    """A share update as plain numbers; a delivery complete count of -1 is unknown."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[Batch]


def encode_update(fields: UpdateFields) -> bytes | None:
    """Return the value with its version; None if it has too many batches for this format."""
    snapshot_epoch, leader_epoch, start_offset, complete, batches = fields
    count = len(batches)
    # The usual case, packed by one call.
    if count == 1 and complete != _COUNT_UNKNOWN:
        epochs = snapshot_epoch, leader_epoch
        return _ONE_AND_ALL.pack(_VERSION, *epochs, start_offset, 2, *batches[0], _TAGS, complete)
    if count > BATCHES_MAX:
        return None
    head = (0, snapshot_epoch, leader_epoch, start_offset, count + 1)
    flat = [number for batch in batches for number in (*batch, _NO_TAGS)]
    if complete == _COUNT_UNKNOWN:
        return _whole(count, tagged=False).pack(*head, *flat, _NO_TAGS)
    return _whole(count, tagged=True).pack(*head, *flat, _ONE_TAG, 0, _SIZE_OF_COUNT, complete)


def decode_update(value: bytes) -> UpdateFields | None:
    """Return the fields of a value; None if it has another shape or is invalid."""
    try:
        return _one_batch(value) or _any_batches(value)
    except error:
        return None


def _one_batch(value: bytes) -> UpdateFields | None:
    """Decode an update of one batch and a count, as nearly all are; constants compare as bytes."""
    if (
        len(value) != _ONE.size
        or value[:2] != _VERSION
        or value[_COUNT_AT] != 2
        or value[_TAGS_AT : _TAGS_AT + 4] != _TAGS
    ):
        return None
    snapshot_epoch, leader_epoch, start_offset, *batch, complete = _ONE.unpack(value)
    return UpdateFields(snapshot_epoch, leader_epoch, start_offset, complete, (tuple(batch),))


def _any_batches(value: bytes) -> UpdateFields | None:
    version, snapshot_epoch, leader_epoch, start_offset, count = _head.unpack_from(value)
    batches_end = _head.size + (count - 1) * _batch.size
    # Not `>`: the tags take a byte at least. A larger count is one that begins a number of two
    # bytes.
    if version != 0 or not 1 <= count <= BATCHES_MAX + 1 or batches_end >= len(value):
        return None
    raw_batches = list(_batch.iter_unpack(value[_head.size : batches_end]))
    # A tag of a newer version would shift all that follows; the compiled decoder skips it.
    if any(batch[4] != _NO_TAGS for batch in raw_batches):
        return None
    complete = _count_at(value, batches_end)
    if complete is None:
        return None
    batches = tuple((first, last, state, times) for first, last, state, times, _ in raw_batches)
    return UpdateFields(snapshot_epoch, leader_epoch, start_offset, complete, batches)


def _count_at(value: bytes, position: int) -> int | None:
    """Return the delivery complete count at the end of the value; None if other bytes follow."""
    if value[position:] == bytes((_NO_TAGS,)):
        return _COUNT_UNKNOWN
    if len(value) - position != _tag.size:
        return None
    tags, tag, size, complete = _tag.unpack_from(value, position)
    return complete if (tags, tag, size) == (_ONE_TAG, 0, _SIZE_OF_COUNT) else None


# Every format at once: 0 to `BATCHES_MAX` batches, each with and without the tag.
@lru_cache(maxsize=2 * BATCHES_MAX + 2)
def _whole(batches: int, *, tagged: bool) -> Struct:
    """Return the format of a value with this number of batches."""
    return Struct(">" + _HEAD + _BATCH * batches + (_TAG if tagged else "B"))
