"""The worker as a program, from its start to its exit code.

    ports open -> pid file -> App.start -> wishes, one by one -> App.stop -> report
                                  '-> members joined -> `ready`

The ports open first, so a supervisor can see that the process starts.  A stop during the start
cancels the start.  Later, a stop lets handlers finish for up to `grace`, and a second stop ends the
grace.  Exit codes: 0 stopped as requested, 1 failed.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sharegroup import __version__, event_loop, stop_signals
from sharegroup.durations import Duration
from sharegroup.errors import InvalidConfig, KafkaError
from sharegroup.worker.application import Application
from sharegroup.worker.lifecycle.loop_watch import LoopWatch
from sharegroup.worker.lifecycle.pid_files import PidFile
from sharegroup.worker.lifecycle.signals import Wish, Wishes, listening
from sharegroup.worker.telemetry import logs
from sharegroup.worker.telemetry.state import AppHealth, Phase

if TYPE_CHECKING:
    from sharegroup.fleet.commands import Intent
    from sharegroup.http_endpoint import HttpResponse, Page
    from sharegroup.worker.lifecycle.supervised import Lifeline, Supervised
    from sharegroup.worker.running.worker import StopReport, Worker

log = logging.getLogger(__name__)


ENDED_AS_ASKED = 0
FAILED = 1
LOOPBACK = "127.0.0.1"
STARTING_SECONDS = 5.0
"""Interval of log lines during a long start, for example when the cluster is not available."""
JOINED_LOOK_SECONDS = 0.02
"""Interval of checks until the members have joined their groups."""
LEAVING_SECONDS = 1.0
"""Time for the remaining tasks to end at the exit; handlers had their grace before."""
PARENT_SECONDS = 1.0
"""Interval at which a watched process checks that its watcher still runs."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Settings of the program that are not those of its application."""

    host: str = LOOPBACK
    """The address on which both ports listen."""
    health_port: int | None = None
    metrics_port: int | None = None
    """None for no port, 0 for any free one.  If both are the same, they share one port."""
    pid_file: Path | None = None
    """The path of an additional pid file."""
    module: str = ""
    """The place where the application was found, as a text for people."""
    watcher: int | None = None
    """Process id of the watcher that restarts this process (``--reload``) and handles Ctrl-C."""
    supervisor: tuple[Supervised, Lifeline] | None = None
    """Of a process that a supervisor has started (``-n``), which has the ports and the pid file."""


class Runnable(Application, Protocol):
    """An application that can be started and stopped, as `App`."""

    @property
    def worker(self) -> Worker | None:
        """The running worker; None before `start` and after `stop`."""

    grace_seconds: float
    obey: Callable[[Intent], None] | None
    """Carries out commands; None: the application itself."""

    def health(self) -> AppHealth:
        """What this process knows of its groups and of its brokers."""

    async def start(self) -> None:
        """Start the worker; returns when its members are started."""

    async def stop(self, grace: Duration | None = None) -> StopReport | None:
        """Stop: handlers get ``grace`` to finish, others are released; a second call ends it."""


