"""The share fetch answer that is written by hand has the bytes of kio's classes.

So has a request, unless it asks for an acquisition without records.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.share_fetch.v1 import response as kafka_v1
from kio.schema.share_fetch.v2 import request as kafka_request, response as kafka_v2

from sharegroup.ids import TopicId
from sharegroup.steps import STEP_ELEMENTS, run_to_end
from sharegroup.wire.codec.convert import upgrade
from sharegroup.wire.codec.decoder import decode
from sharegroup.wire.codec.encoder import Chunk, encode
from sharegroup.wire.codec.share_fetch_answer import (
    LeaderEndpoint,
    PartitionAnswer,
    share_fetch_frame,
)
from sharegroup.wire.messages import share_fetch_v2
from tests.unit.wire.messages import by_kio, messages as messages_of

int32 = st.integers(-(2**31), 2**31 - 1)
offset = st.integers(0, 2**62)
message = st.none() | st.text(max_size=200)
batch = st.tuples(offset, offset, st.integers(0, 2**31 - 1), st.integers(0, 3))
acquired = st.tuples(offset, offset.map(lambda end: end + 1), st.integers(1, 2**15 - 1))
plain_answer = st.builds(
    PartitionAnswer,
    int32,
    st.binary(max_size=20) | st.sampled_from([b"x" * 126, b"y" * 127, b"z" * 20_000]),
    st.lists(acquired, max_size=3),
    st.sampled_from([0, 1, 56, 100]),
    message,
    st.sampled_from([0, 6, 42, 121]),
    message,
    int32,
    st.none(),
)
batches = st.none() | st.lists(batch, max_size=3) | st.just([(0, 1, 61, 0)] * 700)
listing_answer = st.builds(
    lambda answer, batches: answer._replace(batches=batches), plain_answer, batches
)


def topics(answer: st.SearchStrategy[PartitionAnswer]) -> st.SearchStrategy[Any]:
    return st.dictionaries(st.uuids().map(TopicId), st.lists(answer, max_size=3), max_size=3)


endpoint = st.none() | st.builds(LeaderEndpoint, int32, st.text(max_size=200), int32)


def by_kio_classes(
    messages: Any,
    answered: dict[TopicId, list[PartitionAnswer]],
    lock_ms: int,
    node: LeaderEndpoint | None,
) -> bytes:
    nodes = () if node is None else (messages.NodeEndpoint(**node._asdict()),)
    return by_kio(
        messages.ShareFetchResponse(
            throttle_time=timedelta(0),
            error_code=ErrorCode.none,
            acquisition_lock_timeout=timedelta(milliseconds=lock_ms),
            responses=tuple(
                messages.ShareFetchableTopicResponse(
                    topic_id=topic_id,
                    partitions=tuple(partition(messages, answer) for answer in answers),
                )
                for topic_id, answers in answered.items()
            ),
            node_endpoints=nodes,
        )
    )


def partition(messages: Any, answer: PartitionAnswer) -> Any:
    tagged = {}
    if answer.batches is not None:
        names = ("first_offset", "end_offset", "size", "flags")
        tagged["batches"] = tuple(
            messages.LogBatch(**dict(zip(names, batch, strict=True))) for batch in answer.batches
        )
    return messages.PartitionData(
        partition_index=answer.partition,
        error_code=ErrorCode(answer.error_code),
        error_message=answer.error_message,
        acknowledge_error_code=answer.ack_error_code,
        acknowledge_error_message=answer.ack_error_message,
        current_leader=messages.LeaderIdAndEpoch(leader_id=answer.leader_id, leader_epoch=0),
        records=answer.records,
        acquired_records=tuple(
            messages.AcquiredRecords(first_offset=first, last_offset=end - 1, delivery_count=count)
            for first, end, count in answer.acquired
        ),
        **tagged,
    )


def check_bytes(
    messages: Any,
    answered: dict[TopicId, list[PartitionAnswer]],
    lock_ms: int,
    node: LeaderEndpoint | None,
) -> None:
    steps = share_fetch_frame(7, answered, lock_ms=lock_ms, endpoint=node)
    frame = b"".join(run_to_end(steps))
    body = by_kio_classes(messages, answered, lock_ms, node)
    assert frame == (len(body) + 5).to_bytes(4, "big") + b"\0\0\0\7" + b"\0" + body


@pytest.mark.parametrize("kafkas", [kafka_v1, kafka_v2], ids=["v1", "v2"])
@given(answered=topics(plain_answer), lock_ms=st.integers(0, 2**31 - 1), node=endpoint)
def test_frame_has_the_bytes_of_kafkas_schema(
    kafkas: Any,
    answered: dict[TopicId, list[PartitionAnswer]],
    lock_ms: int,
    node: LeaderEndpoint | None,
) -> None:
    check_bytes(kafkas, answered, lock_ms, node)


@given(answered=topics(listing_answer), lock_ms=st.integers(0, 2**31 - 1), node=endpoint)
def test_frame_with_batches_has_the_bytes_of_our_schema(
    answered: dict[TopicId, list[PartitionAnswer]], lock_ms: int, node: LeaderEndpoint | None
) -> None:
    check_bytes(share_fetch_v2, answered, lock_ms, node)


@given(messages_of(kafka_request.ShareFetchRequest))
def test_request_that_asks_for_records_has_the_bytes_of_kafkas_schema(request: Any) -> None:
    ours = upgrade(request, share_fetch_v2.ShareFetchRequest)
    assert encode(ours) == encode(request)


def test_kafkas_schema_skips_the_tags_of_an_acquisition_without_records() -> None:
    """So a broker answers with records, and a client without this feature gets none."""
    asked = share_fetch_v2.ShareFetchRequest(
        group_id=None,
        member_id="m",
        share_session_epoch=1,
        max_wait=timedelta(0),
        min_bytes=1,
        max_records=10,
        batch_size=10,
        topics=(),
        forgotten_topics_data=(),
        without_records=True,
    )
    body = encode(asked)
    read, end = decode(kafka_request.ShareFetchRequest, body)
    assert (read.member_id, end) == ("m", len(body))

    listed = {TopicId(UUID(int=1)): [PartitionAnswer(0, batches=[(5, 9, 70, 1)])]}
    body = by_kio_classes(share_fetch_v2, listed, 1, None)
    response, end = decode(kafka_v2.ShareFetchResponse, body)
    assert (response.responses[0].partitions[0].records, end) == (b"", len(body))


def test_records_are_passed_on_without_a_copy() -> None:
    records = b"r" * 1000
    answers = {TopicId(UUID(int=1)): [PartitionAnswer(0, records), PartitionAnswer(1)]}
    chunks: list[Chunk] = run_to_end(share_fetch_frame(7, answers, lock_ms=1, endpoint=None))
    assert [chunk is records for chunk in chunks] == [False, True, False]


def test_answer_over_many_partitions_is_made_in_steps() -> None:
    partitions = [PartitionAnswer(number) for number in range(10 * STEP_ELEMENTS)]
    answers = {TopicId(UUID(int=1)): partitions}
    steps = share_fetch_frame(7, answers, lock_ms=1, endpoint=None)
    assert sum(1 for _ in steps) == 10
