"""Runs long verbs: their event loop, and how signals stop them.

The first SIGINT, SIGTERM or SIGHUP (not under ``nohup``) asks the verb to stop: it finishes and
acknowledges the records in progress. After `FINISH_SECONDS` it gives up what is not finished and
reports that. A verb that has not ended after `STOP_SECONDS_MAX`, or gets a second signal, is
cancelled; its exit code is 128 and the number of the signal, as the shell reports for a program
that a signal ends.

    signal ----- finish -----> give up, report -----> end, or cancelled
    0 s                        FINISH_SECONDS         STOP_SECONDS_MAX
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import click
from click.exceptions import Exit

from sharegroup import event_loop, stop_signals
from sharegroup.cli.common.output import printable

# ``waiting for HOST:PORT``: tells a person that no broker answers, while a verb keeps trying.
#
# Clients retry until their timeout, because a broker may be restarting. After a second without a
# broker, a terminal gets a line, and another one when a broker answers. Pipes and files get none.


PATIENCE_SECONDS = 1.0
"""Time without an answering broker after which the line is printed."""
LOOK_SECONDS = 0.1

Metrics = Mapping[str, Mapping[str, float]]

CLEAR_LINE = "\r\x1b[K"
"""Removes a progress line that another part of the verb may have drawn."""


@asynccontextmanager
async def telling_waits(
    where: str, is_waiting: Callable[[], bool], tell: Callable[[str], None] | None = None
) -> AsyncIterator[None]:
    """Report on a terminal, while the body runs, that ``is_waiting`` has been true for a second.

    ``tell`` shows the report; None: as a line on standard error.
    """
    if not sys.stderr.isatty():
        yield
        return
    task = asyncio.create_task(_watch(where, is_waiting, tell or _tell))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def lacks_broker(metrics: Metrics) -> bool:
    """Whether a client with these metrics has no connection, or never received a response."""
    connections = sum(group.get("connection-count", 0) for group in metrics.values())
    responses = sum(group.get("response-total", 0) for group in metrics.values())
    return not connections or not responses


async def _watch(where: str, is_waiting: Callable[[], bool], tell: Callable[[str], None]) -> None:
    answered_at = time.monotonic()
    is_told = False
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if not is_waiting():
            answered_at = time.monotonic()
            if is_told:
                tell(f"connected to {where}")
            is_told = False
        elif not is_told and time.monotonic() - answered_at >= PATIENCE_SECONDS:
            tell(f"waiting for {where}")
            is_told = True


def _tell(text: str) -> None:
    click.echo(f"{CLEAR_LINE}sharegroup: {printable(text)}", err=True)


T = TypeVar("T")

FINISH_SECONDS = 0.5
"""Time after a signal to finish the records in progress; a broker that answers needs less."""
CLOSE_SECONDS = 0.25
"""Time to close a consumer after a signal; it is part of the time below."""
STOP_SECONDS_MAX = 0.9
"""Time after a signal at which a verb is cancelled, so that Ctrl-C ends it within a second."""


class Stop(asyncio.Event):
    """Set when the verb should end; ``code`` is then its exit code, 128 and the signal.

    ``code`` stays 0 if the verb itself set the event.
    """

    def __init__(self) -> None:
        super().__init__()
        self.code = 0
        self.gives_up = asyncio.Event()
        """Set `FINISH_SECONDS` after a signal: work that is not finished is abandoned."""


def run(work: Callable[[Stop], Coroutine[Any, Any, T]]) -> T:
    """Run ``work`` and return its result; signals set the event that it gets, so it ends early."""

    async def with_signals() -> T:
        stop = Stop()
        task = asyncio.ensure_future(work(stop))
        loop = asyncio.get_running_loop()

        def received(number: signal.Signals) -> None:
            if stop.is_set():
                task.cancel()
            else:
                loop.call_later(FINISH_SECONDS, stop.gives_up.set)
                loop.call_later(STOP_SECONDS_MAX, task.cancel)
            stop.code = 128 + number
            stop.set()

        numbers = stop_signals.heeded()
        for number in numbers:
            loop.add_signal_handler(number, received, number)
        try:
            return await task
        except asyncio.CancelledError:
            if not stop.code:
                raise
            raise Exit(stop.code) from None
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    return event_loop.run(with_signals())


async def until_stopped(work: Coroutine[Any, Any, T], stop: Stop) -> T | None:
    """Return the result of ``work``; None if a signal came and it did not finish in time."""
    task = asyncio.ensure_future(work)
    giving_up = asyncio.ensure_future(stop.gives_up.wait())
    try:
        await asyncio.wait((task, giving_up), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        giving_up.cancel()
        if not task.done():
            task.cancel()
            # Until its own cleanup is over, because the caller closes what it uses.
            await asyncio.wait((task,))
