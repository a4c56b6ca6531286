"""Frames, versions, and the requests below the share groups (docs/spec.md, «wire»)."""

from __future__ import annotations

import struct
import time
from typing import Any
from uuid import UUID

import pytest
from crc32c import crc32c
from kio.schema.api_versions.v4 import request as api_versions
from kio.schema.create_topics.v7 import request as create_topics
from kio.schema.delete_records.v2 import request as delete_records
from kio.schema.describe_producers.v0 import request as describe_producers
from kio.schema.fetch.v12 import request as fetch
from kio.schema.init_producer_id.v5 import request as init_producer_id
from kio.schema.list_offsets.v7 import request as list_offsets
from kio.schema.metadata.v13 import request as metadata
from kio.schema.produce.v12 import request as produce

from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from sharegroup.wire.codec.encoder import encode_request
from tests.spec.messages import IMPOSSIBLE_NAMES, Topic, milliseconds
from tests.spec.scene import EARLIEST, LATEST, TIMEOUT, Scene
from tests.spec.waiting import wait_for

ASK_VERSIONS = api_versions.ApiVersionsRequest(
    client_software_name="spec", client_software_version="1"
)
CORRUPT, UNSUPPORTED_VERSION, UNKNOWN_PARTITION, OUT_OF_RANGE = 2, 35, 3, 1
POLICY_VIOLATION, ALREADY_EXISTS, INVALID_TOPIC = 44, 36, 17
INVALID_RECORD, UNSUPPORTED_COMPRESSION = 87, 76

SHARE_VERSIONS = {
    76: (1, 1),
    77: (1, 1),
    78: (1, 2),
    79: (1, 2),
    90: (0, 1),
    91: (0, 0),
    92: (0, 0),
}


def a_batch(*values: bytes, **fields: Any) -> bytearray:
    now = int(time.time() * 1000)
    return encode_batch([SimpleRecord(None, value, now) for value in values], **fields)


def plain_fetch(topic: Topic, offset: int, **fields: Any) -> Any:
    """A fetch without a session of one partition."""
    partition = fetch.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    values = {
        "replica_id": -1,
        "max_wait": milliseconds(0),
        "min_bytes": 1,
        "topics": (fetch.FetchTopic(topic=topic.name, partitions=(partition,)),),
        "forgotten_topics_data": (),
    }
    return fetch.FetchRequest(**(values | fields))


def test_wire_1_versions_of_the_share_requests(scene: Scene) -> None:
    served = {
        key.api_key: (key.min_version, key.max_version) for key in scene.ask(ASK_VERSIONS).api_keys
    }
    assert {key: served.get(key) for key in SHARE_VERSIONS} == SHARE_VERSIONS


def test_wire_2_unknown_version_of_api_versions_is_answered_in_the_oldest(scene: Scene) -> None:
    frame = bytearray(b"".join(encode_request(1, "spec", ASK_VERSIONS)))
    struct.pack_into(">h", frame, 6, 99)
    scene.admin.send(bytes(frame))
    answer = scene.admin.answer()
    assert answer is not None
    correlation_id, error, count, key, oldest, newest = struct.unpack_from(">ihihhh", answer)
    assert (correlation_id, error, count, key) == (1, UNSUPPORTED_VERSION, 1, 18)
    assert (oldest, newest) == (0, 5)
    assert scene.ask(ASK_VERSIONS).error_code == 0


def test_wire_3_unknown_request_closes_the_connection(scene: Scene) -> None:
    frame = bytearray(b"".join(encode_request(1, "spec", ASK_VERSIONS)))
    struct.pack_into(">h", frame, 4, 999)
    scene.admin.send(bytes(frame))
    assert scene.admin.answer() is None


def test_wire_4_responses_are_in_the_order_of_their_requests(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, 1)
    slow = plain_fetch(topic, 1, max_wait=milliseconds(300))
    scene.admin.begin(slow, correlation_id=7)
    scene.admin.begin(ASK_VERSIONS, correlation_id=8)
    assert scene.admin.is_silent(0.2)
    scene.admin.finish(slow, correlation_id=7)
    assert scene.admin.finish(ASK_VERSIONS, correlation_id=8).error_code == 0


