"""The benchmarks' own arithmetic: a figure that flatters is worse than none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.bench.equal_batches import describe_log, fill
from tests.bench.failure import BenchError
from tests.bench.first_answer import wait_for_metadata
from tests.bench.peers.workloads import WORKLOADS
from tests.bench.peers.workloads.share_consume import Coverage
from tests.support.processes import ServeProcess


class Message:
    """As much of confluent's message as the benchmark looks at."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset

    def error(self) -> None:
        return None


def messages(first: int, end: int) -> list[Any]:
    return [Message(offset) for offset in range(first, end)]


def test_every_record_once_is_complete() -> None:
    seen = Coverage(30)
    seen.add(messages(0, 10))
    assert not seen.complete
    seen.add(messages(10, 30))
    assert seen.complete


def test_a_lost_record_fails() -> None:
    seen = Coverage(30)
    seen.add(messages(0, 10))
    with pytest.raises(BenchError, match="expected 5 records from offset 10, got 11 to 15"):
        seen.add(messages(11, 16))


def test_a_repeated_record_fails() -> None:
    seen = Coverage(30)
    seen.add(messages(0, 10))
    with pytest.raises(BenchError, match="expected 2 records from offset 10, got 9 to 10"):
        seen.add(messages(9, 11))


def test_a_hole_inside_of_a_batch_fails() -> None:
    with pytest.raises(BenchError, match="expected 3 records from offset 0, got 0 to 3"):
        Coverage(30).add([*messages(0, 2), *messages(3, 4)])


def test_a_repeated_range_fails() -> None:
    seen = Coverage(30)
    seen.add_range(0, 9, 10)
    with pytest.raises(BenchError, match="expected 10 records from offset 10, got 0 to 9"):
        seen.add_range(0, 9, 10)


def test_names_of_workloads_and_lines_are_unique() -> None:
    names = [workload.name for workload in WORKLOADS]
    lines = [line.what for workload in WORKLOADS for line in workload.lines]
    assert len(set(names)) == len(names)
    assert len(set(lines)) == len(lines)


def test_a_rival_is_a_peer_and_a_line_of_the_same_workload() -> None:
    for workload in WORKLOADS:
        names = {line.what for line in workload.lines}
        for against in (peer for line in workload.lines for peer in line.against):
            assert {against.ours, against.rival} <= set(workload.peers), workload.name
            assert against.line is None or against.line in names, workload.name


def test_every_workload_of_the_issue_exists() -> None:
    names = [workload.name for workload in WORKLOADS]
    assert names[:15] == [f"P{number}" for number in range(1, 16)]
    headline = [workload.name for workload in WORKLOADS if workload.headline]
    assert headline == ["P1", "P2", "P6", "P7", "P9", "P12"]


def test_a_log_of_equal_batches_and_the_first_answer(tmp_path: Path) -> None:
    with ServeProcess(tmp_path / "data") as broker:
        assert wait_for_metadata(broker.port, 5.0) < 5.0
        with pytest.raises(TimeoutError):
            wait_for_metadata(broker.port, 0.1, "absent")
        fill(broker.bootstrap_servers, "log", records=2_000, record_bytes=100, batch_records=500)
        assert wait_for_metadata(broker.port, 5.0, "log") < 5.0
        assert describe_log(broker.data) == "4 x 55,433 B of 500 records"
