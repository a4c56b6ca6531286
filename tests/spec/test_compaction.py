"""What compaction takes from a log, and what it leaves (docs/spec.md, «compaction»)."""

from __future__ import annotations

import time
from datetime import timedelta

from kio.schema.delete_records.v2 import request as delete_records

from sharegroup.wire.batches.records import SimpleRecord, decode_records, encode_batch
from tests.spec.compacted import Compacted
from tests.spec.scene import EARLIEST, Scene
from tests.spec.transactions import Transaction

INVALID_RECORD = 87
AHEAD = -1
"""Minutes ago: a little later than now."""


def test_compaction_1_newest_record_of_each_key_keeps_its_offset(scene: Scene) -> None:
    log = Compacted(scene)
    for number, key in enumerate("abab"):
        log.write(key, b"%d" % number)
    log.write("c")
    log.until_left(2, 3, 4)
    for offset, key, value in ((2, b"a", b"2"), (3, b"b", b"3")):
        [first, *_] = decode_records(scene.fetch_bytes(log.topic, offset))
        assert (first.offset, first.key, first.value) == (offset, key, value)


def test_compaction_2_tombstone_is_removed_after_delete_retention_ms(scene: Scene) -> None:
    """The time begins at the first pass that reads the tombstone; a later pass removes it."""
    log = Compacted(scene, delete_retention_ms="1")
    log.write("a")
    log.write("a", value=None)
    log.write("b")
    log.write("c")
    log.until_left(1, 2, 3)
    log.write("d")
    log.write("e")
    log.until_left(2, 3, 4, 5)


def test_compaction_3_young_records_stay_and_hide_nothing(scene: Scene) -> None:
    log = Compacted(scene, min_compaction_lag_ms="3600000")
    for minutes in (600, 500, 20):
        log.write("a", minutes_ago=minutes)
    log.write("b")
    log.until_left(1, 2, 3)


def test_compaction_4_active_segment_is_kept_and_replaces_no_older_record(scene: Scene) -> None:
    log = Compacted(scene)
    for _ in range(3):
        log.write("a")
    log.until_left(1, 2)


def test_compaction_5_open_transaction_and_later_records_replace_nothing(scene: Scene) -> None:
    log = Compacted(scene)
    log.write("a")
    log.write("a")
    transaction = Transaction(scene, log.topic)
    transaction.write(1, key=b"a")
    log.write("a", minutes_ago=AHEAD)
    log.write("b")
    log.until_left(1, 2, 3, 4)
    transaction.commit()


def test_compaction_6_aborted_records_are_removed_and_replace_nothing(scene: Scene) -> None:
    """Offset 2 is the transaction's marker."""
    log = Compacted(scene)
    log.write("a", b"good")
    transaction = Transaction(scene, log.topic)
    transaction.write(1, key=b"a")
    transaction.abort()
    log.write("b", minutes_ago=AHEAD)
    log.write("c")
    log.until_left(0, 3, 4)
    [first, *_] = decode_records(scene.fetch_bytes(log.topic, 0))
    assert (first.key, first.value) == (b"a", b"good")


def test_compaction_7_record_without_a_key_is_refused(scene: Scene) -> None:
    """And the batch that it is in."""
    log = Compacted(scene)
    log.write("a")
    now_ms = int(time.time() * 1000)
    batch = encode_batch([SimpleRecord(b"b", b"v", now_ms), SimpleRecord(None, b"v", now_ms)])
    answer = scene.produced(log.topic, batch)
    assert (answer.error_code, scene.offset(log.topic)) == (INVALID_RECORD, 1)


def test_compaction_8_delete_records_is_allowed_with_the_delete_policy(
    scene: Scene,
) -> None:
    topic = scene.topic(cleanup_policy="compact,delete")
    now_ms = int(time.time() * 1000)
    batch = encode_batch([SimpleRecord(key, b"v", now_ms) for key in (b"a", b"b")])
    scene.produce_batch(topic, batch)
    partition = delete_records.DeleteRecordsPartition(partition_index=0, offset=1)
    request = delete_records.DeleteRecordsRequest(
        topics=(delete_records.DeleteRecordsTopic(name=topic.name, partitions=(partition,)),),
        timeout=timedelta(seconds=10),
    )
    [answer] = scene.ask(request).topics[0].partitions
    assert (answer.error_code, answer.low_watermark) == (0, 1)
    assert scene.offset(topic, EARLIEST) == 1
