"""Reads standard input and writes standard output without blocking the event loop.

A read from a pipe waits for the writer, and a write for the reader; a person may take minutes.
Meanwhile the event loop has to send heartbeats, so both wait in the loop until the descriptor
is ready. They do not make it non-blocking, because the shell and the other programs of a
pipeline share it. Instead they do only what a ready descriptor does at once: one read, or one
write of at most PIPE_BUF bytes. Regular files are always ready, and the loop cannot watch them.
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
"""The number of bytes that a ready pipe takes without blocking the writer (POSIX)."""


async def read_chunks(fd: int, stop: asyncio.Event) -> AsyncIterator[bytes]:
    """Yield the bytes read from ``fd`` until its end, or until ``stop`` is set."""
    watched = _must_wait(fd)
    while not stop.is_set():
        if watched and not await _readable(fd, stop):
            return
        chunk = os.read(fd, READ_BYTES)
        if not chunk:
            return
        yield chunk
        if not watched:
            await asyncio.sleep(0)  # A file is always ready: let other tasks run, too.


async def write_all(fd: int, content: bytes) -> None:
    """Write all of ``content``; raise BrokenPipeError if the reader has closed the pipe."""
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
    """Return whether a read or write of ``fd`` may block until another process acts."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)


async def _readable(fd: int, stop: asyncio.Event) -> bool:
    """Wait until ``fd`` is readable (return True) or ``stop`` is set before that (False)."""
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
    room = select.poll()
    room.register(fd, select.POLLOUT)
    if room.poll(0):
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
