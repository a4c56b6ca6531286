"""A worker as a program: from its first line to its exit code.

    ports open -> pid file -> App.start -> `ready` -> wishes, one by one -> App.stop -> report

The ports open first, so that whoever watches the process sees it start.  A stop that is asked for
during the start ends the start; afterwards it lets handlers finish, as long as `grace`, and a
second one hurries.  Exit codes: 0 ended as asked, 1 failed.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sharegroup import __version__
from sharegroup.errors import InvalidConfig, KafkaError
from sharegroup.worker.living.loop_watch import LoopWatch
from sharegroup.worker.living.pid_files import PidFile
from sharegroup.worker.living.signals import Wish, Wishes, listening
from sharegroup.worker.seeing import logs

if TYPE_CHECKING:
    from sharegroup.worker.living.endpoint import Endpoint, Page
    from sharegroup.worker.living.runnable import Runnable
    from sharegroup.worker.running.worker import StopReport

log = logging.getLogger(__name__)

ENDED_AS_ASKED = 0
FAILED = 1
LOOPBACK = "127.0.0.1"
STARTING_SECONDS = 5.0
"""How often a start that takes long says that it goes on: the cluster may be away."""
LEAVING_SECONDS = 1.0
"""What is still there at the end may take so long; handlers had more before."""
PARENT_SECONDS = 1.0
"""How often a watched process looks whether its watcher is there."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a program has around its application."""

    host: str = LOOPBACK
    """Where the two ports listen."""
    health_port: int | None = None
    metrics_port: int | None = None
    """None: no port; 0: a free one; both the same: one port for both."""
    pid_file: Path | None = None
    """One more pid file, where somebody expects it."""
    module: str = ""
    """Where the application was found, for people."""
    watcher: int | None = None
    """The process that restarts this one (``--reload``), and that Ctrl-C is meant for."""


