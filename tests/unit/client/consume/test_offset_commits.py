"""Partitions that a coordinator leaves out of its answer are neither committed nor new."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.offset_commit.v9 import response as commits
from kio.schema.offset_fetch.v9 import response as fetches

from sharegroup.client.consume.coordinator_requests import MemberIdentity
from sharegroup.client.consume.offset_commits import CommitOrder, OffsetCommits
from sharegroup.client.consume.partition_states import COMMITTED, PartitionStates
from sharegroup.client.metrics.client_metrics import ConsumerMetrics
from sharegroup.client.metrics.metric_types import Metrics
from sharegroup.client.records import CommitFailedError, OffsetAndMetadata, TopicPartition
from sharegroup.client.settings.plain_consumer_config import ConsumerConfig
from sharegroup.errors import (
    KafkaError,
    RequestTimedOut,
    StaleMemberEpoch,
    TopicAuthorizationFailed,
    UnknownServerError,
)
from tests.support.limits import HANGING_SECONDS

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
    return OffsetCommits(cluster, "g", MemberIdentity(), no_states(), metrics)


def no_states() -> PartitionStates:
    return PartitionStates(partition_bytes_max=1, bytes_max=1)


def commit(codes: Codes) -> None:
    offsets = {where: OffsetAndMetadata(7) for where in ASKED}
    requests = requests_of(committed(codes))
    asyncio.run(requests.commit(offsets, requests.claim(offsets)))


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


class SlowCoordinator(Coordinator):
    """Answers each commit with the next code, when ``goes_on`` is set; retries as a cluster."""

    def __init__(self, *error_codes: int) -> None:
        super().__init__(None)
        self.error_codes = list(error_codes)
        self.offsets: list[int] = []
        self.asked = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def retrying(
        self, attempt: Callable[[], Any], *, subject: str, timeout_ms: int | None
    ) -> Any:
        while True:
            try:
                return await attempt()
            except KafkaError as error:
                if not error.retriable:
                    raise

    async def request(self, message: Any, *, timeout_ms: int | None) -> Any:
        ((partition,),) = (topic.partitions for topic in message.topics)
        self.offsets.append(partition.committed_offset)
        self.asked.set()
        await self.goes_on.wait()
        return committed({A0: self.error_codes.pop(0)})


class Member:
    """The commits of a member that owns one partition."""

    def __init__(self, coordinator: Any, *, has_member_epoch: bool = False) -> None:
        self.identity = MemberIdentity(
            "m", epoch=1, is_subscribed=True, has_member_epoch=has_member_epoch
        )
        self.states = no_states()
        self.states.assign([A0], COMMITTED)
        metrics = ConsumerMetrics(Metrics("test"), partitions=lambda: 0, lag_max=lambda: 0)
        requests = OffsetCommits(coordinator, "g", self.identity, self.states, metrics)
        self.order = CommitOrder(requests, ConsumerConfig(group_id="g"))

    def rebalance(self, *, gets_it_back: bool) -> None:
        self.identity.epoch += 1
        self.states.remove([A0])
        if gets_it_back:
            self.states.assign([A0], COMMITTED)


def offset(number: int) -> dict[TopicPartition, OffsetAndMetadata]:
    return {A0: OffsetAndMetadata(number)}


@pytest.mark.parametrize("has_member_epoch", [False, True], ids=["classic", "consumer"])
@pytest.mark.parametrize("gets_it_back", [False, True])
def test_commit_that_waits_for_its_turn_during_a_rebalance_is_not_sent(
    *, has_member_epoch: bool, gets_it_back: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """With the new epoch the coordinator would put it over what the next owner has committed."""

    async def run() -> None:
        coordinator = SlowCoordinator(0)
        member = Member(coordinator, has_member_epoch=has_member_epoch)
        first = asyncio.create_task(member.order.commit(offset(5)))
        await coordinator.asked.wait()
        second = asyncio.create_task(member.order.commit(offset(6)))
        await asyncio.sleep(0)
        member.order.commit_in_background(offset(7))
        member.rebalance(gets_it_back=gets_it_back)
        coordinator.goes_on.set()
        await first
        with pytest.raises(CommitFailedError):
            await second
        await member.order.finish()
        assert coordinator.offsets == [5]

    asyncio.run(run())
    assert "event=commit.failed" in caplog.text


def test_commit_is_not_sent_again_when_the_partition_was_given_up() -> None:
    async def run() -> None:
        coordinator = SlowCoordinator(StaleMemberEpoch.code)
        member = Member(coordinator, has_member_epoch=True)
        commit = asyncio.create_task(member.order.commit(offset(5)))
        await coordinator.asked.wait()
        member.rebalance(gets_it_back=False)
        coordinator.goes_on.set()
        with pytest.raises(CommitFailedError):
            await commit
        assert coordinator.offsets == [5]

    asyncio.run(run())


def test_commit_is_sent_again_with_a_new_member_epoch() -> None:
    async def run() -> None:
        coordinator = SlowCoordinator(StaleMemberEpoch.code, 0)
        member = Member(coordinator, has_member_epoch=True)
        commit = asyncio.create_task(member.order.commit(offset(5)))
        await coordinator.asked.wait()
        member.identity.epoch += 1
        coordinator.goes_on.set()
        await commit
        assert coordinator.offsets == [5, 5]

    asyncio.run(run())


def test_the_timeout_of_a_commit_includes_the_wait_for_its_turn() -> None:
    async def run() -> None:
        coordinator = SlowCoordinator(0)
        member = Member(coordinator)
        member.order.commit_in_background(offset(5))
        await coordinator.asked.wait()
        async with asyncio.timeout(HANGING_SECONDS):
            with pytest.raises(RequestTimedOut, match="20 ms"):
                await member.order.commit(offset(6), timeout_ms=20)
        coordinator.goes_on.set()
        await member.order.finish()
        assert coordinator.offsets == [5]

    asyncio.run(run())
