"""``waiting for HOST:PORT``: tells a person that no broker answers, while a verb keeps trying.

Clients retry until their timeout, because a broker may be restarting. After a second without a
broker, a terminal gets a line, and another one when a broker answers. Pipes and files get none.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress

import click

from sharegroup.cli.common.output import printable

PATIENCE_SECONDS = 1.0
"""Time without an answering broker after which the line is printed."""
LOOK_SECONDS = 0.1

Metrics = Mapping[str, Mapping[str, float]]

CLEAR_LINE = "\r\x1b[K"
"""Removes a progress line that another part of the verb may have drawn."""


@asynccontextmanager
async def telling_waits(where: str, is_waiting: Callable[[], bool]) -> AsyncIterator[None]:
    """Report on a terminal, while the body runs, that ``is_waiting`` has been true for a second."""
    if not sys.stderr.isatty():
        yield
        return
    task = asyncio.create_task(_watch(where, is_waiting))
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


async def _watch(where: str, is_waiting: Callable[[], bool]) -> None:
    answered_at = time.monotonic()
    is_told = False
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if not is_waiting():
            answered_at = time.monotonic()
            if is_told:
                _tell(f"connected to {where}")
            is_told = False
        elif not is_told and time.monotonic() - answered_at >= PATIENCE_SECONDS:
            _tell(f"waiting for {where}")
            is_told = True


def _tell(text: str) -> None:
    click.echo(f"{CLEAR_LINE}sharegroup: {printable(text)}", err=True)