def run(app: Runnable, surroundings: Surroundings | None = None, say_it: Say | None = None) -> int:
    """Run an application until it is told to stop; the exit code."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise InvalidConfig(
            f"App {app.name!r} is run by a module that a process of its handlers only imports; "
            f"expected `if __name__ == '__main__':` above app.run()"
        )
    import uvloop  # Here: who only imports an application does without.

    from sharegroup.worker.running.garbage import collect_seldom

    collect_seldom()
    if not logging.getLogger().handlers:
        logs.configure("info", "text")
    program = Program(app, surroundings or Surroundings(), say_it or say)
    return uvloop.run(_and_leave(app.name, program.main()))


class Program:
    """See the module's text."""

    def __init__(self, app: Runnable, surroundings: Surroundings, say_it: Say) -> None:
        self._app = app
        self._around = surroundings
        self._say = say_it
        self._wishes = Wishes()
        self._pid_files: list[PidFile] = []
        self._facts: dict[str, Any] = {
            "app": app.name,
            "module": surroundings.module,
            "version": __version__,
            "phase": "starting",
            "since_ms": time.time_ns() // 1_000_000,
            "groups": sorted({route.group for route in app.route_list}),
            "health": None,
            "metrics": None,
        }

    async def main(self) -> int:
        """From the first line to the exit code."""
        is_watched = self._around.watcher is not None
        with listening(self._wishes, to_interrupts=not is_watched):
            async with AsyncExitStack() as stack:
                if is_watched:
                    _background(stack, self._stop_with_watcher())
                await self._open_ports(stack)
                self._open_pid_files(stack)
                try:
                    if not await self._started():
                        return ENDED_AS_ASKED
                except KafkaError:
                    raise  # Says enough by itself.
                except Exception:
                    log.exception("event=start_failed app=%s", self._app.name)
                    return FAILED
                self._say(self._ready_line())
                stack.enter_context(LoopWatch())
                try:
                    return await self._work()
                except Exception:  # Of a shutdown hook, or of a class's close.
                    log.exception("event=stop_failed app=%s", self._app.name)
                    return FAILED

    async def _started(self) -> bool:
        """Whether the application started; False: it was told to stop before it had."""
        starting = asyncio.ensure_future(self._app.start())
        early: list[Wish] = []
        while not starting.done():
            wish = asyncio.ensure_future(self._wishes.next_wish())
            await asyncio.wait(
                (starting, wish), timeout=STARTING_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if not wish.done():
                wish.cancel()
                if not starting.done():
                    log.warning(
                        "event=starting app=%s bootstrap=%s "
                        "(waits for the cluster's answer, or for a startup hook)",
                        self._app.name,
                        self._where,
                    )
                continue
            early.append(wish.result())
            if early[-1] in (Wish.STOP, Wish.HURRY):
                starting.cancel()
                await asyncio.wait((starting,))
                if starting.cancelled():
                    return False
        starting.result()
        self._wishes.again(early)  # A stop that came too late for the start is one like any other.
        self._tell_phase("running")
        return True

    async def _work(self) -> int:
        worker = self._app.worker
        assert worker is not None, "it was started"
        ended = asyncio.ensure_future(worker.wait_failed())
        while True:
            wish = asyncio.ensure_future(self._wishes.next_wish())
            await asyncio.wait((ended, wish), return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                wish.cancel()
                self._tell_phase("failed")  # The worker has logged why.
                self._say(f"failed app={self._app.name} error={ended.result()!r}")
                await self._stop()
                return FAILED
            match wish.result():
                case Wish.QUIET:
                    worker.quiet()
                    self._tell_phase("quiet")
                case Wish.RESUME:
                    worker.resume()
                    self._tell_phase("running")
                case Wish.STOP | Wish.HURRY:
                    ended.cancel()
                    self._tell_phase("stopping")
                    self._say(_stopped_line(self._app.name, await self._stop()))
                    return ENDED_AS_ASKED

    async def _stop(self) -> StopReport | None:
        """Stop, in a hurry as soon as somebody is."""
        stopping = asyncio.ensure_future(self._app.stop())
        hurrying: asyncio.Future[StopReport | None] | None = None
        while not stopping.done():
            wish = asyncio.ensure_future(self._wishes.next_wish())
            await asyncio.wait((stopping, wish), return_when=asyncio.FIRST_COMPLETED)
            if wish.done() and wish.result() is Wish.HURRY and hurrying is None:
                hurrying = asyncio.ensure_future(self._app.stop(0))
            wish.cancel()
        if hurrying is not None:
            await hurrying
        return stopping.result()

    async def _open_ports(self, stack: AsyncExitStack) -> None:
        around = self._around
        if around.health_port is None and around.metrics_port is None:
            return
        from sharegroup.worker.living.endpoint import Endpoint
        from sharegroup.worker.living.health import pages

        by_port: list[tuple[str, int, dict[str, Page]]] = []
        if around.health_port is not None:
            by_port.append(
                ("health", around.health_port, pages(lambda: self._app.worker, self._facts))
            )
        if around.metrics_port is not None:
            from sharegroup.worker.living.metrics_page import metrics_page

            by_port.append(("metrics", around.metrics_port, metrics_page(self._app, stack)))
        open_ports: dict[int, Endpoint] = {}
        for name, port, some in by_port:
            if port and port in open_ports:
                open_ports[port].add(some)
            else:
                endpoint = open_ports[port] = Endpoint(some)
                await endpoint.listen(around.host, port)
                stack.push_async_callback(endpoint.stop)
            self._facts[name] = open_ports[port].url

    def _open_pid_files(self, stack: AsyncExitStack) -> None:
        self._pid_files.append(PidFile.of(self._app.name))
        stack.callback(self._pid_files[0].close)
        if self._around.pid_file is not None:
            self._pid_files.append(PidFile(self._around.pid_file))
            stack.callback(self._pid_files[1].close)
        self._tell_phase("starting")

    def _tell_phase(self, phase: str) -> None:
        self._facts["phase"] = phase
        for file in self._pid_files:
            file.write(self._facts)

    async def _stop_with_watcher(self) -> None:
        """A process whose watcher was killed is nobody's: it stops."""
        while os.getppid() == self._around.watcher:  # noqa: ASYNC110  Nobody tells of it.
            await asyncio.sleep(PARENT_SECONDS)
        self._wishes.stop()

    @property
    def _where(self) -> str:
        bootstrap = self._app.bootstrap
        return bootstrap if isinstance(bootstrap, str) else ",".join(bootstrap)

    def _ready_line(self) -> str:
        facts = self._facts
        ports = "".join(f" {name}={facts[name]}" for name in ("health", "metrics") if facts[name])
        groups = ",".join(facts["groups"])
        return f"ready app={self._app.name} pid={os.getpid()} groups={groups}{ports}"


async def _and_leave(name: str, work: Coroutine[Any, Any, int]) -> int:
    """The exit code; where a handler ignores being cancelled, the process ends with it here.

    Else the loop would wait for that handler for ever, and so would whoever asked for the stop.
    """
    code = await work
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for one in others:
        one.cancel()
    pending = (await asyncio.wait(others, timeout=LEAVING_SECONDS))[1] if others else ()
    if pending:
        names = ",".join(sorted(one.get_name() for one in pending))
        log.error("event=exit_forced app=%s tasks=%s (they ignore being cancelled)", name, names)
        logging.shutdown()
        sys.stdout.flush()
        os._exit(code)
    return code


def _background(stack: AsyncExitStack, work: Coroutine[Any, Any, None]) -> None:
    """Let it run until the stack is left."""
    task = asyncio.ensure_future(work)
    stack.callback(task.cancel)


def _stopped_line(name: str, report: StopReport | None) -> str:
    return f"stopped app={name}" + ("" if report is None else f" {report}")


def say(text: str) -> None:
    """One line on standard output, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
