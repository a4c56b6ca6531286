"""``--reload``: a process that restarts the worker when a file of the application changes.

watcher ──starts──▶ worker        the watcher imports nothing of the application, so a syntax
   ▲                              error ends the worker and not the watcher: it waits for the
   └── a file changed             next change
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from sharegroup.errors import MissingExtra
from sharegroup.installation import pip_install
from sharegroup.worker.lifecycle.signals import QUIET, RESUME, Wish, Wishes, listening

log = logging.getLogger(__name__)

WATCHER = "SHAREGROUP_WORKER_WATCHER"
"""The environment variable that has the process id of the watcher."""
FINISH_SECONDS = 5.0
"""Maximum time for handlers to end before the new code runs.  Short, so changes are seen soon."""
HURRY_SECONDS = 5.0

Say = Callable[[str], None]
SIGNALS: Mapping[Wish, signal.Signals] = {
    Wish.STOP: signal.SIGTERM,
    Wish.HURRY: signal.SIGTERM,
    Wish.QUIET: QUIET,
    Wish.RESUME: RESUME,
}


async def reload(command: Sequence[str], folders: Sequence[Path], say: Say) -> int:
    """Restart the command after each change until a stop; returns its last exit code."""
    wishes = Wishes()
    with listening(wishes):
        async with aclosing(changed_files(folders)) as changes:
            return await Watcher(command, wishes, say).run(changes)


async def changed_files(folders: Sequence[Path]) -> AsyncGenerator[set[str], None]:
    """Yield the names of changed Python files, several at a time."""
    try:
        # Imported here, because only --reload needs it, and it is of the extra `worker`.
        from watchfiles import PythonFilter, awatch
    except ImportError as error:
        raise MissingExtra(f"--reload needs watchfiles: {pip_install('worker')}") from error

    # No interrupt: Ctrl-C is a wish (`signals`), and the worker is stopped before this process
    # ends.
    async for changes in awatch(*folders, watch_filter=PythonFilter(), raise_interrupt=False):
        yield {path for _, path in changes}


class Watcher:
    """Runs the worker as a child process and restarts it when files change."""

    def __init__(self, command: Sequence[str], wishes: Wishes, say: Say) -> None:
        self._command = tuple(command)
        self._wishes = wishes
        self._say = say

    async def run(self, changes: AsyncIterator[set[str]]) -> int:
        """Run until a stop is requested; returns the worker's last exit code."""
        change = _next(changes)
        wish = asyncio.ensure_future(self._wishes.next_wish())
        process = await self._start()
        ended = asyncio.ensure_future(process.wait())
        try:
            while True:
                awaited: set[asyncio.Future[Any]] = {change, wish}
                # A worker that has ended must not wake the loop again and again until a file
                # changes.
                if not ended.done():
                    awaited.add(ended)
                await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
                if wish.done():
                    requested = wish.result()
                    wish = asyncio.ensure_future(self._wishes.next_wish())
                    if requested is Wish.STOP:
                        return await self._stopped(process, wish)
                    _send(process, SIGNALS[requested])
                elif change.done():
                    self._say(f"reloading changed={_shown(change.result())}")
                    await _finished(process)
                    change = _next(changes)
                    process = await self._start()
                    ended = asyncio.ensure_future(process.wait())
                else:
                    self._say(f"ended code={ended.result()}; waiting for a change")
        finally:
            tasks: tuple[asyncio.Future[Any], ...] = (change, wish, ended)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await _finished(process)

    async def _start(self) -> asyncio.subprocess.Process:
        environment = {**os.environ, WATCHER: str(os.getpid())}
        return await asyncio.create_subprocess_exec(*self._command, env=environment)

    async def _stopped(
        self, process: asyncio.subprocess.Process, wish: asyncio.Future[Wish]
    ) -> int:
        """Stop the worker and return its exit code; passes further signals on to it."""
        _send(process, signal.SIGTERM)
        ended = asyncio.ensure_future(process.wait())
        while not ended.done():
            await asyncio.wait((ended, wish), return_when=asyncio.FIRST_COMPLETED)
            if wish.done() and not ended.done():
                _send(process, SIGNALS[wish.result()])
                wish = asyncio.ensure_future(self._wishes.next_wish())
        wish.cancel()
        code = ended.result()
        # Like a shell for a program that a signal ended, here perhaps before it handled signals.
        return code if code >= 0 else 128 - code


def _next(changes: AsyncIterator[set[str]]) -> asyncio.Future[set[str]]:
    async def following() -> set[str]:
        return await anext(changes)

    return asyncio.ensure_future(following())


def _send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    if process.returncode is None:
        process.send_signal(number)


async def _finished(process: asyncio.subprocess.Process) -> None:
    """End a worker process: SIGTERM, then SIGTERM again, then SIGKILL."""
    for seconds in (FINISH_SECONDS, HURRY_SECONDS):
        if process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(seconds):
                await process.wait()
        except TimeoutError:
            log.info("event=worker_lingers pid=%d seconds=%s", process.pid, seconds)
    if process.returncode is None:
        process.kill()
        await process.wait()


def _shown(paths: set[str]) -> str:
    return ",".join(sorted(os.path.relpath(path) for path in paths))
