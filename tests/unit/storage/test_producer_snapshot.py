"""Producer snapshots: Kafka's bytes, with the batches before the last in a block behind."""

from __future__ import annotations

import struct
from uuid import UUID

import crc32c
import pytest

from sharegroup.core.log.producer_state import ProducedBatch, ProducerEntry
from sharegroup.errors import CorruptMessage
from sharegroup.ids import TopicId, TopicIdPartition
from sharegroup.storage.recovery.producer_snapshot import decode_producers, encode_producers

KEY = TopicIdPartition(TopicId(UUID(int=7)), 3)


def test_producer_snapshot_survives_a_round_trip() -> None:
    entries = {
        7: ProducerEntry(0, tuple(ProducedBatch(n, 100 + n, 101 + n) for n in range(5)), 1000),
        8: ProducerEntry(4, (ProducedBatch(2**31 - 1, 106, 108),), 2000, 3, transaction_start=106),
        9: ProducerEntry(1, (), 3000, coordinator_epoch=5),
    }
    assert decode_producers(encode_producers(entries, KEY), KEY) == entries


def test_snapshot_begins_like_kafkas_version_1() -> None:
    """Version, checksum, count, then per producer the last batch (ProducerSnapshot.json)."""
    snapshot = encode_producers({7: ProducerEntry(2, (ProducedBatch(5, 100, 103),), 1000)}, KEY)
    entry = struct.pack(">qhiqiqiq", 7, 2, 7, 102, 2, 1000, -1, -1)
    assert snapshot[:2] == b"\0\1"
    assert snapshot[6:] == b"\0\0\0\1" + entry + b"\0\0\0\0" + KEY.topic_id.bytes + b"\0\0\0\3"
    assert snapshot[2:6] == struct.pack(">I", crc32c.crc32c(snapshot[6:]))


def test_a_snapshot_that_kafka_wrote_is_read() -> None:
    body = b"\0\0\0\1" + struct.pack(">qhiqiqiq", 7, 2, 7, 102, 2, 1000, -1, -1)
    found = decode_producers(b"\0\1" + struct.pack(">I", crc32c.crc32c(body)) + body, KEY)
    assert found == {7: ProducerEntry(2, (ProducedBatch(5, 100, 103),), 1000)}


@pytest.mark.parametrize("position", [0, 3, 9, 30])
def test_a_damaged_snapshot_is_refused(position: int) -> None:
    damaged = bytearray(
        encode_producers({7: ProducerEntry(0, (ProducedBatch(0, 100, 101),), 1000)}, KEY)
    )
    damaged[position] ^= 1
    with pytest.raises(CorruptMessage):
        decode_producers(bytes(damaged), KEY)
    with pytest.raises(CorruptMessage):
        decode_producers(bytes(damaged[:8]), KEY)


def test_the_snapshot_of_another_log_is_refused() -> None:
    """Its producers have the same ids: a new batch would be confirmed and not be written."""
    snapshot = encode_producers({0: ProducerEntry(0, (ProducedBatch(0, 100, 101),), 1000)}, KEY)
    for other in (KEY._replace(partition=4), KEY._replace(topic_id=TopicId(UUID(int=8)))):
        with pytest.raises(CorruptMessage, match="it belongs to another log"):
            decode_producers(snapshot, other)


ENTRY = struct.pack(">qhiqiqiq", 7, 2, 7, 102, 2, 1000, -1, -1)
EARLIER = struct.pack(">qiqi", 8, 0, 99, 1)


@pytest.mark.parametrize(
    "body",
    [
        struct.pack(">i", 2) + ENTRY,
        struct.pack(">i", -1) + ENTRY,
        struct.pack(">i", 2**31 - 1) + ENTRY,
        struct.pack(">i", 1) + ENTRY[:-1],
        struct.pack(">i", 1) + ENTRY + b"\0\0",
        struct.pack(">i", 1) + ENTRY + struct.pack(">i", 3) + EARLIER,
        struct.pack(">i", 1) + ENTRY + struct.pack(">i", -5) + EARLIER,
        struct.pack(">i", 1) + ENTRY + struct.pack(">i", 1) + EARLIER,  # Of an unknown producer.
    ],
)
def test_numbers_of_entries_are_not_believed(body: bytes) -> None:
    """The checksum holds: the file is of another program, or made to do harm."""
    with pytest.raises(CorruptMessage, match="producer snapshot: "):
        decode_producers(b"\0\1" + struct.pack(">I", crc32c.crc32c(body)) + body, KEY)
