"""Hostile bytes end in DecodeError with the place, never in anything else or in gigabytes."""

from __future__ import annotations

import random
import tracemalloc
from datetime import timedelta
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v0.response import FindCoordinatorResponse
from kio.schema.init_producer_id.v0.response import InitProducerIdResponse
from kio.schema.metadata.v1.request import MetadataRequest as MetadataRequest1
from kio.schema.metadata.v9.request import MetadataRequest, MetadataRequestTopic
from kio.schema.produce.v9.request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kio.schema.produce.v10.response import ProduceResponse
from kio.schema.share_acknowledge.v1.request import ShareAcknowledgeRequest
from kio.schema.share_fetch.v1.response import (
    LeaderIdAndEpoch,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest

from sharegroup.wire.codec.decoder import DecodeError, decode
from sharegroup.wire.codec.encoder import encode
from tests.unit.wire.messages import by_kio, class_id, every_class, random_message

TOPIC_ID = UUID(int=7)

PRODUCE = ProduceRequest(
    transactional_id=None,
    acks=-1,
    timeout=timedelta(seconds=30),
    topic_data=(
        TopicProduceData(
            name="flights", partition_data=(PartitionProduceData(index=3, records=b"12345"),)
        ),
    ),
)

# A heartbeat: group "g", member "m", epoch 0, no rack, then the subscribed topics.
HEARTBEAT = b"\x02g\x02m\0\0\0\0\0"


def refusal(cls, data, **limits):
    with pytest.raises(DecodeError) as caught:
        decode(cls, data, **limits)
    return str(caught.value)


def test_bytes_after_the_message_are_left_to_the_caller():
    written = by_kio(PRODUCE)
    assert decode(ProduceRequest, written + b"more") == (PRODUCE, len(written))


def test_every_cut_of_a_message_is_refused():
    written = by_kio(PRODUCE)
    for end in range(len(written)):
        refusal(ProduceRequest, written[:end])


def test_decode_error_names_field_position_and_problem():
    written = bytearray(by_kio(PRODUCE))
    at = written.index(b"12345") - 1
    written[at] = 100
    assert refusal(ProduceRequest, bytes(written)) == (
        "ProduceRequest.topic_data[0].partition_data[0].records at byte 22: "
        "length 99, but 8 bytes are left"
    )


def test_count_beyond_the_bytes_left_is_refused_before_the_loop():
    # A topic name takes a byte or more; 2**31 of them are claimed and one byte follows.
    data = HEARTBEAT + b"\xff\xff\xff\xff\x07" + b"\0"
    assert refusal(ShareGroupHeartbeatRequest, data) == (
        "ShareGroupHeartbeatRequest.subscribed_topic_names at byte 14: "
        "2147483646 elements of 1 bytes or more, but 1 bytes are left"
    )


def test_count_is_held_against_the_smallest_size_of_its_elements():
    # A topic of an acknowledgement has 16 bytes of id, an array and tags: 18 bytes or more.
    data = b"\x02g\x02m\0\0\0\0" + b"\x04" + bytes(40)
    assert "3 elements of 18 bytes or more, but 40 bytes are left" in refusal(
        ShareAcknowledgeRequest, data
    )


def test_old_count_below_minus_one_is_refused():
    assert refusal(MetadataRequest1, b"\xff\xff\xff\xfe") == (
        "MetadataRequest.topics at byte 4: length -2"
    )
    assert decode(MetadataRequest1, b"\xff\xff\xff\xff") == (MetadataRequest1(topics=None), 4)


def test_old_string_length_below_minus_one_is_refused():
    # Error code, node id, and a host of length -2.
    data = b"\0\0" + b"\0\0\0\1" + b"\xff\xfe"
    assert refusal(FindCoordinatorResponse, data).endswith("host at byte 8: length -2")


@pytest.mark.parametrize("varint", [b"\xff\xff\xff\xff\xff\x01", b"\xff\xff\xff\xff\x1f"])
def test_varint_above_32_bits_is_refused(varint):
    assert "expected a varint of at most 32 bits" in refusal(
        ShareGroupHeartbeatRequest, HEARTBEAT + varint + bytes(99)
    )


def test_null_is_refused_for_a_field_that_is_not_nullable():
    # The member id is not nullable.
    assert refusal(ShareGroupHeartbeatRequest, b"\x02g\x00\0\0\0\0\0\0\0") == (
        "ShareGroupHeartbeatRequest.member_id at byte 3: null is not allowed"
    )


def test_text_that_is_no_utf_8_is_refused():
    assert refusal(ShareGroupHeartbeatRequest, b"\x02\xff\x02m") == (
        "ShareGroupHeartbeatRequest.group_id at byte 1: expected UTF-8"
    )


def test_unknown_tags_are_skipped():
    message = MetadataRequest(
        topics=(MetadataRequestTopic(name="flights"),),
        allow_auto_topic_creation=True,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    written = by_kio(message)
    assert written.endswith(b"\0")
    tagged = written[:-1] + b"\x02" + b"\x05\x03abc" + b"\x80\x01\x00"
    assert decode(MetadataRequest, tagged) == (message, len(tagged))


@pytest.mark.parametrize(
    ("tags", "problem"),
    [
        (b"\x02\x05\x00\x05\x00", "tag 5 after tag 5"),
        (b"\x02\x05\x00\x04\x00", "tag 4 after tag 5"),
        (b"\x01\x05\x7f", "tag 5 ends after the end of the message"),
        (b"\xff\xff\xff\xff\x0f", "the message ends"),
        (b"\xff\xff\xff\xff\xff\x0f", "varint of at most 32 bits"),
    ],
)
def test_inconsistent_tags_are_refused(tags, problem):
    data = HEARTBEAT + b"\x00" + tags
    text = refusal(ShareGroupHeartbeatRequest, data)
    assert text.startswith("ShareGroupHeartbeatRequest.tags at byte ")
    assert problem in text


def test_known_tag_must_fill_the_size_that_it_announces():
    # Produce 10's response has its node endpoints as tag 0: here an empty array in two bytes.
    data = b"\x01" + b"\0\0\0\0" + b"\x01\x00\x02\x01\x00"
    assert refusal(ProduceResponse, data) == (
        "ProduceResponse.node_endpoints at byte 9: tag 0 ends at 9, not at 10"
    )


def test_error_code_that_kio_lacks_stays_a_number():
    data = b"\0\0\0\0" + (31_000).to_bytes(2, "big") + bytes(10)
    message, _ = decode(InitProducerIdResponse, data)
    assert message.error_code == 31_000
    assert encode(message) == data


def test_known_error_code_is_kios_member():
    data = b"\0\0\0\0" + (42).to_bytes(2, "big") + bytes(10)
    message, _ = decode(InitProducerIdResponse, data)
    assert message.error_code is ErrorCode.invalid_request


def test_null_records_of_a_share_fetch_are_read_and_written():
    partition = PartitionData(
        partition_index=0,
        error_code=ErrorCode.none,
        acknowledge_error_code=0,
        current_leader=LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
        records=None,
        acquired_records=(),
    )
    response = ShareFetchResponse(
        throttle_time=timedelta(0),
        error_code=ErrorCode.none,
        acquisition_lock_timeout=timedelta(seconds=30),
        responses=(ShareFetchableTopicResponse(topic_id=TOPIC_ID, partitions=(partition,)),),
        node_endpoints=(),
    )
    written = encode(response)
    assert decode(ShareFetchResponse, written) == (response, len(written))


def test_too_many_elements_in_all_are_refused():
    data = HEARTBEAT + b"\x0b" + b"\x01" * 10 + b"\0"
    message, _ = decode(ShareGroupHeartbeatRequest, data, elements_max=10)
    assert message.subscribed_topic_names == ("",) * 10
    assert "too many elements" in refusal(ShareGroupHeartbeatRequest, data, elements_max=9)


def test_records_can_be_taken_without_a_copy():
    frame = memoryview(by_kio(PRODUCE) + bytes(20_000))
    message, _ = decode(ProduceRequest, frame, records=memoryview)
    records = message.topic_data[0].partition_data[0].records
    assert type(records) is memoryview
    assert records.obj is frame.obj
    assert records == b"12345"


def test_records_can_be_taken_as_a_buffer_to_write_into():
    message, _ = decode(ProduceRequest, by_kio(PRODUCE), records=bytearray)
    assert type(message.topic_data[0].partition_data[0].records) is bytearray


def damaged(written: bytes, dice: random.Random) -> bytes:
    """The bytes with a few changed, cut out or put in, lengths above all."""
    data = bytearray(written)
    for _ in range(dice.randint(1, 3)):
        at = dice.randrange(len(data) + 1)
        match dice.randrange(4):
            case 0:
                data[at : at + 1] = dice.choice((b"\xff", b"\x7f", b"\x80", b"\0", b"\x02"))
            case 1:
                data[at : at + 4] = dice.choice((b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0"))
            case 2:
                del data[at : at + dice.randint(1, 9)]
            case 3:
                data[at:at] = dice.randbytes(dice.randint(1, 9))
    return bytes(data)


@pytest.mark.parametrize("cls", every_class(), ids=class_id)
def test_damaged_messages_are_decoded_or_refused(cls):
    dice = random.Random(class_id(cls) + "damaged")
    refused = 0
    for _ in range(20):
        data = damaged(by_kio(random_message(cls, dice)), dice)
        try:
            message, end = decode(cls, data)
        except DecodeError:
            refused += 1
        else:
            # What was accepted is a message that can be written, and it lies inside the bytes.
            assert end <= len(data)
            encode(message)
    assert refused or len(by_kio(random_message(cls, dice))) < 16


@pytest.mark.parametrize("element", [b"\x01", b"\x03ab", b"\x03\xc4\x80", b"\x04abc"])
def test_memory_of_decoding_is_proportional_to_the_received_bytes(element):
    count = 20_000
    data = HEARTBEAT + b"\xa1\x9c\x01" + element * count + b"\0"
    decode(ShareGroupHeartbeatRequest, data)  # The first call compiles the decoder of the class.
    tracemalloc.start()
    message, _ = decode(ShareGroupHeartbeatRequest, data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(message.subscribed_topic_names) == count
    # A single wide character is the worst case: 74 bytes of object for 3 received bytes.
    assert peak < 32 * len(data)
