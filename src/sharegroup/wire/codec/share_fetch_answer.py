"""The response to a share fetch, encoded by hand because it is sent once for each record batch.

Versions 1 and 2 have the same bytes. A test compares them with those of kio's classes, which take
four times as long. In order:

    size int32, correlation id int32, no tags
    throttle time int32, error int16, no message, duration of locks int32
    topics      id 16 bytes
      partitions   index int32, error int16, message
                   acknowledgement's error int16, its message
                   leader int32, its epoch int32, no tags
                   records
                   acquired: first offset int64, last offset int64, delivery count int16, no tags
                   no tags, or tag 10000 with the batches (ADR 0059):
                     first offset int64, end offset int64, size int32, flags int8, no tags
      no tags
    nodes       id int32, host, port int32, no rack, no tags
    no tags

A count, or a length of text or bytes, is a varint that is one more; 0 is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import NamedTuple

from sharegroup.ids import LEADER_EPOCH, TopicId
from sharegroup.protocol_enums import BATCHES_TAG
from sharegroup.steps import STEP_ELEMENTS, Steps
from sharegroup.wire.codec.encoder import Chunk
from sharegroup.wire.varints import uvarint

_size = Struct(">i").pack
_head = Struct(">iBihBi").pack
_error = Struct(">ih").pack
_ack_error = Struct(">h").pack
_leader = Struct(">iiB").pack
_acquired = Struct(">qqhB").pack
_batch = Struct(">qqibB").pack
_no_errors = Struct(">ihBhBiiB").pack


Batches = Sequence[tuple[int, int, int, int]]
"""Log batches as (first offset, end offset, size, flags of `BatchFlag`)."""


class PartitionAnswer(NamedTuple):
    """The response for one partition; ``acquired`` are (first, end, delivery count)."""

    partition: int
    records: Chunk = b""
    acquired: Sequence[tuple[int, int, int]] = ()
    error_code: int = 0
    error_message: str | None = None
    ack_error_code: int = 0
    ack_error_message: str | None = None
    leader_id: int = 0
    batches: Batches | None = None
    """The batches of an acquisition without records, in place of ``records``."""


class LeaderEndpoint(NamedTuple):
    """The address of a partition leader named in the response."""

    node_id: int
    host: str
    port: int


def share_fetch_frame(
    correlation_id: int,
    topics: Mapping[TopicId, Sequence[PartitionAnswer]],
    *,
    lock_ms: int,
    throttle_ms: int = 0,
    endpoint: LeaderEndpoint | None,
) -> Steps[list[Chunk]]:
    """Return the frame for ``writelines``; records are not copied."""
    chunks: list[Chunk] = []
    small = [_head(correlation_id, 0, throttle_ms, 0, 0, lock_ms), uvarint(len(topics) + 1)]
    count = 0
    for topic_id, answers in topics.items():
        small += (topic_id.bytes, uvarint(len(answers) + 1))
        for answer in answers:
            small += (_before_records(answer), uvarint(len(answer.records) + 1))
            if answer.records:
                chunks += (b"".join(small), answer.records)
                small = []
            _add_acquired(small, answer.acquired, answer.batches)
            count += 1
            if count % STEP_ELEMENTS == 0:
                chunks.append(b"".join(small))  # Or the last step would join all small pieces.
                small = []
                yield
        small.append(b"\0")
    return _ended(chunks, small, endpoint)


def _ended(chunks: list[Chunk], small: list[bytes], endpoint: LeaderEndpoint | None) -> list[Chunk]:
    """Return the chunks with the end of the frame appended and its size prepended."""
    small.append(b"\1\0" if endpoint is None else _nodes(endpoint))
    chunks.append(b"".join(small))
    # Only here, because the records of all partitions count; the copy is of the small first chunk.
    chunks[0] = _size(sum(map(len, chunks))) + chunks[0]
    return chunks


def _before_records(answer: PartitionAnswer) -> bytes:
    partition, _, _, error_code, message, ack_error_code, ack_message, leader_id, _ = answer
    if message is ack_message is None:
        # The usual partition has no texts, so all fields have a fixed size: one call of `struct`.
        return _no_errors(partition, error_code, 0, ack_error_code, 0, leader_id, LEADER_EPOCH, 0)
    return b"".join(
        (
            _error(partition, error_code),
            _text(message),
            _ack_error(ack_error_code),
            _text(ack_message),
            _leader(leader_id, LEADER_EPOCH, 0),
        )
    )


def _add_acquired(
    small: list[bytes], acquired: Iterable[tuple[int, int, int]], batches: Batches | None
) -> None:
    ranges = [_acquired(first, end - 1, count, 0) for first, end, count in acquired]
    tags = b"\0" if batches is None else _tagged(batches)
    small += (uvarint(len(ranges) + 1), *ranges, tags)


def _tagged(batches: Batches) -> bytes:
    """Return the tagged fields of a partition with its batches."""
    structs = b"".join([_batch(*batch, 0) for batch in batches])
    count = uvarint(len(batches) + 1)
    size = uvarint(len(count) + len(structs))
    return b"".join((b"\1", uvarint(BATCHES_TAG), size, count, structs))


def _nodes(endpoint: LeaderEndpoint) -> bytes:
    node_id, host, port = endpoint
    return b"".join((b"\2", _size(node_id), _text(host), _size(port), b"\0\0\0"))


def _text(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    encoded = text.encode()
    return uvarint(len(encoded) + 1) + encoded
