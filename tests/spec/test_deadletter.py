"""Records that failed for good are copied to another topic (docs/spec.md, «deadletter»)."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from sharegroup.wire.batches.records import SimpleRecord, decode_records, encode_batch
from tests.spec.member import Member
from tests.spec.messages import ACCEPT, GAP, REJECT, RELEASE
from tests.spec.peer import start_ours
from tests.spec.scene import BROKER_RESOURCE, TOPIC_RESOURCE, Scene
from tests.spec.waiting import wait_for

NOW_MS = int(time.time() * 1000) - 60_000
ALLOWED = {"errors_deadletterqueue_group_enable": "true"}
NOT_ALLOWED = {"errors.deadletterqueue.group.enable": "false"}
REJECTED = b"Offset rejected by client."
EXHAUSTED = b"Offset delivery count exceeded the threshold."


class Pair:
    """A topic, its dead-letter topic, and the one member of a group."""

    def __init__(
        self, scene: Scene, *, partitions: int = 1, dead_partitions: int = 1, **configs: str
    ) -> None:
        self.scene = scene
        self.source = scene.topic(partitions)
        self.dead = scene.topic(dead_partitions, name=f"dlq.{scene.new_name('topic')}", **ALLOWED)
        values = {"errors_deadletterqueue_topic_name": self.dead.name, **configs}
        self.member: Member = scene.member(scene.group(**values), self.source)
        self.member.until_assigned(partitions)

    def produce(self, *values: bytes, partition: int = 0) -> None:
        batch = encode_batch(
            [SimpleRecord(b"key", value, NOW_MS, [("trace", b"77")]) for value in values]
        )
        self.scene.produce_batch(self.source, batch, partition=partition)

    def letters(self, count: int, partition: int = 0) -> list[Any]:
        """The dead letters of a partition, when there are so many."""
        return wait_for(lambda: self.look(count, partition), f"{count} dead letters")

    def look(self, count: int, partition: int = 0) -> list[Any]:
        found = decode_records(self.scene.fetch_bytes(self.dead, 0, partition=partition))
        return found if len(found) >= count else []

    def next_letter_of(self, offset: int) -> bytes | None:
        """Reject one more record: the offset that the queue's only letter is of."""
        self.produce(b"next")
        assert self.member.take() == [(offset, offset, 1)]
        assert self.member.acknowledge([(offset, offset, REJECT)]).outcome == 0
        [letter] = self.letters(1)
        return headers(letter)["__dlq.errors.offset"]

    def lag(self, partition: int = 0) -> int:
        return self.scene.start_and_lag(self.member.group, self.source, partition)[1]


def headers(letter: Any) -> dict[str, bytes | None]:
    return dict(letter.headers)


def test_deadletter_1_letter_of_a_rejected_record_has_its_origin(scene: Scene) -> None:
    pair = Pair(scene)
    pair.produce(b"good", b"bad")
    pair.member.take(2)
    assert pair.member.acknowledge([(0, 1, ACCEPT, REJECT)]).outcome == 0
    [letter] = pair.letters(1)
    assert headers(letter) == {
        "__dlq.errors.topic": pair.source.name.encode(),
        "__dlq.errors.partition": b"0",
        "__dlq.errors.offset": b"1",
        "__dlq.errors.group": pair.member.group.encode(),
        "__dlq.errors.delivery.count": b"1",
        "__dlq.errors.message": REJECTED,
    }


def test_deadletter_2_letter_of_an_exhausted_record_has_reason_and_count(scene: Scene) -> None:
    pair = Pair(scene, share_delivery_count_limit="2")
    pair.produce(b"bad")
    for count in (1, 2):
        assert pair.member.take() == [(0, 0, count)]
        assert pair.member.acknowledge([(0, 0, RELEASE)]).outcome == 0
    [letter] = pair.letters(1)
    assert headers(letter)["__dlq.errors.message"] == EXHAUSTED
    assert headers(letter)["__dlq.errors.delivery.count"] == b"2"


def test_deadletter_3_record_is_not_copied_by_default(scene: Scene) -> None:
    pair = Pair(scene)
    pair.produce(b"secret")
    pair.member.take()
    assert pair.member.acknowledge([(0, 0, REJECT)]).outcome == 0
    [letter] = pair.letters(1)
    assert (letter.key, letter.value) == (None, None)


def test_deadletter_4_key_and_value_are_copied_if_configured(scene: Scene) -> None:
    """Ours copies the headers of the record, too."""
    pair = Pair(scene, errors_deadletterqueue_copy_record_enable="true")
    pair.produce(b"value")
    pair.member.take()
    assert pair.member.acknowledge([(0, 0, REJECT)]).outcome == 0
    [letter] = pair.letters(1)
    assert (letter.key, letter.value) == (b"key", b"value")
    assert headers(letter).get("trace") == {"ours": b"77", "kafka": None}[scene.kind]


