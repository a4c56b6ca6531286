"""Frames have the right size and header, records are handed on uncopied, mistakes are named."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from kio.schema.api_versions.v3.response import ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v17 import response as fetch
from kio.schema.list_groups.v0.response import ListGroupsResponse
from kio.schema.metadata.v1.request import MetadataRequest, MetadataRequestTopic
from kio.schema.share_fetch.v2 import response as share_fetch
from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest

from sharegroup.wire.codec.encoder import (
    EncodeError,
    encode,
    encode_request,
    encode_response,
    encode_response_chunks,
)
from tests.unit.wire.messages import by_kio

TOPIC_ID = UUID(int=7)
NO_TIME = timedelta(0)


def share_fetch_partition(index, records):
    return share_fetch.PartitionData(
        partition_index=index,
        error_code=ErrorCode.none,
        acknowledge_error_code=0,
        current_leader=share_fetch.LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
        records=records,
        acquired_records=(
            share_fetch.AcquiredRecords(first_offset=0, last_offset=9, delivery_count=1),
        ),
    )


def share_fetch_response(*records):
    return share_fetch.ShareFetchResponse(
        throttle_time=NO_TIME,
        error_code=ErrorCode.none,
        acquisition_lock_timeout=timedelta(seconds=30),
        responses=(
            share_fetch.ShareFetchableTopicResponse(
                topic_id=TOPIC_ID,
                partitions=tuple(
                    share_fetch_partition(index, record) for index, record in enumerate(records)
                ),
            ),
        ),
        node_endpoints=(),
    )


def test_flexible_response_has_size_correlation_id_and_no_tags_before_it():
    response = share_fetch_response(b"records")
    body = by_kio(response)
    expected = (len(body) + 5).to_bytes(4, "big") + b"\0\0\0\x07" + b"\0" + body
    assert encode_response(7, response) == expected


def test_old_response_header_has_no_tags():
    response = ListGroupsResponse(error_code=ErrorCode.none, groups=())
    assert encode_response(-1, response) == b"\0\0\0\x0a\xff\xff\xff\xff\0\0\0\0\0\0"


def test_api_versions_response_header_has_no_tags():
    response = ApiVersionsResponse(error_code=ErrorCode.none, api_keys=(), throttle_time=NO_TIME)
    assert encode_response(7, response)[:8] == b"\0\0\0\x0c\0\0\0\x07"


def test_request_has_size_and_header():
    request = MetadataRequest(topics=(MetadataRequestTopic(name="t"),))
    chunks = encode_request(5, "me", request)
    assert b"".join(chunks) == (b"\0\0\0\x13\0\3\0\1\0\0\0\5\0\2me\0\0\0\1\0\1t")


def test_flexible_request_has_tags_after_its_header():
    request = ShareGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=None
    )
    body = by_kio(request)
    header = b"\0\x4c\0\1\0\0\0\5\xff\xff\0"
    expected = (len(header) + len(body)).to_bytes(4, "big") + header + body
    assert b"".join(encode_request(5, None, request)) == expected


def test_records_are_passed_on_without_a_copy():
    first, second = memoryview(bytes(50_000)), bytes(60_000)
    chunks = encode_response_chunks(7, share_fetch_response(first, second))
    assert [len(chunk) > 1_000 for chunk in chunks] == [False, True, False, True, False]
    assert chunks[1] is first
    assert chunks[3] is second
    assert b"".join(chunks) == encode_response(7, share_fetch_response(bytes(first), second))


def test_fetch_response_passes_records_on_without_a_copy():
    records = bytes(50_000)
    response = fetch.FetchResponse(
        throttle_time=NO_TIME,
        error_code=ErrorCode.none,
        session_id=0,
        responses=(
            fetch.FetchableTopicResponse(
                topic_id=TOPIC_ID,
                partitions=(
                    fetch.PartitionData(
                        partition_index=0,
                        error_code=ErrorCode.none,
                        high_watermark=1,
                        aborted_transactions=None,
                        records=records,
                    ),
                ),
            ),
        ),
    )
    chunks = encode_response_chunks(7, response)
    assert chunks[1] is records
    assert b"".join(chunks)[9:] == by_kio(response)


def test_error_code_that_kio_lacks_can_be_written():
    assert encode(ListGroupsResponse(error_code=31_000, groups=())) == b"\x79\x18\0\0\0\0"


def test_mistake_is_named_with_its_field():
    broken = share_fetch_response(b"", b"")
    object.__setattr__(broken.responses[0].partitions[1].acquired_records[0], "last_offset", "x")
    with pytest.raises(EncodeError) as caught:
        encode(broken)
    assert str(caught.value).startswith(
        "ShareFetchResponse.responses[0].partitions[1].acquired_records[0]."
        "first_offset+last_offset+delivery_count: "
    )


def test_error_for_an_unexpected_null_names_its_field():
    request = ShareGroupHeartbeatRequest(
        group_id=None, member_id="m", member_epoch=0, subscribed_topic_names=None
    )
    with pytest.raises(EncodeError, match=r"^ShareGroupHeartbeatRequest\.group_id: "):
        encode(request)


def test_text_too_long_for_an_old_string_is_refused():
    request = MetadataRequest(topics=(MetadataRequestTopic(name="t" * 32_768),))
    with pytest.raises(EncodeError, match="32768 bytes of text, 32767 are allowed"):
        encode(request)