def test_wire_5_fetched_records_have_the_produced_bytes(scene: Scene) -> None:
    topic = scene.topic()
    batch = a_batch(b"a", b"", b"\xff" * 100)
    assert scene.produce_batch(topic, batch) == 0
    came = scene.fetch_bytes(topic, 0)
    # The broker fills in the base offset and the leader epoch, which no checksum covers.
    assert came[16:] == bytes(batch)[16:]


def test_wire_6_new_record_completes_a_waiting_fetch(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, 1)
    reader = scene.connect()
    request = plain_fetch(topic, 1, max_wait=milliseconds(10_000))
    reader.begin(request)
    assert reader.is_silent(0.1)
    scene.produce(topic, 1)
    assert reader.finish(request).responses[0].partitions[0].high_watermark == 2


def test_wire_7_fetch_session_returns_only_changes(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, 1)
    opened = scene.ask(plain_fetch(topic, 1, session_epoch=0, session_id=0))
    session = opened.session_id
    assert session != 0
    nothing = plain_fetch(topic, 0, session_id=session, session_epoch=1, topics=())
    assert scene.ask(nothing).responses == ()
    scene.produce(topic, 1)
    more = plain_fetch(topic, 0, session_id=session, session_epoch=2, topics=())
    assert len(scene.ask(more).responses) == 1


def test_wire_8_batch_of_an_idempotent_producer_is_written_once(scene: Scene) -> None:
    topic = scene.topic()
    request = init_producer_id.InitProducerIdRequest(
        transactional_id=None, transaction_timeout=TIMEOUT
    )
    given = wait_for(
        lambda: answer if (answer := scene.ask(request)).error_code == 0 else None, "a producer id"
    )
    first, second = (
        a_batch(
            b"x",
            b"y",
            producer_id=given.producer_id,
            producer_epoch=given.producer_epoch,
            base_sequence=sequence,
        )
        for sequence in (0, 2)
    )
    assert scene.produce_batch(topic, first) == 0
    assert scene.produce_batch(topic, second) == 2
    assert scene.produce_batch(topic, first) == 0
    assert scene.produce_batch(topic, second) == 2
    assert scene.offset(topic) == 4


def test_wire_9_batch_with_a_wrong_checksum_is_corrupt(scene: Scene) -> None:
    topic = scene.topic()
    batch = a_batch(b"value")
    batch[-1] ^= 1
    partition = produce.PartitionProduceData(index=0, records=bytes(batch))
    request = produce.ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout=TIMEOUT,
        topic_data=(produce.TopicProduceData(name=topic.name, partition_data=(partition,)),),
    )
    assert scene.ask(request).responses[0].partition_responses[0].error_code == CORRUPT
    assert scene.offset(topic) == 0


def test_wire_10_offsets_are_listed_by_place_and_by_time(scene: Scene) -> None:
    topic = scene.topic(retention_ms="-1")
    scene.produce(topic, 2, at_ms=1_000)
    scene.produce(topic, 2, at_ms=2_000)
    assert (scene.offset(topic, EARLIEST), scene.offset(topic, LATEST)) == (0, 4)
    assert (scene.offset(topic, 1_001), scene.offset(topic, 3_000)) == (2, -1)


def test_wire_11_unknown_topic_is_unknown_topic_or_partition(scene: Scene) -> None:
    assert scene.metadata(scene.new_name("topic")).error_code == UNKNOWN_PARTITION


def a_delete(topic: str, before: int) -> Any:
    partition = delete_records.DeleteRecordsPartition(partition_index=0, offset=before)
    return delete_records.DeleteRecordsRequest(
        topics=(delete_records.DeleteRecordsTopic(name=topic, partitions=(partition,)),),
        timeout=TIMEOUT,
    )


def test_wire_12_records_are_deleted_up_to_the_logs_end(scene: Scene) -> None:
    topic = scene.topic()
    scene.produce(topic, 3)
    for before, error in ((4, OUT_OF_RANGE), (2, 0), (-1, 0)):
        [answer] = scene.ask(a_delete(topic.name, before)).topics[0].partitions
        assert answer.error_code == error
    assert (scene.offset(topic, EARLIEST), scene.offset(topic)) == (3, 3)


