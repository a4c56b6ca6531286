"""How old records leave a log by themselves (docs/spec.md, «retention»)."""

from __future__ import annotations

import time

from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.spec.messages import Topic
from tests.spec.scene import EARLIEST, TOPIC_RESOURCE, Scene
from tests.spec.waiting import wait_for

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


def write(scene: Scene, topic: Topic, *minutes_ago: int, size: int = 1) -> None:
    """One batch of one record for each of these times."""
    now_ms = int(time.time() * 1000)
    for minutes in minutes_ago:
        record = SimpleRecord(None, b"x" * size, now_ms - minutes * MINUTE_MS)
        scene.produce_batch(topic, encode_batch([record]))


def keep_an_hour(scene: Scene, topic: Topic) -> None:
    """From now on: what is written bit by bit must not go bit by bit."""
    shorter = {"retention.ms": str(HOUR_MS)}
    assert scene.alter_configs(TOPIC_RESOURCE, topic.name, shorter).error_code == 0


def until_start(scene: Scene, topic: Topic, offset: int) -> None:
    wait_for(lambda: scene.offset(topic, EARLIEST) == offset, f"the log to begin at {offset}")


def test_retention_1_segment_is_deleted_by_its_newest_timestamp(scene: Scene) -> None:
    """A segment spans two hours here: the second one also has a record that is too old."""
    topic = scene.topic(segment_ms=str(2 * HOUR_MS))
    write(scene, topic, 600, 120, 30)
    keep_an_hour(scene, topic)
    until_start(scene, topic, 1)
    assert scene.offset(topic) == 3


def test_retention_2_log_without_records_keeps_its_end_offset(scene: Scene) -> None:
    topic = scene.topic(retention_ms=str(HOUR_MS), segment_ms=str(2 * HOUR_MS))
    member = scene.member(scene.group(), topic)
    write(scene, topic, 600, 300)
    until_start(scene, topic, 2)
    assert scene.offset(topic) == 2
    write(scene, topic, 0)
    assert scene.offset(topic) == 3
    assert member.take() == [(2, 2, 1)]


def test_retention_3_oldest_segments_of_a_too_large_log_are_deleted(scene: Scene) -> None:
    topic = scene.topic(segment_ms="1000", retention_bytes="15000")
    write(scene, topic, 40, 30, 20, size=10_000)
    until_start(scene, topic, 1)


def test_retention_4_changed_setting_applies_at_the_next_check(scene: Scene) -> None:
    topic = scene.topic(segment_ms="1000")
    write(scene, topic, 600, 300, 0)
    assert scene.offset(topic, EARLIEST) == 0
    keep_an_hour(scene, topic)
    until_start(scene, topic, 2)


def test_retention_5_compacted_topic_without_delete_policy_ignores_age(
    scene: Scene,
) -> None:
    """A second topic, created and written later, shows that the check took place."""
    configs = {"segment_ms": "1000", "retention_ms": str(HOUR_MS)}
    kept = scene.topic(cleanup_policy="compact", min_cleanable_dirty_ratio="1", **configs)
    now_ms = int(time.time() * 1000)
    for number, minutes in enumerate((600, 300, 0)):
        record = SimpleRecord(b"%d" % number, b"v", now_ms - minutes * MINUTE_MS)
        scene.produce_batch(kept, encode_batch([record]))
    other = scene.topic(**configs)
    write(scene, other, 600, 300, 0)
    until_start(scene, other, 2)
    assert scene.offset(kept, EARLIEST) == 0
