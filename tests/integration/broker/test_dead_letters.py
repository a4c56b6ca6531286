"""Dead letters as the broker writes them: what they say, and what happens when it cannot."""

from __future__ import annotations

import asyncio
import random
from itertools import groupby
from pathlib import Path

import pytest
from crc32c import crc32c

from sharegroup.broker.share.dead_letter_records import ORIGINAL_HEADERS_MAX, ORIGINAL_RECORDS_MAX
from sharegroup.ids import TopicName
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.storage.disk.folders import folder_name
from sharegroup.wire.batches.batches import HEADER_BYTES, parse_header, scan
from sharegroup.wire.batches.compression import GZIP
from sharegroup.wire.batches.markers import encode_marker
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.integration.broker.dead_letter_scene import GROUP_KIND, Scene, played

GAP, ACCEPT, RELEASE, REJECT = (
    AcknowledgeType.GAP,
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
)


def test_rejected_record_is_copied_with_key_value_and_headers_and_then_settled(
    tmp_path: Path,
) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up()
        await scene.produce((b"k", b"v", [("trace", b"t1"), ("empty", None)]), (b"k2", b"v2", ()))
        assert await scene.take() == [(0, 1), (1, 1)]
        await scene.settle((0, REJECT), (1, ACCEPT))
        await scene.settles_up_to(2)
        [letter] = scene.letters()
        assert (letter.key, letter.value) == (b"k", b"v")
        assert letter.headers == [
            ("trace", b"t1"),
            ("empty", None),
            ("__dlq.errors.topic", b"orders"),
            ("__dlq.errors.partition", b"0"),
            ("__dlq.errors.offset", b"0"),
            ("__dlq.errors.group", b"g"),
            ("__dlq.errors.delivery.count", b"1"),
            ("__dlq.errors.message", b"Offset rejected by client."),
        ]
        assert letter.timestamp == scene.broker.clock.wall_ms()

    played(scenario, tmp_path)


