"""A program without a broker says so after a second, and every ten seconds."""

from __future__ import annotations

import asyncio
import logging

import pytest

from sharegroup.client.net.cluster import Reachability
from sharegroup.worker.telemetry.reachability import reporting_unreachable

REFUSED = Reachability(
    is_connected=False, lost={"127.0.0.1:9092": "127.0.0.1:9092: connection refused"}
)
CONNECTED = Reachability(is_connected=True, lost={})


class VirtualClock:
    """A clock that each sleep advances; it stops at the end of the script."""

    def __init__(self, end: float) -> None:
        self._now, self._end = 0.0, end
        self.has_ended = asyncio.Event()

    def now(self) -> float:
        return self._now

    def wall_ms(self) -> int:
        return round(self._now * 1000)

    async def sleep_until(self, when: float) -> None:
        if when > self._end:
            self.has_ended.set()
            await asyncio.Event().wait()
        self._now = when


async def reported(
    states: list[tuple[float, Reachability]], end: float, caplog: pytest.LogCaptureFixture
) -> list[str]:
    """Return the lines that are logged while the states begin at their times."""
    clock = VirtualClock(end)

    def now_reached() -> Reachability:
        caplog.records.append(_mark(clock.now()))
        return [state for begin, state in states if begin <= clock.now()][-1]

    caplog.set_level(logging.INFO)
    async with reporting_unreachable("shop", "127.0.0.1:9092 (App)", now_reached, clock):
        await clock.has_ended.wait()
    lines, at = [], ""
    for record in caplog.records:
        if record.name == "mark":
            at = record.getMessage()
        else:
            lines.append(f"{at} {record.levelname} {record.getMessage()}")
    return lines


def _mark(now: float) -> logging.LogRecord:
    return logging.LogRecord("mark", logging.INFO, "", 0, f"{now:.2f}", (), None)


def test_refused_connection_is_reported_after_a_second_and_every_ten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines = asyncio.run(reported([(0.0, REFUSED), (25.0, CONNECTED)], 30.0, caplog))
    unreachable = (
        "WARNING event=cluster.unreachable app=shop bootstrap='127.0.0.1:9092 (App)' "
        "error='127.0.0.1:9092: connection refused' action='check that a broker listens there, "
        "or name another one: --bootstrap-server, SHAREGROUP_BOOTSTRAP'"
    )
    assert lines == [
        f"1.00 {unreachable}",
        f"11.00 {unreachable}",
        f"21.00 {unreachable}",
        "25.00 INFO event=cluster.reached app=shop bootstrap='127.0.0.1:9092 (App)'",
    ]


def test_short_restart_and_one_lost_broker_of_several_are_not_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one_lost = Reachability(is_connected=True, lost=REFUSED.lost)
    states = [(0.0, CONNECTED), (5.0, REFUSED), (5.75, CONNECTED), (10.0, one_lost)]
    assert asyncio.run(reported(states, 40.0, caplog)) == []
