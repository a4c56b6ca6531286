"""The timeline: in which bin an event is counted, and the picture of it."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from examples.flights.summary import Course
from examples.flights.timeline import Rates, Timeline
from examples.flights.timeline_picture import draw_timeline

FIRST = 100.0
"""The time of the first record, in seconds of the monotonic clock."""


def counted(*lines: dict[str, Any], last: float = FIRST + 0.6) -> Rates:
    timeline = Timeline()
    for line in lines:
        timed = {**line, "at_us": round((FIRST + line["at"]) * 1e6)}
        (timeline.produced if "produced" in line else timeline.handled)(timed)
    return timeline.rates(FIRST, last)


def test_bins_cover_the_time_from_the_first_record_to_the_last() -> None:
    rates = counted()
    assert rates.edges == (0.0, 0.25, 0.5, 0.75)
    assert rates.done == (0, 0, 0)


def test_first_bin_begins_before_a_first_record_between_two_bounds() -> None:
    edges = Timeline().rates(FIRST + 0.1, FIRST + 0.3).edges
    assert edges == pytest.approx((-0.1, 0.15, 0.4))


def test_produced_records_are_the_growth_of_the_count() -> None:
    rates = counted({"at": 0.1, "produced": 10}, {"at": 0.3, "produced": 15})
    assert rates.produced == (40, 20, 0)


def test_event_is_counted_at_its_own_time_in_whatever_order_it_is_read() -> None:
    ended = {"what": "ended", "ends": [[0, 0, True], [0, 1, False]]}
    rates = counted({"at": 0.55, **ended}, {"at": 0.05, **ended})
    assert rates.done == (4, 0, 4)


def test_retries_and_redelivered_records_are_told_apart() -> None:
    """Each record is a partition, an offset, an attempt, a delivery count and a timestamp."""
    records = [[0, 0, 1, 1, 9], [0, 1, 2, 1, 9], [0, 2, 3, 1, 9], [0, 3, 1, 2, 9]]
    rates = counted({"at": 0.3, "what": "begun", "records": records})
    assert (rates.retried, rates.redelivered) == ((0, 8, 0), (0, 4, 0))


def test_dead_letters_are_told_apart_by_their_reason() -> None:
    rates = counted(
        {"at": 0.0, "what": "buried", "reason": "unreadable"},
        {"at": 0.5, "what": "buried", "reason": "attempts-exhausted"},
    )
    assert (rates.unreadable, rates.given_up) == ((4, 0, 0), (0, 0, 4))


def test_events_outside_the_run_are_left_out() -> None:
    """A worker that stops may still write a line after the last record is settled."""
    assert counted({"at": 0.9, "what": "buried", "reason": "unreadable"}).unreadable == (0, 0, 0)


def test_start_of_a_worker_is_no_event_of_a_record() -> None:
    assert counted({"at": 0.1, "what": "started"}) == counted()


def test_picture_is_a_png_of_the_promised_size(tmp_path: Path) -> None:
    rates = counted({"at": 0.1, "produced": 10})
    course = Course(
        seconds=0.6,
        worker_killed_at=0.2,
        worker_held=7,
        broker_killed_at=0.3,
        broker_down_seconds=0.1,
    )
    draw_timeline(rates, course, 10, tmp_path / "timeline.png")
    head = (tmp_path / "timeline.png").read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", head[16:24]) == (1200, 700)
