"""Our tags of DescribeShareGroupOffsets: skipped by others, absent unless they are used."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from kio.schema.describe_share_group_offsets.v1 import (
    request as kafka_request,
    response as kafka_response,
)
from kio.schema.errors import ErrorCode

from sharegroup.wire.codec.convert import upgrade
from sharegroup.wire.codec.decoder import DecodeError, decode
from sharegroup.wire.codec.encoder import encode
from sharegroup.wire.messages import describe_share_group_offsets_v1 as ours
from tests.unit.wire.messages import messages as messages_of

TAG_10000 = b"\x90\x4e"


@given(messages_of(kafka_request.DescribeShareGroupOffsetsRequest))
def test_request_without_runs_has_the_bytes_of_kafkas_schema(request: Any) -> None:
    assert encode(upgrade(request, ours.DescribeShareGroupOffsetsRequest)) == encode(request)


@given(messages_of(kafka_response.DescribeShareGroupOffsetsResponse))
def test_response_without_runs_has_the_bytes_of_kafkas_schema(response: Any) -> None:
    assert encode(upgrade(response, ours.DescribeShareGroupOffsetsResponse)) == encode(response)


def question() -> ours.DescribeShareGroupOffsetsRequest:
    topic = ours.DescribeShareGroupOffsetsRequestTopic(
        topic_name="orders", partitions=(0, 1), first_offsets=(7,)
    )
    group = ours.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=(topic,))
    return ours.DescribeShareGroupOffsetsRequest(groups=(group,), runs_max=9)


def answer() -> ours.DescribeShareGroupOffsetsResponse:
    run = ours.OffsetRun(
        first_offset=7, last_offset=8, state=1, delivery_count=2, member_id="m", lock_ms_left=900
    )
    runs = ours.PartitionRuns(end_offset=9, high_watermark=20, run_count=3, runs=(run,))
    partition = ours.DescribeShareGroupOffsetsResponsePartition(
        partition_index=0, start_offset=7, leader_epoch=0, error_code=ErrorCode.none, runs=runs
    )
    topic = ours.DescribeShareGroupOffsetsResponseTopic(
        topic_name="orders", topic_id=None, partitions=(partition,)
    )
    group = ours.DescribeShareGroupOffsetsResponseGroup(
        group_id="g", topics=(topic,), error_code=ErrorCode.none
    )
    return ours.DescribeShareGroupOffsetsResponse(throttle_time=timedelta(0), groups=(group,))


@pytest.mark.parametrize(
    ("message", "kafkas"),
    [
        (question(), kafka_request.DescribeShareGroupOffsetsRequest),
        (answer(), kafka_response.DescribeShareGroupOffsetsResponse),
    ],
    ids=["request", "response"],
)
def test_kafkas_schema_skips_the_tags(message: Any, kafkas: type[Any]) -> None:
    body = encode(message)
    assert TAG_10000 in body
    assert decode(type(message), body) == (message, len(body))
    skipped, end = decode(kafkas, body)
    assert end == len(body)
    assert encode(upgrade(skipped, type(message))) == encode(skipped)


def test_later_field_of_a_run_is_skipped() -> None:
    """Such as the time before which a delayed record is not delivered."""
    run = answer().groups[0].topics[0].partitions[0].runs.runs[0]
    body = encode(run)
    assert body.endswith(b"\0"), "no tagged fields"
    later = body[:-1] + b"\1" + TAG_10000 + b"\x08" + bytes(8)
    assert decode(ours.OffsetRun, later) == (run, len(later))


@pytest.mark.parametrize("size", [0, 3, 5, 200])
def test_tag_of_another_size_is_malformed(size: int) -> None:
    body = encode(question())
    assert body[-5:] == b"\x04" + (9).to_bytes(4, "big"), "the tag of four bytes ends the request"
    with pytest.raises(DecodeError):
        decode(ours.DescribeShareGroupOffsetsRequest, body[:-5] + bytes([size]) + body[-4:])