def test_deadletter_5_gap_is_no_dead_letter(scene: Scene) -> None:
    pair = Pair(scene)
    pair.produce(b"a", b"b")
    pair.member.take(2)
    assert pair.member.acknowledge([(0, 1, GAP, REJECT)]).outcome == 0
    [letter] = pair.letters(1)
    assert headers(letter)["__dlq.errors.offset"] == b"1"


def test_deadletter_6_every_record_of_a_range_is_a_letter(scene: Scene) -> None:
    pair = Pair(scene, errors_deadletterqueue_copy_record_enable="true")
    pair.produce(*[b"%d" % number for number in range(5)])
    pair.member.take(5)
    assert pair.member.acknowledge([(0, 4, REJECT)]).outcome == 0
    letters = pair.letters(5)
    assert [letter.value for letter in letters] == [b"0", b"1", b"2", b"3", b"4"]
    assert [headers(letter)["__dlq.errors.offset"] for letter in letters] == [
        b"0",
        b"1",
        b"2",
        b"3",
        b"4",
    ]


def test_deadletter_7_start_offset_passes_a_record_after_its_copy_is_written(scene: Scene) -> None:
    pair = Pair(scene)
    pair.produce(b"a")
    pair.member.take()
    assert pair.member.acknowledge([(0, 0, REJECT)]).outcome == 0
    pair.letters(1)
    wait_for(lambda: pair.lag() == 0, "the record to be settled")
    assert pair.member.fetch(wait_ms=50).acquired == []


def test_deadletter_8_partition_follows_the_source(scene: Scene) -> None:
    pair = Pair(scene, partitions=3, dead_partitions=2)
    for partition in range(3):
        pair.produce(b"x", partition=partition)
    pair.member.take(3)
    acks = {partition: [(0, 0, REJECT)] for partition in pair.source.partitions()}
    assert set(pair.member.acknowledge(acks).errors.values()) == {0}
    even = [headers(letter)["__dlq.errors.partition"] for letter in pair.letters(2, partition=0)]
    odd = [headers(letter)["__dlq.errors.partition"] for letter in pair.letters(1, partition=1)]
    assert (sorted(even), odd) == ([b"0", b"2"], [b"1"])


def test_deadletter_9_without_a_topic_no_letters_are_written(scene: Scene) -> None:
    pair = Pair(scene, errors_deadletterqueue_topic_name="")
    pair.produce(b"a")
    pair.member.take()
    assert pair.member.acknowledge([(0, 0, REJECT)]).outcome == 0
    assert pair.lag() == 0
    assert scene.offset(pair.dead) == 0


@pytest.mark.parametrize("obstacle", ["not allowed", "not there", "prefix"])
def test_deadletter_10_queue_that_takes_no_letters(scene: Scene, obstacle: str) -> None:
    """Kafka gives the record up; ours keeps it until the queue takes it."""
    pair = Pair(scene)
    name = pair.dead.name
    if obstacle == "not allowed":
        key = "errors.deadletterqueue.group.enable"
        scene.alter_configs(TOPIC_RESOURCE, name, {key: "false"})
        wait_for(lambda: scene.configs(TOPIC_RESOURCE, name)[key] == "false", "the setting")
    elif obstacle == "not there":
        name = f"dlq.{scene.new_name('topic')}"
    else:
        name = scene.topic(**ALLOWED).name
    scene.alter_group(pair.member.group, errors_deadletterqueue_topic_name=name)
    pair.produce(b"a")
    pair.member.take()
    assert pair.member.acknowledge([(0, 0, REJECT)]).outcome == 0
    if scene.kind == "kafka":
        wait_for(lambda: pair.lag() == 0, "Kafka to give up")
        return
    pair.produce(b"b")
    assert pair.member.take() == [(1, 1, 1)], "the group goes on"
    assert pair.member.acknowledge([(1, 1, ACCEPT)]).outcome == 0
    assert pair.lag() == 1
    name = pair.dead.name
    scene.alter_configs(TOPIC_RESOURCE, name, {"errors.deadletterqueue.group.enable": "true"})
    scene.alter_group(pair.member.group, errors_deadletterqueue_topic_name=name)
    assert headers(pair.letters(1)[0])["__dlq.errors.offset"] == b"0"
    wait_for(lambda: pair.lag() == 0, "the record to be settled")


def test_deadletter_11_letters_are_of_now(scene: Scene) -> None:
    pair = Pair(scene)
    pair.produce(b"a")
    pair.member.take()
    assert pair.member.acknowledge([(0, 0, REJECT)]).outcome == 0
    [letter] = pair.letters(1)
    assert letter.timestamp != NOW_MS


