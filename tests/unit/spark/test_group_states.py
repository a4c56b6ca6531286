"""The records of a group by state, counted from listed runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import pytest

from sharegroup.client import TopicPartition
from sharegroup.client.admin.types import SharePartitionRuns, ShareRun
from sharegroup.errors import KafkaError, NetworkException, UnsupportedVersion
from sharegroup.spark import group_states
from sharegroup.spark.group_states import GroupStates

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Group:
    """Two share partitions, listed in pages of two runs; or an error."""

    def __init__(self, *runs: ShareRun, failure: KafkaError | None = None) -> None:
        self.runs = runs
        self.failure = failure
        self.request_count = 0

    async def share_partitions(self) -> list[TopicPartition]:
        return [ZERO, ONE]

    async def list_share_group_runs(
        self, group_id: str, partitions: Mapping[TopicPartition, int], *, runs_max: int
    ) -> dict[TopicPartition, SharePartitionRuns | KafkaError]:
        self.request_count += 1
        if self.failure is not None:
            raise self.failure
        pages: dict[TopicPartition, SharePartitionRuns | KafkaError] = {}
        for where, first in partitions.items():
            runs = [run for run in self.runs if run.first_offset >= first] if where == ZERO else []
            rest = runs[2:3]
            pages[where] = SharePartitionRuns(
                *(0, 60 if where == ZERO else 0, 100, len(self.runs), tuple(runs[:2])),
                rest[0].first_offset if rest else None,
            )
        return pages


RUNS = (
    ShareRun(0, 9, "archiving", 5),
    ShareRun(10, 14, "acknowledged", 1),
    ShareRun(15, 24, "acquired", 1, "member", 1_000),
    ShareRun(25, 29, "delayed", 2),
    ShareRun(30, 59, "available", 1),
)


def test_records_of_all_share_partitions_are_counted_over_all_pages() -> None:
    """Those that were never delivered are available, too: 40 of one partition, 100 of the other."""
    group = Group(*RUNS)
    states = GroupStates(group, "billing")
    assert states.report() == {"states": None, "statesCause": None}
    asyncio.run(states.refresh())
    counted = {"available": 170, "acquired": 10, "delayed": 5, "archiving": 10}
    assert states.report() == {"states": counted, "statesCause": None}
    assert group.request_count == 3
    asyncio.run(states.refresh())
    assert group.request_count == 3, "the last count is recent"


def test_count_of_too_many_runs_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_states, "RUNS_MAX", 4)
    states = GroupStates(Group(*RUNS), "billing")
    asyncio.run(states.refresh())
    report = states.report()
    assert report["statesCause"] == "only the first 4 runs were counted"
    assert report["states"]["delayed"] == 5


def test_broker_that_lists_no_runs_is_asked_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    group = Group(failure=UnsupportedVersion("the broker does not list the runs"))
    states = GroupStates(group, "billing", refresh_seconds=0)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            asyncio.run(states.refresh())
    assert states.report()["states"] is None
    assert "does not list the runs" in states.report()["statesCause"]
    assert group.request_count == 1
    assert caplog.text.count("event=states.unknown group=billing") == 1


def test_last_counts_stay_while_the_broker_is_away() -> None:
    group = Group(*RUNS)
    states = GroupStates(group, "billing", refresh_seconds=0)
    asyncio.run(states.refresh())
    group.failure = NetworkException("no connection")
    asyncio.run(states.refresh())
    report = states.report()
    assert report["states"]["acquired"] == 10
    assert "no connection" in report["statesCause"]
    group.failure = None
    asyncio.run(states.refresh())
    assert states.report()["statesCause"] is None