def test_letter_of_an_exhausted_record_has_its_delivery_count(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up(share_delivery_count_limit="2")
        await scene.produce_values(1)
        for delivery in (1, 2):
            assert await scene.take() == [(0, delivery)]
            await scene.settle((0, RELEASE))
        await scene.settles_up_to(1)
        [letter] = scene.letters()
        headers = dict(letter.headers)
        assert headers["__dlq.errors.delivery.count"] == b"2"
        assert headers["__dlq.errors.message"] == b"Offset delivery count exceeded the threshold."

    played(scenario, tmp_path)


def test_record_whose_last_lock_expired_is_copied(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up(share_delivery_count_limit="2", share_record_lock_duration_ms="15000")
        await scene.produce_values(1)
        for delivery in (1, 2):
            assert await scene.take() == [(0, delivery)]
            scene.broker.clock.advance(15)
        await scene.settles_up_to(1)
        assert scene.origins() == [0]

    played(scenario, tmp_path)


def test_only_finally_failed_records_are_copied(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up()
        await scene.produce_values(4)
        await scene.take()
        await scene.settle((0, ACCEPT), (1, GAP), (2, RELEASE), (3, REJECT))
        assert await scene.take() == [(2, 2)]
        await scene.settle((2, ACCEPT))
        await scene.settles_up_to(4)
        assert scene.origins() == [3]

    played(scenario, tmp_path)


def test_letter_without_record_copy_has_only_the_position_of_its_record(
    tmp_path: Path,
) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up(errors_deadletterqueue_copy_record_enable="false")
        await scene.produce((b"k", b"v", [("trace", b"t1")]))
        await scene.take()
        await scene.reject(0)
        await scene.settles_up_to(1)
        [letter] = scene.letters()
        assert (letter.key, letter.value) == (None, None)
        assert [name for name, _ in letter.headers] == [
            "__dlq.errors.topic",
            "__dlq.errors.partition",
            "__dlq.errors.offset",
            "__dlq.errors.group",
            "__dlq.errors.delivery.count",
            "__dlq.errors.message",
        ]

    played(scenario, tmp_path)


def test_dead_letter_topic_is_made_with_kafkas_settings(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up()
        await scene.produce_values(1)
        await scene.take()
        await scene.reject(0)
        await scene.settles_up_to(1)
        topic = scene.broker.running.parts.topics.catalog.topic(TopicName("dlq.g"))
        assert topic.partition_count == 3
        assert topic.settings == {
            "errors.deadletterqueue.group.enable": "true",
            "message.timestamp.type": "CreateTime",
        }

    played(scenario, tmp_path, num_partitions="3")


def test_letter_partition_is_the_partition_of_its_record_modulo_the_count(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        scene.member.partitions = 3
        assert await scene.broker.create_topic("orders", 3) == 0
        await scene.set_up()
        for partition in range(3):
            batch = encode_batch([SimpleRecord(None, b"v", 1)])
            assert (await scene.broker.produce("orders", partition, batch))[0] == 0
        assert len(await scene.take()) == 3
        acks = {partition: [(0, REJECT)] for partition in range(3)}
        assert await scene.member.acknowledge(scene.broker, acks) == {0: 0, 1: 0, 2: 0}
        await scene.until(
            lambda: len(scene.letters()) + len(scene.letters(partition=1)) == 3, "three letters"
        )
        found = [
            [
                dict(letter.headers)["__dlq.errors.partition"]
                for letter in scene.letters(partition=n)
            ]
            for n in (0, 1)
        ]
        assert [sorted(batch) for batch in found] == [[b"0", b"2"], [b"1"]]

    played(scenario, tmp_path, num_partitions="2")


def test_letters_are_written_in_order_in_batches_that_the_topic_accepts(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up(auto_create=False)
        await scene.make_queue(max_message_bytes="5000")
        await scene.produce_values(100, size=300)
        await scene.take()
        await scene.reject(*range(100))
        await scene.settles_up_to(100)
        assert scene.origins() == list(range(100))
        sizes = [header.size for header in scene.batch_headers()]
        assert max(sizes) <= 5_000
        assert len(sizes) < 15

    played(scenario, tmp_path)


def test_too_large_record_is_compressed_or_left_out_of_its_letter(
    tmp_path: Path,
) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up(auto_create=False)
        await scene.make_queue(max_message_bytes="1000")
        noise = random.Random(1).randbytes(2_000)
        await scene.produce(
            (b"k", b"x" * 2_000, ()), (b"k", noise, [("trace", b"t")]), (b"k", b"small", ())
        )
        await scene.take()
        await scene.reject(0, 1, 2)
        await scene.settles_up_to(3)
        large, left_out, small = scene.letters()
        assert (large.key, large.value) == (b"k", b"x" * 2_000)
        assert (left_out.key, left_out.value) == (None, None)
        assert "trace" not in dict(left_out.headers)
        assert dict(left_out.headers)["sharegroup.dlq.not.copied"] == (
            b"the record is larger than max.message.bytes=1000 of the dead-letter topic"
        )
        assert small.value == b"small"
        assert max([header.size for header in scene.batch_headers()]) <= 1_000
        counts = scene.counts()
        assert (counts.record_count, counts.not_copied_count) == (3, 1)

    played(scenario, tmp_path)


def test_letter_of_a_letter_has_its_own_dead_letter_headers(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up()
        old = [
            ("__dlq.errors.topic", b"elsewhere"),
            ("sharegroup.dlq.not.copied", b"too large"),
            ("trace", b"t1"),
        ]
        await scene.produce((None, b"v", old))
        await scene.take()
        await scene.reject(0)
        await scene.settles_up_to(1)
        [letter] = scene.letters()
        names = [name for name, _ in letter.headers]
        assert names[:2] == ["trace", "__dlq.errors.topic"]
        assert len(names) == len(set(names)) == 7
        assert dict(letter.headers)["__dlq.errors.topic"] == b"orders"

    played(scenario, tmp_path)


@pytest.mark.parametrize("codec", range(5))
def test_records_of_compressed_batches_are_copied(tmp_path: Path, codec: int) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up()
        await scene.produce(*((None, b"value %d" % n, ()) for n in range(20)), codec=codec)
        await scene.take()
        await scene.settle(*((n, REJECT if n in (3, 17) else ACCEPT) for n in range(20)))
        await scene.settles_up_to(20)
        assert [letter.value for letter in scene.letters()] == [b"value 3", b"value 17"]

    played(scenario, tmp_path)


def test_letter_has_the_codec_of_its_topic(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up()
        await scene.make_queue(compression_type="gzip")
        await scene.produce((b"k", b"v", ()))
        assert await scene.take() == [(0, 1)]
        await scene.settle((0, REJECT))
        await scene.settles_up_to(1)
        [letter] = scene.letters()
        assert (letter.key, letter.value) == (b"k", b"v")
        topics = scene.broker.running.parts.topics
        queue = topics.named(TopicName("dlq.g"), 0)[1]
        assert parse_header(queue.read(0, bytes_max=1 << 20)).codec == GZIP

    played(scenario, tmp_path)


def test_letter_has_the_brokers_time_where_its_topic_wants_that(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up(auto_create=False)
        await scene.make_queue(message_timestamp_type="LogAppendTime")
        await scene.produce_values(1)
        await scene.take()
        await scene.reject(0)
        await scene.settles_up_to(1)
        [letter] = scene.letters()
        assert letter.timestamp == scene.broker.clock.wall_ms()
        [header] = scene.batch_headers()
        assert header.has_log_append_time

    played(scenario, tmp_path)


def test_only_committed_records_have_letters_with_read_committed(tmp_path: Path) -> None:
    """Two transactions of a record and a marker: 0 and 1 are committed, 2 and 3 aborted."""

    async def scenario(scene: Scene) -> None:
        await scene.set_up(share_isolation_level="read_committed")
        topics = scene.broker.running.parts.topics
        _, log = topics.named(TopicName("orders"), 0)
        for producer_id, is_commit in ((900, True), (901, False)):
            record = encode_batch(
                [SimpleRecord(None, b"of %d" % producer_id, 1)],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
            )
            await log.append(record, now_ms=1)
            marker = encode_marker(
                is_commit=is_commit, producer_id=producer_id, producer_epoch=0, timestamp=1
            )
            await log.append(marker, now_ms=1)
        await scene.produce_values(1)
        taken = [offset for offset, _ in await scene.take()]
        assert taken == [0, 4]
        await scene.reject(*taken)
        await scene.settles_up_to(5)
        assert scene.origins() == [0, 4]
        assert scene.letters()[0].value == b"of 900"

    played(scenario, tmp_path)


@pytest.mark.parametrize("name", ["__dead", "with blank", "..", "a/b", "x" * 250])
def test_invalid_dead_letter_topic_name_is_refused(tmp_path: Path, name: str) -> None:
    async def scenario(scene: Scene) -> None:
        with pytest.raises(AssertionError, match=r"errors\.deadletterqueue\.topic\.name"):
            await scene.alter(GROUP_KIND, "g", errors_deadletterqueue_topic_name=name)

    played(scenario, tmp_path)


@pytest.mark.parametrize("codec", range(5))
def test_record_that_is_no_record_has_a_letter_all_the_same(tmp_path: Path, codec: int) -> None:
    """Batches whose checksum holds and whose records are noise: the broker takes them unread."""

    async def scenario(scene: Scene) -> None:
        await scene.set_up()
        chance = random.Random(codec)
        for number in range(10):
            batch = encode_batch([SimpleRecord(b"key", b"%d" % number * 50, 1)] * 2, codec=codec)
            for _ in range(3):
                batch[chance.randrange(HEADER_BYTES, len(batch))] = chance.randrange(256)
            crc_at, checked_at = 17, 21
            batch[crc_at:checked_at] = crc32c(bytes(batch[checked_at:])).to_bytes(4, "big")
            assert (await scene.broker.produce("orders", 0, batch))[0] == 0
        taken = await scene.take_undecoded(20)
        await scene.reject(*taken)
        await scene.settles_up_to(20)
        assert scene.origins() == list(range(20))
        assert scene.counts().not_copied_count > 0

    played(scenario, tmp_path)


def test_record_of_a_batch_of_too_many_records_is_not_copied(tmp_path: Path) -> None:
    """To decode its batch for one letter would hold the event loop."""

    async def scenario(scene: Scene) -> None:
        await scene.set_up()
        parts = scene.broker.running.parts
        parts.share_partitions.batch_checks.jobs = None
        count = ORIGINAL_RECORDS_MAX + 1
        batch = encode_batch([SimpleRecord(b"k", b"v", 1)] * count, codec=4)
        assert (await scene.broker.produce("orders", 0, batch))[0] == 0
        await scene.take_undecoded(2_000)
        await scene.reject(0)
        await scene.settles_up_to(1)
        assert scene.counts().not_copied_count == 1

    played(scenario, tmp_path)


def test_record_with_very_many_headers_is_not_copied(tmp_path: Path) -> None:
    """The attack: a batch of 16 KB with 8 million headers takes a second to decode, and 1 GB."""

    async def scenario(scene: Scene) -> None:
        await scene.set_up()
        headers = [("", None)] * (ORIGINAL_HEADERS_MAX + 1)
        batch = encode_batch([SimpleRecord(b"k", b"v", 1, headers)], codec=4)
        assert (await scene.broker.produce("orders", 0, batch))[0] == 0
        await scene.take_undecoded(1)
        await scene.reject(0)
        await scene.settles_up_to(1)
        assert scene.counts().not_copied_count == 1

    played(scenario, tmp_path)


def test_originals_are_decompressed_outside_of_the_event_loop(tmp_path: Path) -> None:
    """A batch of 16 MiB, decompressed, held the loop for 15 ms and more for each letter batch."""

    async def scenario(scene: Scene) -> None:
        await scene.set_up()
        jobs = scene.broker.running.parts.record_jobs
        batch = encode_batch([SimpleRecord(b"k", bytes(12 << 20), 1)], codec=4)
        assert (await scene.broker.produce("orders", 0, batch))[0] == 0
        await scene.take_undecoded(1)
        await scene.reject(0)
        await scene.settles_up_to(1)
        assert scene.counts().not_copied_count == 0
        assert jobs.job_count == 1

    played(scenario, tmp_path)


def test_many_letters_are_written_in_portions(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up()
        await scene.produce_values(1_200)
        await scene.take(1_200)
        await scene.reject(*range(1_200))
        await scene.settles_up_to(1_200)
        assert scene.counts().write_count == 3
        assert [header.record_count for header in scene.batch_headers()] == [500, 500, 200]

    played(scenario, tmp_path)


def test_share_partitions_with_many_letters_take_turns(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        scene.member.partitions = 2
        assert await scene.broker.create_topic("orders", 2) == 0
        await scene.set_up()
        batch = encode_batch([SimpleRecord(None, b"v", 1)] * 1_200)
        for partition in (0, 1):
            assert (await scene.broker.produce("orders", partition, batch))[0] == 0
        assert len(await scene.take(2_400)) == 2_400
        acks = {partition: [(n, REJECT) for n in range(1_200)] for partition in (0, 1)}
        assert await scene.member.acknowledge(scene.broker, acks) == {0: 0, 1: 0}
        await scene.until(lambda: scene.dead_letters.pending_count == 0, "all letters")
        turns = [
            (partition, len(list(letters)))
            for partition, letters in groupby(
                dict(letter.headers)["__dlq.errors.partition"] for letter in scene.letters()
            )
        ]
        assert turns == [(which, count) for count in (500, 500, 200) for which in (b"0", b"1")]

    played(scenario, tmp_path)


def test_unreadable_record_has_a_letter_with_that_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk damages the second of three batches, and the broker is restarted."""

    async def main() -> None:
        scene = await Scene.start(None, str(tmp_path))
        await scene.set_up(share_delivery_count_limit="2")
        for _ in range(3):
            await scene.produce_values(1)
        await scene.broker.running.directory.checkpoint()
        folder = folder_name((await scene.live()).log.key)
        await scene.broker.crash()
        damage_batch(tmp_path / folder / "00000000000000000000.log", number=1)
        scene = await Scene.start(None, str(tmp_path))
        await scene.join()
        assert await scene.take() == [(0, 1), (2, 1)]
        await scene.settle((0, ACCEPT), (2, REJECT))
        await scene.take()
        await scene.settles_up_to(3)
        unreadable, rejected = sorted(
            scene.letters(), key=lambda letter: dict(letter.headers)["__dlq.errors.offset"] or b""
        )
        headers = dict(unreadable.headers)
        assert (unreadable.key, unreadable.value) == (None, None)
        assert headers["__dlq.errors.message"] == b"Offset could not be read from the log."
        assert headers["__dlq.errors.delivery.count"] == b"2"
        assert b"does not match its checksum" in (headers["sharegroup.dlq.not.copied"] or b"")
        assert rejected.value == b"0000000000"
        checks = scene.broker.running.parts.share_partitions.batch_checks
        assert checks.archived_count == 1
        await scene.broker.stop()

    asyncio.run(main())
    (line,) = [text for text in caplog.messages if "event=records_unreadable" in text]
    assert "first=1 end=2 reason='the log could not read them in 2 deliveries'" in line


def damage_batch(path: Path, *, number: int) -> None:
    """Turn one bit in the last byte of a batch."""
    data = bytearray(path.read_bytes())
    position, header = list(scan(data))[number]
    data[position + header.size - 1] ^= 1
    path.write_bytes(data)


MARKED_TOPICS = (
    {},
    {"compression_type": "zstd"},
    {"message_timestamp_type": "LogAppendTime"},
)


@pytest.mark.parametrize("topic", MARKED_TOPICS, ids=lambda topic: "-".join(topic) or "plain")
def test_letters_keep_their_mark_and_are_no_producers_batches(
    tmp_path: Path, topic: dict[str, str]
) -> None:
    """ADR 0036: in each kind of topic, after a restart, and after compaction was turned on."""

    async def scenario(scene: Scene) -> None:
        await scene.set_up()
        await scene.make_queue(**topic)
        await scene.produce((b"k", b"v" * 500, ()), (b"k", b"w" * 500, ()))
        await scene.take()
        for offset in (0, 1):
            await scene.reject(offset)
            await scene.settles_up_to(offset + 1)
        assert [header.is_letter for header in scene.batch_headers()] == [True, True]
        await scene.broker.stop()
        scene.broker = (await Scene.start(None, str(tmp_path))).broker
        assert [header.is_letter for header in scene.batch_headers()] == [True, True]
        assert scene.origins() == [0, 1]
        topics = scene.broker.running.parts.topics
        _, log = topics.named(TopicName("dlq.g"), 0)
        assert list(log.producers.items()) == []
        assert (topics.producer_ids_seen, log.last_stable_offset) == (0, 2)
        batch = encode_batch([SimpleRecord(b"k", b"v", 1)])
        assert await scene.broker.produce("dlq.g", 0, batch) == (0, 2)
        assert [header.is_letter for header in scene.batch_headers()] == [True, True, False]

    played(scenario, tmp_path)
