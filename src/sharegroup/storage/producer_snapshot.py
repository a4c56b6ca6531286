"""The file beside a log that says what its producers were at an offset: ``<offset>.snapshot``.

Kafka's format, version 1, which holds the last batch of each producer::

    version (int16)  crc32c (uint32)  count (int32)  then for each producer
    id  epoch  last sequence  last offset  last offset delta  time  coordinator epoch  transaction

The four batches before the last stand in a block behind, which Kafka's reader passes over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

import crc32c

from sharegroup.core.producer_state import SEQUENCE_COUNT, ProducedBatch, ProducerEntry
from sharegroup.errors import CorruptMessage

_SNAPSHOT_VERSION = 1
_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_EARLIER = struct.Struct(">qiqi")
_NO_TRANSACTION = -1
_NO_BATCH = -1


def encode_producers(entries: Mapping[int, ProducerEntry]) -> bytes:
    """The bytes of a snapshot file."""
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
    body = b"".join((*parts, _COUNT.pack(len(earlier)), *earlier))
    return _HEAD.pack(_SNAPSHOT_VERSION, crc32c.crc32c(body)) + body


def decode_producers(snapshot: bytes) -> dict[int, ProducerEntry]:
    """What a snapshot file says; CorruptMessage where it is damaged."""
    if len(snapshot) < _HEAD.size + _COUNT.size:
        raise CorruptMessage(f"producer snapshot of {len(snapshot)} bytes is too short")
    version, crc = _HEAD.unpack_from(snapshot)
    body = memoryview(snapshot)[_HEAD.size :]
    if version != _SNAPSHOT_VERSION or crc32c.crc32c(body) != crc:
        raise CorruptMessage(
            f"producer snapshot: expected version {_SNAPSHOT_VERSION} and its checksum, "
            f"got version {version}, checksum {'good' if crc32c.crc32c(body) == crc else 'bad'}"
        )
    found: dict[int, ProducerEntry] = {}
    (count,) = _COUNT.unpack_from(body)
    at = _COUNT.size
    for fields in _ENTRY.iter_unpack(body[at : at + count * _ENTRY.size]):
        producer_id, epoch, last_sequence, last_offset, delta, used_ms, coordinator, start = fields
        base_sequence = (last_sequence - delta) % SEQUENCE_COUNT
        batch = ProducedBatch(base_sequence, last_offset - delta, last_offset + 1)
        found[producer_id] = ProducerEntry(
            epoch,
            () if last_offset == _NO_BATCH else (batch,),
            used_ms,
            coordinator,
            None if start == _NO_TRANSACTION else start,
        )
    at += count * _ENTRY.size
    if at < len(body):  # Kafka's own snapshots end here.
        earlier = body[at + _COUNT.size :]
        _add_earlier(found, _EARLIER.iter_unpack(earlier))
    return found


def _add_earlier(found: dict[int, ProducerEntry], earlier: Iterable[tuple[int, ...]]) -> None:
    batches: dict[int, list[ProducedBatch]] = {}
    for producer_id, base_sequence, base_offset, size in earlier:
        batches.setdefault(producer_id, []).append(
            ProducedBatch(base_sequence, base_offset, base_offset + size)
        )
    for producer_id, before in batches.items():
        entry = found[producer_id]
        found[producer_id] = entry._replace(batches=(*before, *entry.batches))
