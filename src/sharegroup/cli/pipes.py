"""Standard input and output for a program whose event loop has heartbeats to send.

A read from a pipe waits for whoever writes into it, a write for whoever reads: minutes, if
that is a person.  So both wait in the event loop until the descriptor is ready.  Neither
changes it to non-blocking: it is shared with the shell and the other programs of a pipeline.
Instead no more is asked than what a ready descriptor does at once: one read, or a write of at
most PIPE_BUF bytes.  Regular files are always ready, and the loop can't watch them.
"""

from __future__ import annotations

import asyncio
import os
import select
import stat
from collections.abc import AsyncIterator, Callable
from typing import Any

READ_BYTES = 64 * 1024
WRITE_BYTES = select.PIPE_BUF
"""What a pipe that is ready takes without making the writer wait (POSIX)."""


async def read_chunks(fd: int, stop: asyncio.Event) -> AsyncIterator[bytes]:
    """What comes from ``fd`` until it ends, or until ``stop`` is set."""
    watched = _must_wait(fd)
    while not stop.is_set():
        if watched and not await _readable(fd, stop):
            return
        some = os.read(fd, READ_BYTES)
        if not some:
            return
        yield some
        if not watched:
            await asyncio.sleep(0)  # A file is always ready: let the others run, too.


async def write_all(fd: int, content: bytes) -> None:
    """Write everything; BrokenPipeError when nobody reads any more."""
    watched = _must_wait(fd)
    view = memoryview(content)
    while view:
        if watched:
            await _writable(fd)
            written = os.write(fd, view[:WRITE_BYTES])
        else:
            written = os.write(fd, view)
        view = view[written:]


def _must_wait(fd: int) -> bool:
    """Whether a read or a write may take as long as somebody else likes."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)


async def _readable(fd: int, stop: asyncio.Event) -> bool:
    """True when there is something to read, False when ``stop`` is set before that."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    stopping = asyncio.ensure_future(stop.wait())
    loop.add_reader(fd, _resolve, ready)
    try:
        await asyncio.wait((ready, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.remove_reader(fd)
        stopping.cancel()
    return ready.done()


async def _writable(fd: int) -> None:
    if select.select((), (fd,), (), 0)[1]:
        return  # The common case, without a turn of the event loop.
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_writer(fd, _resolve, ready)
    try:
        await ready
    finally:
        loop.remove_writer(fd)


_Resolve = Callable[["asyncio.Future[Any]"], None]


def _resolve(ready: asyncio.Future[Any]) -> None:
    if not ready.done():
        ready.set_result(None)
