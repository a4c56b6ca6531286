"""What the admin client makes of a coordinator's answer about runs, also of one that lies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, cast

import pytest
from kio.schema.describe_share_group_offsets.v0 import response as version_0
from kio.schema.errors import ErrorCode

from sharegroup.client import SharePartitionRuns, ShareRun, TopicPartition
from sharegroup.client.admin.share_group_runs import list_share_group_runs
from sharegroup.client.net.cluster import Cluster
from sharegroup.errors import UnknownServerError, UnsupportedVersion
from sharegroup.wire.codec.convert import downgrade
from sharegroup.wire.messages import describe_share_group_offsets_v1 as describe

WHERE = TopicPartition("orders", 0)


class Coordinator:
    """A cluster of one broker that has one answer."""

    principal = None

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.request_: Any = None

    @contextmanager
    def call(self, _: float | None) -> Iterator[None]:
        yield

    async def retrying(self, attempt: Callable[[], Awaitable[Any]], *, subject: str) -> Any:
        assert subject == "group 'g'"
        return await attempt()

    async def coordinator(self, *_: Any, **__: Any) -> int:
        return 1

    async def connection(self, *_: Any) -> Coordinator:
        return self

    async def request(self, message: Any) -> Any:
        self.request_ = message
        return self._answer


def answer(**runs: Any) -> describe.DescribeShareGroupOffsetsResponse:
    partition = describe.DescribeShareGroupOffsetsResponsePartition(
        partition_index=0, start_offset=3, leader_epoch=0, error_code=ErrorCode.none,
        runs=describe.PartitionRuns(**runs),
    )  # fmt: skip
    topic = describe.DescribeShareGroupOffsetsResponseTopic(
        topic_name="orders", topic_id=None, partitions=(partition,)
    )
    group = describe.DescribeShareGroupOffsetsResponseGroup(
        group_id="g", topics=(topic,), error_code=ErrorCode.none
    )
    return describe.DescribeShareGroupOffsetsResponse(throttle_time=timedelta(0), groups=(group,))


def run_of(first: int, last: int, state: int = 1) -> describe.OffsetRun:
    return describe.OffsetRun(
        first_offset=first, last_offset=last, state=state, delivery_count=2, member_id="m",
        lock_ms_left=7,
    )  # fmt: skip


def ask(coordinator: Coordinator, **options: Any) -> Any:
    cluster = cast("Cluster", coordinator)
    return asyncio.run(list_share_group_runs(cluster, "g", {WHERE: 3}, **options))


def test_page_has_runs_and_where_the_next_begins() -> None:
    coordinator = Coordinator(
        answer(end_offset=9, high_watermark=12, run_count=5, next_offset=5, runs=(run_of(3, 4),))
    )
    runs = (ShareRun(3, 4, "acquired", 2, "m", 7),)
    assert ask(coordinator, runs_max=2**40) == {WHERE: SharePartitionRuns(3, 9, 12, 5, runs, 5)}
    assert coordinator.request_.runs_max == 2**31 - 1
    assert coordinator.request_.groups[0].topics[0].first_offsets == (3,)


@pytest.mark.parametrize(
    "runs",
    [(run_of(4, 3),), (run_of(3, 5), run_of(5, 6)), (run_of(3, 3, 9),), (run_of(-1, 2),)],
    ids=["backwards", "overlapping", "unknown state", "negative"],
)
def test_runs_that_cannot_be_are_an_error(runs: Any) -> None:
    with pytest.raises(UnknownServerError, match="expected"):
        ask(Coordinator(answer(run_count=1, runs=runs)))


def test_broker_that_lists_no_runs_is_named() -> None:
    """Apache Kafka answers without the tag, and in version 0, which has no such field at all."""
    without = answer()
    older = downgrade(without, version_0.DescribeShareGroupOffsetsResponse)
    for response in (without, older):
        with pytest.raises(UnsupportedVersion, match="__share_group_state"):
            ask(Coordinator(response))


def test_page_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="1 or more"):
        ask(Coordinator(answer()), runs_max=0)
