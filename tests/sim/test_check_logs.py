"""What the checks of logs allow, and what they do not."""

from __future__ import annotations

from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v17.response import PartitionData

from tests.sim.check_logs import LogChecks
from tests.sim.messages import Partition

WHERE = Partition(UUID(int=1), 0)


def answer(end: int, *, start: int = 0, stable: int | None = None) -> PartitionData:
    """Nothing to read at the end of a log; ``stable`` is for who reads committed records only."""
    return PartitionData(
        partition_index=0,
        error_code=ErrorCode.none,
        high_watermark=end,
        last_stable_offset=-1 if stable is None else stable,
        log_start_offset=start,
        aborted_transactions=None if stable is None else (),
        preferred_read_replica=-1,
        records=None,
    )


@pytest.fixture
def problems() -> list[str]:
    return []


@pytest.fixture
def logs(problems: list[str]) -> LogChecks:
    logs = LogChecks(problems.append)
    logs.delete_asked(WHERE, 5)
    return logs


def test_decreasing_high_watermark_and_log_start_are_found(
    logs: LogChecks, problems: list[str]
) -> None:
    for response in (answer(8, start=5), answer(7, start=4)):
        logs.fetched(WHERE, response, 8, logs.view(WHERE).told)
    assert problems == [
        f"L2: {WHERE} high watermark went from 8 to 7",
        f"L2: {WHERE} log start went from 5 to 4",
    ]


def test_decreasing_last_stable_offset_is_found(logs: LogChecks, problems: list[str]) -> None:
    for stable in (8, 6):
        logs.fetched(WHERE, answer(8, stable=stable), 8, logs.view(WHERE).told)
    assert problems == [f"L4: {WHERE} last stable offset went from 8 to 6"]


def test_an_answer_that_was_overtaken_may_be_older(logs: LogChecks, problems: list[str]) -> None:
    """Found by seeds 304379 and 304599: a fetch that had waited, and one that had not to."""
    when_it_arrived = logs.view(WHERE).told
    logs.fetched(WHERE, answer(8, start=5, stable=8), 8, logs.view(WHERE).told)
    logs.fetched(WHERE, answer(7, start=4, stable=6), 7, when_it_arrived)
    assert problems == []
    assert logs.view(WHERE).told == (5, 8, 8)