def test_wire_13_records_of_a_compacted_topic_are_not_deleted(scene: Scene) -> None:
    topic = scene.topic(cleanup_policy="compact")
    scene.produce_batch(topic, encode_batch([SimpleRecord(b"key", b"value", 1_000)]))
    [answer] = scene.ask(a_delete(topic.name, 1)).topics[0].partitions
    assert answer.error_code == POLICY_VIOLATION


def test_wire_14_topic_can_be_described_by_its_id(scene: Scene) -> None:
    topic = scene.topic(2)
    request = metadata.MetadataRequest(
        topics=(metadata.MetadataRequestTopic(topic_id=topic.id, name=None),),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    [found] = scene.ask(request).topics
    assert (found.name, len(found.partitions), found.is_internal) == (topic.name, 2, False)


def test_wire_15_topic_is_made_once_and_under_a_name_that_topics_can_have(scene: Scene) -> None:
    topic = scene.topic()
    names = (topic.name, "a/b", "..", "x" * 250)
    request = create_topics.CreateTopicsRequest(
        topics=tuple(
            create_topics.CreatableTopic(
                name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
            )
            for name in names
        ),
        timeout=TIMEOUT,
    )
    errors = {topic.name: int(topic.error_code) for topic in scene.ask(request).topics}
    assert [errors[name] for name in names] == [ALREADY_EXISTS, *[INVALID_TOPIC] * 3]


def spoilt(what: str) -> bytes:
    """A batch of two records that is none; its checksum holds where that is not what is wrong."""
    batch = a_batch(b"one", b"two")
    if what == "two batches":
        return bytes(batch + batch)
    if what == "cut off":
        return bytes(batch[:-3])
    place, form, value = {
        "magic 9": (16, ">b", 9),
        "magic 0": (16, ">b", 0),
        "control": (21, ">h", 1 << 5),
        "codec 7": (21, ">h", 7),
        "last offset": (23, ">i", 5),
        "count": (57, ">i", 5),
    }[what]
    struct.pack_into(form, batch, place, value)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("magic 9", CORRUPT),
        ("magic 0", INVALID_RECORD),
        ("control", INVALID_RECORD),
        ("last offset", INVALID_RECORD),
        ("count", INVALID_RECORD),
        ("two batches", INVALID_RECORD),
        ("cut off", INVALID_RECORD),
        ("codec 7", {"ours": UNSUPPORTED_COMPRESSION, "kafka": -1}),
    ],
)
def test_wire_16_invalid_batch_is_refused(scene: Scene, what: str, error: Any) -> None:
    topic = scene.topic()
    scene.produce(topic, 1)
    partition = produce.PartitionProduceData(index=0, records=spoilt(what))
    request = produce.ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout=TIMEOUT,
        topic_data=(produce.TopicProduceData(name=topic.name, partition_data=(partition,)),),
    )
    expected = error[scene.kind] if isinstance(error, dict) else error
    answer = scene.ask(request).responses[0].partition_responses[0]
    assert (int(answer.error_code), scene.offset(topic)) == (expected, 1)


@pytest.mark.parametrize("name", IMPOSSIBLE_NAMES)
def test_wire_17_impossible_name_is_invalid_where_topics_are_described(
    scene: Scene, name: str
) -> None:
    """Elsewhere such a topic only does not exist, so that one name never fails a whole request."""
    topic = Topic(name, UUID(int=0))
    assert scene.metadata(name).error_code == INVALID_TOPIC
    wanted = describe_producers.TopicRequest(name=name, partition_indexes=(0,))
    answer = scene.ask(describe_producers.DescribeProducersRequest(topics=(wanted,)))
    assert answer.topics[0].partitions[0].error_code == INVALID_TOPIC
    partition = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    request = list_offsets.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=(list_offsets.ListOffsetsTopic(name=name, partitions=(partition,)),),
    )
    assert scene.ask(request).topics[0].partitions[0].error_code == UNKNOWN_PARTITION
    answer = scene.ask(plain_fetch(topic, 0))
    assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (
        0,
        UNKNOWN_PARTITION,
    )
    assert scene.produced(topic, a_batch(b"x")).error_code == UNKNOWN_PARTITION
    assert scene.ask(a_delete(name, 0)).topics[0].partitions[0].error_code == UNKNOWN_PARTITION
