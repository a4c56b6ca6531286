"""The lines of perf: Kafka's to the digit, for scripts parse them."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import pytest

from sharegroup.cli.measuring.date_format import DateFormatError, clock
from sharegroup.cli.measuring.figures import (
    CONSUMER_HEADER,
    Flow,
    Latencies,
    as_json,
    consumed_line,
    consuming_line,
    metric_lines,
    produced_line,
    producing_line,
)
from sharegroup.cli.measuring.producing import (
    Keys,
    keys,
    monotonic_values,
    random_values,
    values_from_file,
)

START_MS = 1_700_000_000_007
MIB = 1024 * 1024


@pytest.fixture
def flow() -> Flow:
    """2,000 records of 2 MiB, 500 of them again; 1 to 1,000 ms, twice each."""
    found = Flow(2_000, 2 * MIB, 500)
    for ms in [*range(1, 1_001)] * 2:
        found.latencies.add(ms)
    return found


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def test_percentiles_agree_with_the_sorted_durations() -> None:
    chance = random.Random(5)
    durations = [chance.randrange(50) ** 2 for _ in range(999)]
    latencies = Latencies()
    for ms in durations:
        latencies.add(ms)
    in_order = sorted(durations)
    for part in (0.5, 0.95, 0.99, 0.999):
        assert latencies.percentile(part) == in_order[int(part * 999)]
    assert (len(latencies), latencies.longest) == (999, max(durations))
    assert latencies.average == pytest.approx(sum(durations) / 999)


def test_nothing_has_no_duration() -> None:
    assert (Latencies().percentile(0.5), Latencies().longest, Latencies().average) == (0, 0, 0.0)


def test_last_line_of_a_producer_is_kafkas(flow: Flow) -> None:
    assert produced_line(flow, 4_000) == (
        "2000 records sent, 500.000000 records/sec (0.50 MB/sec), 500.50 ms avg latency, "
        "1000.00 ms max latency, 501 ms 50th, 951 ms 95th, 991 ms 99th, 1000 ms 99.9th."
    )
    assert produced_line(flow, 4_000, steady=True).startswith("2000 steady state records sent, ")


def test_line_of_a_producer_at_work_is_kafkas(flow: Flow) -> None:
    assert producing_line(flow, 4_000) == (
        "2000 records sent, 500.0 records/sec (0.50 MB/sec), 500.5 ms avg latency, "
        "1000.0 ms max latency."
    )


def test_consumer_columns_begin_with_those_of_kafka(flow: Flow) -> None:
    assert CONSUMER_HEADER.startswith(
        "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, "
        "fetch.time.ms"
    )
    assert consumed_line(flow, START_MS, START_MS + 4_000) == (
        "2023-11-14 22:13:20:007, 2023-11-14 22:13:24:007, 2.0000, 0.5000, 500.0000, 2000, 4000, "
        "500, 501, 991"
    )
    assert len(CONSUMER_HEADER.split(", ")) == 10


def test_line_of_a_consumer_at_work_is_kafkas(flow: Flow) -> None:
    recent = Flow(1_000, MIB)
    assert consuming_line(flow, recent, START_MS, START_MS + 500, 2) == (
        "2023-11-14 22:13:20:007, 2023-11-14 22:13:20:507, 2.0000, 2.0000, 2000.0000, 2000, 500 "
        "for share consumer 2"
    )


def test_flows_add_up(flow: Flow) -> None:
    total = Flow(1, 2, 3)
    total.latencies.add(7)
    total.add(flow)
    assert (total.records, total.bytes, total.redelivered) == (2_001, 2 * MIB + 2, 503)
    assert len(total.latencies) == 2_001


def test_duration_zero_causes_no_division_by_zero() -> None:
    assert as_json(Flow(), 0)["records_per_second"] == 0.0
    assert re.match(r"\S+ 22:13:20:007, ", consumed_line(Flow(), START_MS, START_MS))
    assert clock(0) == "1970-01-01 00:00:00:000"


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd'T'HH:mm:ss.SSSZ", "2023-11-14T22:13:20.007+0000"),
        ("yy d/M H''mm", "23 14/11 22'13"),
        ("S 'it''s'", "7 it's"),
        ("", ""),
        ("EEE", None),
        ("MMM", None),
        ("HH 'open", None),
    ],
)
def test_dates_are_formatted_by_patterns_of_java(pattern: str, text: str | None) -> None:
    if text is None:
        with pytest.raises(DateFormatError, match=re.escape(repr(pattern))):
            clock(START_MS, pattern)
    else:
        assert clock(START_MS, pattern) == text


def test_metrics_are_aligned_by_name() -> None:
    assert metric_lines({"b": {"rate": 1.5}, "a": {"long-name": 2.0}}) == [
        "a:long-name : 2.000",
        "b:rate      : 1.500",
    ]
    assert metric_lines({}) == []


def test_values_are_the_same_for_the_same_seed() -> None:
    values = random_values(30, count=5, seed=1)
    assert [values(number) for number in range(5)] == [
        random_values(30, count=5, seed=1)(number) for number in range(5)
    ]
    assert values(0) != random_values(30, count=5, seed=2)(0)
    assert re.fullmatch(b"[A-Z]{30}", values(0))
    assert values(5) == values(0), "round and round"
    assert random_values(0, count=1, seed=0)(0) == b""


def test_values_are_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "values").write_bytes(b"a;b;;c")
    values = values_from_file(tmp_path / "values", delimiter=b";", seed=0)
    assert sorted(values(number) for number in range(3)) == [b"a", b"b", b"c"]
    (tmp_path / "empty").touch()
    with pytest.raises(ValueError, match="contains no values"):
        values_from_file(tmp_path / "empty", delimiter=b";", seed=0)


def test_values_and_keys_by_number() -> None:
    assert [monotonic_values()(number) for number in (0, 11)] == [b"0", b"11"]
    assert keys(Keys(), seed=0)(5) is None
    assert [keys(Keys("range", 3), seed=0)(number) for number in range(4)] == [
        b"0",
        b"1",
        b"2",
        b"0",
    ]
    spread = keys(Keys("random", 3), seed=0)
    assert {spread(number) for number in range(100)} == {b"0", b"1", b"2"}
