"""A repeated event has a bounded number of log lines; other events keep theirs; none is lost."""

from __future__ import annotations

import logging

import pytest

from sharegroup.broker.load.log_limit import BURST_LINES, EVENTS_MAX, LINES_PER_SECOND, LogLimit

LOGGER = "sharegroup.broker.handlers.settings.config_changes"


def line(
    number: int, *, seconds: float = 100.0, level: int = logging.INFO, logger: str = LOGGER
) -> logging.LogRecord:
    """A line of the event in line ``number`` of a module."""
    record = logging.LogRecord(
        logger, level, "module.py", number, "event=settings%d group=%r", (number, "g"), None
    )
    record.created = seconds
    return record


def passed(limit: LogLimit, number: int, count: int, *, seconds: float = 100.0) -> int:
    return sum(limit.filter(line(number, seconds=seconds)) for _ in range(count))


def test_an_event_has_a_burst_and_then_a_rate(caplog: pytest.LogCaptureFixture) -> None:
    limit = LogLimit()
    assert passed(limit, 1, 5_000) == BURST_LINES
    assert passed(limit, 2, 3) == 3, "another event has lines of its own"
    assert passed(limit, 1, 5_000, seconds=110.0) == 10 * LINES_PER_SECOND
    assert limit.suppressed_count == 10_000 - BURST_LINES - 20
    with caplog.at_level(logging.INFO):
        limit.report()
        limit.report()
    assert [record.getMessage() for record in caplog.records] == [
        f"event=log_lines_suppressed of=settings%d logger={LOGGER} count=8980"
    ]


def test_a_clock_that_is_set_back_neither_stops_the_lines_nor_adds_any() -> None:
    limit = LogLimit()
    assert passed(limit, 1, 2_000, seconds=1_000_000.0) == BURST_LINES
    assert passed(limit, 1, 100, seconds=5.0) == 0
    assert passed(limit, 1, 100, seconds=6.0) == LINES_PER_SECOND


@pytest.mark.parametrize(
    ("level", "logger"),
    [(logging.DEBUG, LOGGER), (logging.INFO, "sharegroup.broker.access.audit")],
)
def test_lines_that_were_asked_for_and_audits_pass(level: int, logger: str) -> None:
    limit = LogLimit()
    record = line(1, level=level, logger=logger)
    assert all(limit.filter(record) for _ in range(3 * BURST_LINES))


def test_the_report_has_the_highest_level_of_the_lines(caplog: pytest.LogCaptureFixture) -> None:
    limit = LogLimit()
    passed(limit, 1, BURST_LINES)
    limit.filter(line(1, level=logging.WARNING))
    limit.filter(line(1, level=logging.INFO))
    limit.report()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_the_number_of_events_is_bounded_and_a_forgotten_one_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limit = LogLimit()
    passed(limit, 0, BURST_LINES + 7)
    with caplog.at_level(logging.INFO):
        for number in range(1, EVENTS_MAX + 50):
            limit.filter(line(number))
    assert [record.getMessage() for record in caplog.records] == [
        f"event=log_lines_suppressed of=settings%d logger={LOGGER} count=7"
    ]
    limit.report()
    assert len(caplog.records) == 1
