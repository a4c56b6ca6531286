"""The run of a member that writes its records, in a group of either type: limits, stop, last words.

run_printer
  └ until a limit, a signal or an error:  poll --> write --> settle, or commit
  └ then:                                 close --> what was processed
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from sharegroup.cli.common.cluster_access import Access
from sharegroup.cli.common.output import complain, counted
from sharegroup.cli.common.running import (
    CLOSE_SECONDS,
    Stop,
    lacks_broker,
    telling_waits,
    until_stopped,
)

POLL_SECONDS = 0.2
"""The length of one poll, and so the longest time until a signal is noticed."""

R = TypeVar("R")


class Printer(Protocol[R]):
    """Polls records, and writes them."""

    @property
    def count(self) -> int:
        """The number of records that were processed."""

    async def poll(self, count_max: int | None) -> Sequence[R]:
        """Return records as soon as there are any, or none after `POLL_SECONDS`."""

    async def print_records(self, records: Sequence[R]) -> None:
        """Write records, and settle them or commit the offsets behind them."""


class PrintingLimits(NamedTuple):
    """Where a run ends: after so many records, or without a record for so long."""

    count_max: int | None
    idle_ms: int | None


async def print_until(printer: Printer[R], stop: Stop, limits: PrintingLimits) -> None:
    """Write records until one of the limits is reached or ``stop`` is set."""
    count_max, idle_ms = limits
    last_records_at = time.monotonic()
    while not stop.is_set() and (count_max is None or printer.count < count_max):
        count_left = None if count_max is None else count_max - printer.count
        records = await printer.poll(count_left)
        if records:
            await printer.print_records(records)
            last_records_at = time.monotonic()
        elif idle_ms is not None and time.monotonic() - last_records_at >= idle_ms / 1000:
            break


class RunningPrinter(Protocol):
    """A printer with its run."""

    async def run(self, stop: Stop, limits: PrintingLimits) -> None:
        """Write records until one of the limits is reached or ``stop`` is set."""


async def run_printer(
    printer: RunningPrinter,
    stop: Stop,
    access: Access,
    options: Mapping[str, Any],
    *,
    metrics: Callable[[], Mapping[str, Mapping[str, float]]],
    close: Callable[[float], Awaitable[object]],
    report: Callable[[], None],
) -> None:
    """Run a printer until a limit or a signal; then close its consumer, and report.

    ``close`` gets its time in seconds.
    """
    limits = PrintingLimits(options["max_messages"], options["idle_ms"])
    try:
        async with telling_waits(access.bootstrap_servers, lambda: lacks_broker(metrics())):
            await until_stopped(printer.run(stop, limits), stop)
    finally:
        # After a signal the verb has to end before STOP_SECONDS_MAX, at which it is cancelled.
        await close(CLOSE_SECONDS if stop.code else access.timeout_ms / 1000)
        report()


def say_processed(count: int, unwritable: int, became: str, unreadable: int) -> None:
    """Say how many records were processed, what became of others, and what cannot be read."""
    others = f", {unwritable} of them {became}" if unwritable else ""
    ranges = f"; {counted(unreadable, 'range')} of offsets could not be read" if unreadable else ""
    complain(f"processed {counted(count, 'record')}{others}{ranges}")
