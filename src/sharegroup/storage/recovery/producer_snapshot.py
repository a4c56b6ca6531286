"""Encodes the state of a log's producers at an offset, for the file ``<offset>.snapshot``.

The format is Kafka's, version 1, which holds the last batch of each producer::

    version (int16)  crc32c (uint32)  count (int32)  then for each producer
    id  epoch  last sequence  last offset  last offset delta  time  coordinator epoch  transaction

A block behind these entries, which Kafka's reader skips, holds the four batches before the last of
each producer.  The topic id and partition of the log follow.  They prevent the use of another log's
snapshot: every broker counts producer ids from 0, so a new batch would be taken for a duplicate and
confirmed without being written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

import crc32c

from sharegroup.core.log.producer_state import SEQUENCE_COUNT, ProducedBatch, ProducerEntry
from sharegroup.errors import CorruptMessage
from sharegroup.ids import TopicIdPartition

SNAPSHOT_SUFFIX = ".snapshot"
_SNAPSHOT_VERSION = 1
_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_EARLIER = struct.Struct(">qiqi")
_NO_TRANSACTION = -1
_NO_BATCH = -1


def encode_producers(entries: Mapping[int, ProducerEntry], key: TopicIdPartition) -> bytes:
    """Return the bytes of the snapshot file of a log."""
    parts = [_COUNT.pack(len(entries))]
    earlier: list[bytes] = []
    for producer_id, entry in entries.items():
        last = entry.batches[-1] if entry.batches else None
        parts.append(
            _ENTRY.pack(
                producer_id,
                entry.epoch,
                _NO_BATCH if last is None else last.last_sequence,
                _NO_BATCH if last is None else last.end_offset - 1,
                0 if last is None else last.offset_count - 1,
                entry.used_ms,
                entry.coordinator_epoch,
                _NO_TRANSACTION if entry.transaction_start is None else entry.transaction_start,
            )
        )
        earlier += (
            _EARLIER.pack(producer_id, batch.base_sequence, batch.base_offset, batch.offset_count)
            for batch in entry.batches[:-1]
        )
    body = b"".join((*parts, _COUNT.pack(len(earlier)), *earlier, _owner(key)))
    return _HEAD.pack(_SNAPSHOT_VERSION, crc32c.crc32c(body)) + body


def decode_producers(snapshot: bytes, key: TopicIdPartition) -> dict[int, ProducerEntry]:
    """Decode a log's snapshot file. CorruptMessage if it is damaged or belongs to another log."""
    if len(snapshot) < _HEAD.size + _COUNT.size:
        raise CorruptMessage(f"producer snapshot of {len(snapshot)} bytes is too short")
    version, crc = _HEAD.unpack_from(snapshot)
    body = memoryview(snapshot)[_HEAD.size :]
    if version != _SNAPSHOT_VERSION or crc32c.crc32c(body) != crc:
        raise CorruptMessage(
            f"producer snapshot: expected version {_SNAPSHOT_VERSION} and its checksum, "
            f"got version {version}, checksum {'good' if crc32c.crc32c(body) == crc else 'bad'}"
        )
    entries: dict[int, ProducerEntry] = {}
    entry_bytes, at = _table(body, 0, _ENTRY)
    for fields in _ENTRY.iter_unpack(entry_bytes):
        producer_id, epoch, last_sequence, last_offset, delta, used_ms, coordinator, start = fields
        # A batch may begin before the sequences wrap around to 0.
        base_sequence = (last_sequence - delta) % SEQUENCE_COUNT
        batch = ProducedBatch(base_sequence, last_offset - delta, last_offset + 1)
        entries[producer_id] = ProducerEntry(
            epoch,
            () if last_offset == _NO_BATCH else (batch,),
            used_ms,
            coordinator,
            None if start == _NO_TRANSACTION else start,
        )
    if at < len(body):  # Kafka's own snapshots end here.
        earlier_bytes, end = _table(body, at, _EARLIER)
        _add_earlier(entries, _EARLIER.iter_unpack(earlier_bytes))
        owner = bytes(body[end:])
        if owner and owner != _owner(key):  # Older versions did not write the owner.
            raise CorruptMessage("producer snapshot: it belongs to another log")
    return entries


def _table(body: memoryview, at: int, layout: struct.Struct) -> tuple[memoryview, int]:
    """Return the bytes of the entries behind a count at ``at``, and the position after them."""
    count = _COUNT.unpack_from(body, at)[0] if len(body) - at >= _COUNT.size else -1
    first = at + _COUNT.size
    end = first + count * layout.size
    if not first <= end <= len(body):
        raise CorruptMessage(
            f"producer snapshot: it claims {count} entries at byte {at} of {len(body)}"
        )
    return body[first:end], end


def _owner(key: TopicIdPartition) -> bytes:
    return key.topic_id.bytes + _COUNT.pack(key.partition)


def _add_earlier(entries: dict[int, ProducerEntry], earlier: Iterable[tuple[int, ...]]) -> None:
    batches: dict[int, list[ProducedBatch]] = {}
    for producer_id, base_sequence, base_offset, size in earlier:
        batches.setdefault(producer_id, []).append(
            ProducedBatch(base_sequence, base_offset, base_offset + size)
        )
    for producer_id, earlier_batches in batches.items():
        entry = entries.get(producer_id)
        if entry is None:
            raise CorruptMessage(f"producer snapshot: no last batch of producer {producer_id}")
        entries[producer_id] = entry._replace(batches=(*earlier_batches, *entry.batches))
