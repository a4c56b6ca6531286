"""What a topic's settings do to produced batches (docs/spec.md, «write»)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from sharegroup.wire.batches.batches import parse_header
from sharegroup.wire.batches.compression import CODECS
from sharegroup.wire.batches.records import SimpleRecord, decode_records, encode_batch
from tests.spec.messages import Topic
from tests.spec.scene import Scene
from tests.spec.waiting import wait_for

UNKNOWN_TOPIC, NOT_LEADER = 3, 6
MESSAGE_TOO_LARGE, INVALID_TIMESTAMP, INVALID_RECORD = 10, 32, 87
MINUTE_MS = 60_000


def now_ms() -> int:
    return int(time.time() * 1000)


def records(*ages_ms: int, value: bytes = b"some value " * 20) -> list[SimpleRecord]:
    """A record of each age, all with the same key."""
    now = now_ms()
    return [SimpleRecord(b"k", value, now - age) for age in ages_ms]


def refused(scene: Scene, topic: Topic, batch: bytearray) -> tuple[int, list[int]]:
    """The error code for a batch, and the positions of the records that it names."""

    def attempt() -> Any:
        answer = scene.produced(topic, batch)
        return None if answer.error_code in {UNKNOWN_TOPIC, NOT_LEADER} else answer

    answer = wait_for(attempt, f"{topic.name} to be led")
    assert answer.base_offset == -1
    assert scene.offset(topic) == 0
    return int(answer.error_code), [error.batch_index for error in answer.record_errors]


@pytest.mark.parametrize("codec", CODECS)
def test_write_1_batch_is_stored_in_the_codec_of_its_topic(scene: Scene, codec: str) -> None:
    topic = scene.topic(compression_type="uncompressed" if codec == "none" else codec)
    for sent in CODECS.values():
        batch = encode_batch(records(*range(50)), codec=sent)
        offset = scene.produce_batch(topic, batch)
        stored = scene.fetch_bytes(topic, offset)
        assert parse_header(stored).codec == CODECS[codec]
        for before, after in zip(decode_records(batch), decode_records(stored), strict=True):
            assert (before.timestamp, before.key, before.value) == (
                after.timestamp,
                after.key,
                after.value,
            )


def test_write_2_compression_of_the_producer_is_kept_by_default(scene: Scene) -> None:
    topic = scene.topic()
    for codec in CODECS.values():
        batch = encode_batch(records(1, 2), codec=codec)
        stored = scene.fetch_bytes(topic, scene.produce_batch(topic, batch))
        assert stored[61 : len(batch)] == batch[61:]


def test_write_3_size_counts_as_it_is_stored(scene: Scene) -> None:
    topic = scene.topic(compression_type="uncompressed", max_message_bytes="2000")
    batch = encode_batch(records(*range(50)), codec=CODECS["zstd"])
    assert len(batch) < 2_000
    assert refused(scene, topic, batch)[0] == MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [CODECS["none"], CODECS["gzip"]])
def test_write_4_records_without_a_key_are_named(scene: Scene, codec: int) -> None:
    topic = scene.topic(cleanup_policy="compact")
    keys = (b"k", None, b"k", None)
    batch = encode_batch([SimpleRecord(key, b"v", now_ms()) for key in keys], codec=codec)
    assert refused(scene, topic, batch) == (INVALID_RECORD, [1, 3])


def test_write_5_records_out_of_time_are_named(scene: Scene) -> None:
    limits = {"message_timestamp_before_max_ms": "60000", "message_timestamp_after_max_ms": "60000"}
    topic = scene.topic(**limits)
    old, new = 2 * MINUTE_MS, -2 * MINUTE_MS
    batch = encode_batch(records(0, old, 0, new))
    assert refused(scene, topic, batch) == (INVALID_TIMESTAMP, [1, 3])
    assert refused(scene, topic, encode_batch(records(0, old, 0))) == (INVALID_TIMESTAMP, [1])
    scene.produce_batch(topic, encode_batch([SimpleRecord(b"k", b"v", -1)]))


def test_write_6_append_time_replaces_every_timestamp(scene: Scene) -> None:
    topic = scene.topic(message_timestamp_type="LogAppendTime", compression_type="lz4")
    began = now_ms()
    batch = encode_batch(records(365 * 24 * 60 * MINUTE_MS, -365 * 24 * 60 * MINUTE_MS))
    offset = scene.produce_batch(topic, batch)
    stored = scene.fetch_bytes(topic, offset)
    [timestamp] = {record.timestamp for record in decode_records(stored)}
    assert timestamp is not None
    assert began <= timestamp <= now_ms()
    assert parse_header(stored).has_log_append_time


def test_write_7_size_of_a_compressed_record_is_limited(scene: Scene) -> None:
    topic = scene.topic(max_decompressed_message_bytes="1000")
    large = records(0, value=b"x" * 1_001)
    code, _ = refused(scene, topic, encode_batch(large, codec=CODECS["zstd"]))
    assert code == INVALID_RECORD
    scene.produce_batch(topic, encode_batch(large))
    scene.produce_batch(topic, encode_batch(records(0), codec=CODECS["zstd"]))


def test_write_8_min_insync_replicas_needs_no_more_replicas_than_there_are(scene: Scene) -> None:
    topic = scene.topic(min_insync_replicas="3")
    scene.produce_batch(topic, encode_batch(records(0)))
