"""The arithmetic of a record's cost: what is subtracted, when a broker is warm, what is a miss."""

from __future__ import annotations

import pytest

from tests.bench.cpu import LOADS, Cost, Statistics, is_steady, microseconds, row
from tests.bench.failure import BenchError
from tests.bench.peers.brokers import FSYNC, KAFKA, OS


def cost(us: float) -> Cost:
    return Cost(us=us, records=1_000, bytes=102_400)


def test_what_an_idle_broker_takes_is_not_the_records() -> None:
    window = {"broker_cpu_s": 1.5, "seconds": 10.0, "counted": 1_000_000}
    assert microseconds(window, idle=0.05) == pytest.approx(1.0)


def test_a_load_that_costs_no_more_than_idling_is_no_figure() -> None:
    with pytest.raises(BenchError, match="costs more than an idle broker"):
        microseconds({"broker_cpu_s": 0.5, "seconds": 10.0, "counted": 1}, idle=0.05)


def test_four_like_windows_are_needed_and_only_the_last_four_count() -> None:
    assert not is_steady([1.0, 1.0, 1.0])
    assert is_steady([3.0, 1.0, 1.04, 1.09, 1.0])
    assert not is_steady([3.0, 1.0, 1.04, 1.11, 1.0])
    assert not is_steady([1.0, 1.0, 1.0, 0.4])


def test_statistics_count_the_requests_of_one_kind() -> None:
    seen = Statistics("ShareFetch", "rxbytes")
    keep = seen.settings["stats_cb"]
    keep('{"brokers": {"a": {"req": {"ShareFetch": 3, "Fetch": 9}, "rxbytes": 70},'
         ' "b": {"req": {}, "rxbytes": 5}}}')  # fmt: skip
    assert seen.counted() == {"answers": 3, "bytes": 75}


def test_a_ratio_below_what_is_wanted_is_marked() -> None:
    costs = {KAFKA: [cost(12.0)] * 2, FSYNC: [cost(2.0)] * 2, OS: [cost(2.0)] * 2}
    cells = row(LOADS["share"], costs, {OS}).split(" | ")
    assert cells[1:4] == ["12", "2", "~2"]
    assert cells[4] == "6.00 (6.00 to 6.00)"
    assert cells[5] == "6.00 (6.00 to 6.00) ✗"
    assert cells[6] == "2 batches, 100 KiB"


def test_without_kafka_there_is_no_ratio() -> None:
    cells = row(LOADS["alone"], {OS: [cost(500.0)]}).split(" | ")
    assert cells[1:6] == ["-", "-", "500", "-", "-"]