def run(app: Runnable, surroundings: Surroundings | None = None, say_it: Say | None = None) -> int:
    """Run an application until it is stopped; returns the exit code."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise InvalidConfig(
            f"App {app.name!r}: a handler process imported the module, which called app.run(); "
            f"expected `if __name__ == '__main__':` above app.run()"
        )
    collect_seldom()
    if not logging.getLogger().handlers:
        logs.configure("info", "text")
    program = Program(app, surroundings or Surroundings(), say_it or say)
    return event_loop.run(_and_leave(app.name, program.main()), is_said=True)


class Program:
    """Runs an application as a program: ports, pid files, signals, start and stop."""

    def __init__(self, app: Runnable, surroundings: Surroundings, say_it: Say) -> None:
        self._app = app
        self._around = surroundings
        self._say = tolerant(say_it)
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
        """Run from the start to the exit code."""
        is_watched = self._around.watcher is not None
        self._app.obey = self._wishes.obey
        # SIGHUP to the whole process group asks the supervisor for a reload.  A supervised process
        # that stopped by it would not be started again.
        on_hangup = None if self._around.supervisor is None else _do_nothing
        with listening(self._wishes, to_interrupts=not is_watched, on_hangup=on_hangup):
            async with AsyncExitStack() as stack:
                if is_watched:
                    background(stack, self._stop_with_watcher())
                if self._around.supervisor is None:
                    await self._open_ports(stack)
                else:
                    await self._answer_supervisor(stack, *self._around.supervisor)
                self._open_pid_files(stack)
                try:
                    if not await self._started():
                        return ENDED_AS_ASKED
                except KafkaError:
                    raise  # Its message names the cause; the traceback adds nothing.
                except Exception:
                    log.exception("event=start_failed app=%s", self._app.name)
                    return FAILED
                background(stack, self._say_ready())
                stack.enter_context(LoopWatch())
                try:
                    return await self._work()
                except Exception:  # Raised by a shutdown hook, or by `close` of a handler class.
                    log.exception("event=stop_failed app=%s", self._app.name)
                    return FAILED

    async def _started(self) -> bool:
        """Start the application; returns False if a stop was requested before it had started."""
        starting = asyncio.ensure_future(self._app.start())
        early: list[Wish] = []
        while not starting.done():
            wish = asyncio.ensure_future(self._wishes.next_wish())
            await asyncio.wait(
                (starting, wish), timeout=STARTING_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            # `next_wish` takes a wish out of the queue only when it returns, so none is lost here.
            if not wish.done():
                wish.cancel()
                if not starting.done():
                    self._warn_starting(
                        "waiting for a response of the cluster, or for a startup hook"
                    )
                continue
            early.append(wish.result())
            if early[-1] in (Wish.STOP, Wish.HURRY):
                starting.cancel()
                await asyncio.wait((starting,))
                if starting.cancelled():
                    return False
        starting.result()
        self._wishes.again(
            early
        )  # A stop that came too late to cancel the start is handled like any other.
        self._tell_phase("running")
        return True

    async def _say_ready(self) -> None:
        """Print `ready` once, when the members of all groups have joined."""
        worker = self._app.worker
        assert worker is not None, "it was started"
        waited = 0.0
        while not (state := worker.state).is_joined:
            if state.phase not in (Phase.RUNNING, Phase.QUIET):
                return  # It is stopping or has failed.
            await asyncio.sleep(JOINED_LOOK_SECONDS)
            waited += JOINED_LOOK_SECONDS
            if waited >= STARTING_SECONDS:
                waited = 0.0
                self._warn_starting("waiting for the coordinators of its groups")
        self._say(self._ready_line())

    def _warn_starting(self, why: str) -> None:
        health = self._app.health()
        if health.lost_brokers and not health.is_connected:
            return  # `event=cluster.unreachable` says so, with the error.
        log.warning(
            "event=starting app=%s bootstrap=%r reason=%r",
            self._app.name,
            self._app.cluster.where,
            why,
        )

    async def _work(self) -> int:
        worker = self._app.worker
        assert worker is not None, "it was started"
        ended = asyncio.ensure_future(worker.wait_failed())
        while True:
            wish = asyncio.ensure_future(self._wishes.next_wish())
            await asyncio.wait((ended, wish), return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                wish.cancel()
                self._tell_phase("failed")  # The worker has logged the reason.
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
                    self._say(self._stopped_line(await self._stop()))
                    return ENDED_AS_ASKED

    async def _stop(self) -> StopReport | None:
        """Stop the application; a `Wish.HURRY` in the meantime ends the grace."""
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
        # Imported here, because a worker without ports does not need it.
        from sharegroup.worker.lifecycle.health import open_ports

        pages: dict[str, tuple[int, dict[str, Page]]] = {}
        if around.health_port is not None:
            pages["health"] = (around.health_port, self._health_pages())
        if around.metrics_port is not None:
            pages["metrics"] = (around.metrics_port, self._metrics_pages(stack))
        self._facts |= await open_ports(around.host, pages, stack)

    def _health_pages(self) -> dict[str, Page]:
        # Imported here, because a worker without ports does not need it.
        from sharegroup.worker.lifecycle.health import pages

        return pages(lambda: self._app.worker, self._facts)

    def _metrics_pages(self, stack: AsyncExitStack) -> dict[str, Page]:
        # Imported here, because it needs prometheus_client, of the extra `worker`.
        from sharegroup.worker.lifecycle.metrics_page import metrics_page

        return metrics_page(self._app, lambda: self._app.worker, stack)

    async def _answer_supervisor(
        self, stack: AsyncExitStack, supervised: Supervised, lifeline: Lifeline
    ) -> None:
        # Imported here, because only a supervised worker needs it.
        from sharegroup.worker.lifecycle.channel import STATE, answering
        from sharegroup.worker.lifecycle.supervised import GONE_SIGNAL

        wishes, loop = self._wishes, asyncio.get_running_loop()
        answered = {**self._health_pages(), STATE: self._state_page}
        if self._around.metrics_port is not None:
            answered |= self._metrics_pages(stack)
        self._facts |= {"health": supervised.health, "metrics": supervised.metrics}
        calls = {
            "quiet": wishes.quiet,
            "resume": wishes.resume,
            "stop": wishes.stop_with_supervisor,
            "hurry": wishes.hurry,
        }
        await stack.enter_async_context(answering(supervised.channel, answered, calls))
        if GONE_SIGNAL not in stop_signals.STOP_SIGNALS:  # On Linux.
            loop.add_signal_handler(GONE_SIGNAL, wishes.stop_with_supervisor)
            stack.callback(loop.remove_signal_handler, GONE_SIGNAL)
        lifeline.stop_with(
            lambda: _call_in(loop, wishes.stop_with_supervisor), self._app.grace_seconds
        )

    async def _state_page(self) -> HttpResponse:
        # Imported here, because only a supervised worker needs it.
        from sharegroup.http_endpoint import HttpResponse

        worker = self._app.worker
        state = None if worker is None else worker.state
        return HttpResponse.json(
            200,
            {
                "app": self._app.name,
                "phase": self._facts["phase"],
                "joined": state is not None and state.is_joined,
                "ready": state is not None and state.is_ready,
            },
        )

    def _open_pid_files(self, stack: AsyncExitStack) -> None:
        self._pid_files.append(PidFile.of(self._app.name))
        stack.callback(self._pid_files[0].close)
        if self._around.pid_file is not None and self._around.supervisor is None:
            self._pid_files.append(PidFile(self._around.pid_file))
            stack.callback(self._pid_files[1].close)
        self._tell_phase("starting")

    def _tell_phase(self, phase: str) -> None:
        self._facts["phase"] = phase
        for file in self._pid_files:
            tell_phase(file, self._facts)

    async def _stop_with_watcher(self) -> None:
        """Stop this process if its watcher was killed."""
        while os.getppid() == self._around.watcher:  # noqa: ASYNC110  There is no event for it.
            await asyncio.sleep(PARENT_SECONDS)
        self._wishes.stop()

    def _ready_line(self) -> str:
        facts = self._facts
        ports = "".join(f" {name}={facts[name]}" for name in ("health", "metrics") if facts[name])
        groups = ",".join(facts["groups"])
        number = self._number()
        return f"ready app={self._app.name}{number} pid={os.getpid()} groups={groups}{ports}"

    def _stopped_line(self, report: StopReport | None) -> str:
        text = f"stopped app={self._app.name}{self._number()}"
        return text if report is None else f"{text} {report}"

    def _number(self) -> str:
        """Return the number of this process as a part of a line; "" without a supervisor."""
        supervisor = self._around.supervisor
        return "" if supervisor is None else f" process={supervisor[0].number}"


async def _and_leave(name: str, work: Coroutine[Any, Any, int]) -> int:
    """Run the program and return the exit code; exits at once if a task ignores cancellation.

    Otherwise the event loop would wait for that task forever.
    """
    code = await work
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    pending = (await asyncio.wait(others, timeout=LEAVING_SECONDS))[1] if others else ()
    if pending:
        names = ",".join(sorted(task.get_name() for task in pending))
        log.error(
            "event=exit_forced app=%s tasks=%s reason='the tasks did not end when cancelled'",
            name,
            names,
        )
        # `os._exit` flushes nothing.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(code)
    return code


def background(stack: AsyncExitStack, work: Coroutine[Any, Any, None]) -> None:
    """Run this coroutine in a task until the stack is closed."""
    task = asyncio.ensure_future(work)
    stack.callback(task.cancel)


def _do_nothing() -> None:
    """Handle a signal that is meant for another process."""


def _call_in(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Call in a loop from another thread, unless the loop has ended: so does the process then."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call)


def tell_phase(file: PidFile, facts: Mapping[str, Any]) -> None:
    """Write these facts, with their phase, to a pid file; a failure is logged."""
    try:
        file.write(facts)
    # Of a full disk.  Readers see an earlier phase; raised here, it would end the program in the
    # middle of its handlers, without a stop.
    except OSError as error:
        log.warning(
            "event=pid_file_failed path=%s phase=%s error=%r", file.path, facts["phase"], error
        )


def tolerant(say_it: Say) -> Say:
    """Return a function that prints a line, too, and logs it if the reader of the output has ended.

    The program goes on, because its handlers are to be stopped in order all the same.
    """

    def say_or_log(text: str) -> None:
        try:
            say_it(text)
        except OSError as error:
            log.warning("event=output_failed text=%r error=%r", text, error)

    return say_or_log


def say(text: str) -> None:
    """Print a line on standard output and flush it."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


# Python's garbage collector runs less often in a process that only runs a worker.
#
# Records, deliveries and payloads have no reference cycles, so reference counting frees them. But
# each thousand of live objects makes the collector scan the young objects, and in time all objects.
# With handlers that wait, this took 4 us of the 15 us that a record cost. Cycles of the application
# are still collected, but later.


THRESHOLDS = (20_000, 20, 20)


def collect_seldom() -> None:
    """Exclude all existing objects from collection, and raise the collector's thresholds.

    Call it only in a process that runs nothing but a worker.
    """
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
