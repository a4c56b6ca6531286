"""Pages of runs from a broker: how they are requested, and a broker that lies about them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from sharegroup.client import AdminClient, SharePartitionRuns, ShareRun, TopicPartition
from sharegroup.errors import KafkaError, TopicAuthorizationFailed, UnknownServerError
from sharegroup.share_runs.broker_runs import broker_runs

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
Answer = SharePartitionRuns | KafkaError


def page(*offsets: int, next_offset: int | None = None) -> SharePartitionRuns:
    runs = tuple(ShareRun(offset, offset, "acquired", 1, "m", 5) for offset in offsets)
    return SharePartitionRuns(0, 9, 9, 9, runs, next_offset)


class Answers:
    """An admin client with prepared answers."""

    def __init__(self, *answers: Mapping[TopicPartition, Answer]) -> None:
        self._answers = iter(answers)
        self.asked: list[dict[TopicPartition, int]] = []
        self.limits: list[int] = []

    async def list_share_group_runs(
        self, _: str, partitions: Mapping[TopicPartition, int], *, runs_max: int
    ) -> Mapping[TopicPartition, Answer]:
        self.asked.append(dict(partitions))
        self.limits.append(runs_max)
        return next(self._answers)


def read(answers: Answers, *, runs_max: int = 100, first_offset: int = 0) -> Any:
    admin = cast("AdminClient", answers)
    wanted = [SECOND, FIRST]
    return asyncio.run(
        broker_runs(admin, "g", wanted, runs_max=runs_max, first_offset=first_offset)
    )


def test_next_pages_begin_where_the_runs_were_cut() -> None:
    answers = Answers(
        {FIRST: page(0, 1, next_offset=2), SECOND: page(next_offset=0)},
        {FIRST: page(2), SECOND: page(5, next_offset=6)},
        {SECOND: page(6)},
    )
    shown = read(answers)
    assert [[run.first_offset for run in part.runs] for part in shown] == [[0, 1, 2], [5, 6]]
    assert answers.asked == [{FIRST: 0, SECOND: 0}, {FIRST: 2, SECOND: 0}, {SECOND: 6}]


def test_no_more_runs_are_requested_than_wanted() -> None:
    answers = Answers({FIRST: page(3, 4, next_offset=5), SECOND: page(3, next_offset=4)})
    shown = read(answers, runs_max=1, first_offset=3)
    assert [[run.first_offset for run in part.runs] for part in shown] == [[3], [3]]
    assert [part.left_out for part in shown] == [8, 8]
    assert (answers.asked, answers.limits) == ([{FIRST: 3, SECOND: 3}], [2])


@pytest.mark.parametrize(
    "lie", [page(next_offset=0), page(5, next_offset=5), page(0, 5, next_offset=3)]
)
def test_broker_that_would_be_asked_for_ever_is_an_error(lie: SharePartitionRuns) -> None:
    with pytest.raises(UnknownServerError, match="orders"):
        read(Answers({FIRST: lie, SECOND: page()}))


def test_refusal_of_a_partition_is_raised() -> None:
    with pytest.raises(TopicAuthorizationFailed):
        read(Answers({FIRST: page(0), SECOND: TopicAuthorizationFailed("no")}))