def test_deadletter_12_topic_is_created_if_the_broker_permits_it(scene: Scene) -> None:
    key = "errors.deadletterqueue.auto.create.topics.enable"
    name = f"dlq.{scene.new_name('topic')}"
    pair = Pair(scene, errors_deadletterqueue_topic_name=name)
    assert scene.alter_configs(BROKER_RESOURCE, "", {key: "true"}).error_code == 0
    wait_for(lambda: scene.configs(BROKER_RESOURCE, "1")[key] == "true", "the setting")
    try:
        pair.produce(b"a")
        pair.member.take()
        assert pair.member.acknowledge([(0, 0, REJECT)]).outcome == 0
        wait_for(lambda: pair.lag() == 0, "the record to be settled")
    finally:
        assert scene.alter_configs(BROKER_RESOURCE, "", {key: "false"}).error_code == 0
    pair.dead = scene.known_topic(name, 1)
    assert headers(pair.letters(1)[0])["__dlq.errors.offset"] == b"0"
    configs = scene.configs(TOPIC_RESOURCE, name)
    assert configs["errors.deadletterqueue.group.enable"] == "true"
    assert configs["message.timestamp.type"] == "CreateTime"


def test_deadletter_13_queue_that_is_the_source(scene: Scene) -> None:
    """Kafka writes the letter to be read, rejected and written again; ours waits."""
    topic = scene.topic(name=f"dlq.{scene.new_name('topic')}", **ALLOWED)
    member = scene.member(scene.group(errors_deadletterqueue_topic_name=topic.name), topic)
    scene.produce(topic, 1)
    member.take()
    assert member.acknowledge([(0, 0, REJECT)]).outcome == 0
    if scene.kind == "kafka":
        assert member.take() == [(1, 1, 1)]
    else:
        assert member.fetch(wait_ms=200).acquired == []
        assert scene.start_and_lag(member.group, topic)[1] == 1


def test_deadletter_14_record_that_the_queue_is_too_small_for(scene: Scene) -> None:
    """It is left out, which ours says."""
    pair = Pair(scene, errors_deadletterqueue_copy_record_enable="true")
    small = {"max.message.bytes": "2000"}
    assert scene.alter_configs(TOPIC_RESOURCE, pair.dead.name, small).error_code == 0
    wait_for(
        lambda: scene.configs(TOPIC_RESOURCE, pair.dead.name)["max.message.bytes"] == "2000",
        "the smaller queue",
    )
    pair.produce(random.Random(7).randbytes(5000))
    pair.member.take()
    assert pair.member.acknowledge([(0, 0, REJECT)]).outcome == 0
    [letter] = pair.letters(1)
    assert (letter.key, letter.value) == (None, None)
    assert headers(letter)["__dlq.errors.offset"] == b"0"
    says_so = "sharegroup.dlq.not.copied" in headers(letter)
    assert says_so is {"ours": True, "kafka": False}[scene.kind]


def waiting(scene: Scene) -> Pair:
    """A pair of which the record at offset 0 was rejected, and its queue is not there."""
    pair = Pair(scene)
    nowhere = f"dlq.{scene.new_name('topic')}"
    scene.alter_group(pair.member.group, errors_deadletterqueue_topic_name=nowhere)
    pair.produce(b"a")
    pair.member.take()
    assert pair.member.acknowledge([(0, 0, REJECT)]).outcome == 0
    return pair


def test_deadletter_15_removed_topic_name_archives_waiting_records(scene: Scene) -> None:
    pair = waiting(scene)
    if scene.kind == "ours":
        assert pair.lag() == 1
    scene.alter_group(pair.member.group, errors_deadletterqueue_topic_name="")
    wait_for(lambda: pair.lag() == 0, "the record to be settled")
    scene.alter_group(pair.member.group, errors_deadletterqueue_topic_name=pair.dead.name)
    assert pair.next_letter_of(1) == b"1"


@pytest.mark.ours_only("Kafka's do not wait for so long")
def test_deadletter_16_waiting_letters_are_written_after_a_restart(
    scene: Scene, tmp_path: Path
) -> None:
    """No member connects after the restart."""
    with start_ours(tmp_path) as peer:
        with Scene(peer, scene.name) as before:
            pair = waiting(before)
            queue = {"errors_deadletterqueue_topic_name": pair.dead.name}
            before.alter_configs(TOPIC_RESOURCE, pair.dead.name, NOT_ALLOWED)
            before.alter_group(pair.member.group, **queue)
            assert pair.lag() == 1
        peer.restart()
        with Scene(peer, scene.name) as after:
            pair.scene = after
            assert after.offset(pair.dead) == 0
            allowed = dict.fromkeys(NOT_ALLOWED, "true")
            assert after.alter_configs(TOPIC_RESOURCE, pair.dead.name, allowed).error_code == 0
            [letter] = pair.letters(1)
            assert headers(letter)["__dlq.errors.offset"] == b"0"
            wait_for(lambda: pair.lag() == 0, "the record to be settled")


def test_deadletter_17_record_deleted_while_it_waits_has_no_letter(scene: Scene) -> None:
    pair = waiting(scene)
    pair.produce(b"b")
    scene.delete_records(pair.source, 1)
    assert pair.member.take() == [(1, 1, 1)]
    assert pair.member.acknowledge([(1, 1, ACCEPT)]).outcome == 0
    wait_for(lambda: pair.lag() == 0, "nothing to be left")
    scene.alter_group(pair.member.group, errors_deadletterqueue_topic_name=pair.dead.name)
    assert pair.next_letter_of(2) == b"2"
