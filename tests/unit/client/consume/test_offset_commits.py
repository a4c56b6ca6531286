"""Partitions that a coordinator leaves out of its answer are neither committed nor new."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.offset_commit.v9 import response as commits
from kio.schema.offset_fetch.v9 import response as fetches

from sharegroup.client.consume.offset_commits import MemberIdentity, OffsetCommits
from sharegroup.client.metrics.client_metrics import ConsumerMetrics
from sharegroup.client.metrics.metric_types import Metrics
from sharegroup.client.records import OffsetAndMetadata, TopicPartition
from sharegroup.errors import TopicAuthorizationFailed, UnknownServerError

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ASKED = (A0, A1, B0)
STRANGER = TopicPartition("c", 5)

Codes = Mapping[TopicPartition, int]
"""The partitions of an answer and their error codes."""

LEFT_OUT: dict[str, tuple[Codes, TopicPartition]] = {
    "one partition": ({A0: 0, B0: 0}, A1),
    "one topic": ({A0: 0, A1: 0}, B0),
    "all": ({}, A0),
    "another in its place": ({A0: 0, STRANGER: 0, B0: 0}, A1),
}


def by_topic(codes: Codes) -> dict[str, dict[int, int]]:
    return {
        topic: {number: code for (name, number), code in codes.items() if name == topic}
        for topic in dict.fromkeys(name for name, _ in codes)
    }


def committed(codes: Codes) -> Any:
    made: Any = commits.OffsetCommitResponse
    return made(
        throttle_time=timedelta(0),
        topics=tuple(
            commits.OffsetCommitResponseTopic(
                name=topic,  # type: ignore[arg-type]
                partitions=tuple(
                    commits.OffsetCommitResponsePartition(partition_index=number, error_code=code)  # type: ignore[arg-type]
                    for number, code in numbers.items()
                ),
            )
            for topic, numbers in by_topic(codes).items()
        ),
    )


def fetched(codes: Codes, offset: int = -1) -> Any:
    partition: Any = fetches.OffsetFetchResponsePartitions
    group: Any = fetches.OffsetFetchResponseGroup
    made: Any = fetches.OffsetFetchResponse
    topics = tuple(
        fetches.OffsetFetchResponseTopics(
            name=topic,  # type: ignore[arg-type]
            partitions=tuple(
                partition(
                    partition_index=number, error_code=code, committed_offset=offset,
                    committed_leader_epoch=-1, metadata="",
                )
                for number, code in numbers.items()
            ),
        )
        for topic, numbers in by_topic(codes).items()
    )  # fmt: skip
    return made(
        throttle_time=timedelta(0),
        groups=(group(group_id="g", topics=topics, error_code=0),),
    )


class Coordinator:
    """A cluster of one broker that gives one answer, again and again."""

    principal = None

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def retrying(
        self, attempt: Callable[[], Any], *, subject: str, timeout_ms: int | None
    ) -> Any:
        return await attempt()

    async def coordinator(self, group_id: str) -> int:
        return 1

    def forget_coordinator(self, group_id: str) -> None: ...

    async def connection(self, node_id: int, purpose: object) -> Coordinator:
        return self

    async def request(self, message: Any, *, timeout_ms: int | None) -> Any:
        return self._answer


def requests_of(answer: Any) -> OffsetCommits:
    cluster: Any = Coordinator(answer)
    metrics = ConsumerMetrics(Metrics("test"), partitions=lambda: 0, lag_max=lambda: 0)
    return OffsetCommits(cluster, "g", MemberIdentity(), metrics)


def commit(codes: Codes) -> None:
    offsets = {where: OffsetAndMetadata(7) for where in ASKED}
    asyncio.run(requests_of(committed(codes)).commit(offsets))


def look_up(codes: Codes, offset: int = -1) -> dict[TopicPartition, OffsetAndMetadata | None]:
    return asyncio.run(requests_of(fetched(codes, offset)).committed(ASKED))


@pytest.mark.parametrize("call", [commit, look_up])
@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_partition_that_the_answer_leaves_out_is_an_error(
    name: str, call: Callable[[Codes], object]
) -> None:
    codes, missing = LEFT_OUT[name]
    with pytest.raises(UnknownServerError) as raised:
        call(codes)
    text = str(raised.value)
    assert f"group 'g' partition {missing!r}: the broker's response does not contain it" in text


@pytest.mark.parametrize("call", [commit, look_up])
def test_the_error_of_a_partition_is_raised(call: Callable[[Codes], object]) -> None:
    with pytest.raises(TopicAuthorizationFailed, match="topic 'a' partition 1"):
        call({A0: 0, A1: TopicAuthorizationFailed.code, B0: 0})


@pytest.mark.parametrize("call", [commit, look_up])
def test_a_partition_that_was_not_asked_for_is_ignored(call: Callable[[Codes], object]) -> None:
    call({**dict.fromkeys(ASKED, 0), STRANGER: TopicAuthorizationFailed.code})


def test_a_partition_without_a_committed_offset_has_none() -> None:
    assert look_up(dict.fromkeys(ASKED, 0)) == dict.fromkeys(ASKED)
    assert look_up(dict.fromkeys(ASKED, 0), 5) == dict.fromkeys(ASKED, OffsetAndMetadata(5))
