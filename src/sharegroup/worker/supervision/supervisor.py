"""The supervisor: starts worker processes, watches them, and replaces those that end.

    start       the first process alone until it has loaded the application, then the others: an
                error of the application is said once
    an end      a process that ended by an error is started again (`supervision.restarts`).  One
                that stopped because somebody asked it to, with exit code 0, is not
    SIGHUP      each process is replaced, one at a time.  The new one is ready before the old one is
                stopped, so new code that can't start changes nothing
    memory      a process above ``--max-memory`` stops first, because memory is what is short; then
                it is started again.  One at a time
    no answer   a process whose event loop hangs for a minute is killed, and started again
    a stop      all at once; each has its own grace

A process has the lowest free number, from 1 to one more than there are processes, so the labels of
metrics stay few.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum

from sharegroup.worker.lifecycle.program import ENDED_AS_ASKED, FAILED, Say
from sharegroup.worker.lifecycle.signals import Wish, Wishes
from sharegroup.worker.supervision.child_process import QUIET, Child, ChildState
from sharegroup.worker.supervision.restarts import (
    EARLY_DEATHS_MAX,
    EARLY_DEATHS_SECONDS,
    Restarts,
)

log = logging.getLogger(__name__)

MISUSED = 2
"""The exit code of a wrong command line, which no further start makes right."""
LOOK_SECONDS = 1.0
"""Interval of questions to a process."""
STARTING_LOOK_SECONDS = 0.05
STARTING_SECONDS = 30.0
"""The shorter interval until a process is ready, and the time after which the longer one does."""
ANSWER_SECONDS = 5.0
UNANSWERED_MAX = 12
"""Questions in a row without an answer, after which a process hangs: a minute."""
UNANSWERED_STOPPING_MAX = 3
READY_SECONDS_MAX = 300.0
"""How long a reload waits for a process to be ready."""
MEMORY_SECONDS = 60.0
"""A process is ready for this time before its memory counts: a limit that is too low for the
application must not replace processes all the time."""

SPARE = 1
"""The number of processes beyond the count that live at a time, while a reload replaces one."""

Start = Callable[[int], Awaitable[Child]]
"""Starts the process with this number; raises OSError if that is not possible."""


class Reason(StrEnum):
    """Why a process was replaced."""

    ENDED = "ended"
    HANGS = "hangs"
    MEMORY = "memory"
    RELOAD = "reload"


@dataclass(slots=True, eq=False)
class Running:
    """A process with what is known of it."""

    child: Child
    state: ChildState = field(default_factory=ChildState)
    started_at: float = 0.0
    has_answered: bool = False
    is_quiet: bool = False
    ready_at: float | None = None
    unanswered: int = 0
    is_stopping: bool = False
    """Whether the supervisor has asked it to stop."""
    reason: Reason = Reason.ENDED
    """Why it will be replaced when it has ended."""
    living: asyncio.Task[None] = field(init=False)
    """Ends after the process, when all that belongs to it is closed."""


@dataclass(slots=True, eq=False)
class Place:
    """A place for a process, with the one that has it, or had it last."""

    restarts: Restarts = field(default_factory=Restarts)
    running: Running | None = None
    is_left: bool = False
    """Whether its process was stopped by somebody else than the supervisor."""


class Supervisor:
    """Runs a number of processes until a stop is requested, or until none is left."""

    def __init__(
        self,
        start: Start,
        count: int,
        wishes: Wishes,
        say: Say,
        *,
        memory_bytes_max: int | None = None,
    ) -> None:
        self.count = count
        """The number of processes that shall run."""
        self.restart_counts = dict.fromkeys(Reason, 0)
        self._start = start
        self._wishes = wishes
        self._say = say
        self._memory_bytes_max = memory_bytes_max
        self._places: list[Place] = []
        self._running: list[Running] = []
        """All processes that live, also those that are about to replace others."""
        self._starting: set[int] = set()
        self._is_quiet = False
        self._stopping = asyncio.Event()
        self._loaded = asyncio.Event()
        self._reload_wanted = asyncio.Event()
        self._turn = asyncio.Lock()
        """Held while a process is replaced: one at a time."""
        self._tasks = asyncio.TaskGroup()
        self._exit_code = ENDED_AS_ASKED

    @property
    def running(self) -> tuple[Running, ...]:
        """The processes that live, in the order of their numbers."""
        return tuple(sorted(self._running, key=lambda running: running.child.number))

    @property
    def pids(self) -> frozenset[int] | None:
        """The ids of the processes that live; None while one is being started."""
        if self._starting:
            return None
        return frozenset(running.child.pid for running in self._running)

    @property
    def ready_count(self) -> int:
        """The number of processes that take records of all their groups."""
        return sum(running.state.ready and not running.is_stopping for running in self._running)

    @property
    def is_ready(self) -> bool:
        """Whether as many processes as shall run take records; a reload has one more for a time."""
        return self.phase == "running" and self.ready_count >= self.count

    @property
    def phase(self) -> str:
        """The phase of the whole, in the words of a single worker."""
        if self._stopping.is_set():
            return "stopping"
        if self._is_quiet:
            return QUIET
        return "running" if self._loaded.is_set() else "starting"

    def reload(self) -> None:
        """Replace all processes, one after the other; once more if that is under way."""
        self._reload_wanted.set()

    async def run(self) -> int:
        """Run to the end; returns the exit code."""
        async with self._tasks as tasks:
            obeying = tasks.create_task(self._obey_wishes())
            reloading = tasks.create_task(self._reload_when_wanted())
            await self._keep_all()
            reloading.cancel()
            self._stop()  # A process that a reload has started has no place yet.
            while self._running:  # noqa: ASYNC110  Their number changes.
                await asyncio.sleep(STARTING_LOOK_SECONDS)
            obeying.cancel()
        return self._exit_code

    async def _obey_wishes(self) -> None:
        while True:
            wish = await self._wishes.next_wish()
            match wish:
                case Wish.STOP:
                    self._stop()
                case Wish.HURRY:
                    self._call("hurry")
                case Wish.QUIET | Wish.RESUME:
                    self._is_quiet = wish is Wish.QUIET
                    self._call(QUIET if self._is_quiet else "resume")

    def _call(self, word: str) -> None:
        for running in self._running:
            running.child.call(word)

    def _stop(self) -> None:
        self._stopping.set()
        for running in self._running:
            _stop(running)

    # Places.

    async def _keep_all(self) -> None:
        """Keep a process in each place, until a stop or until all were stopped by somebody."""
        keeping = [self._tasks.create_task(self._keep(self._new_place()))]
        await _end_or_event(keeping[0], self._loaded, self._stopping)
        if self._loaded.is_set() and not self._stopping.is_set():
            keeping += [
                self._tasks.create_task(self._keep(self._new_place())) for _ in range(1, self.count)
            ]
        await asyncio.wait(keeping)

    def _new_place(self) -> Place:
        place = Place()
        self._places.append(place)
        return place

    async def _keep(self, place: Place) -> None:
        while not self._stopping.is_set():
            # A reload may have put a process into the place during the delay.
            if place.running is None or place.running.child.exit_code is not None:
                fresh = await self._spawn(place)
                if fresh is None:
                    await self._pause(place.restarts.ended(_now(), None))
                    continue
                place.running = fresh
            ended, code = await _end_in(place)
            delay = self._delay_after(place, ended, code)
            if delay is None:
                return
            await self._pause(delay)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    def _delay_after(self, place: Place, ended: Running, code: int) -> float | None:
        """Return the delay before the next start; None if there is none."""
        child, who = ended.child, f"process={ended.child.number} pid={ended.child.pid}"
        if self._stopping.is_set():
            # One that has not answered was loading the application, and had no records; how it ends
            # then depends on the signal.
            if code != ENDED_AS_ASKED and ended.has_answered:
                log.error("event=process.failed %s %s", who, _shown(code))
                self._exit_code = FAILED
            return None
        if ended.is_stopping:
            self.restart_counts[ended.reason] += 1
            return 0.0
        if code == ENDED_AS_ASKED:
            self._say(f"process {child.number} was stopped and is not started again: {who}")
            place.is_left = True
            return None
        if code == MISUSED and not self._loaded.is_set():
            self._exit_code = MISUSED
            self._stop()
            return None
        delay = place.restarts.ended(_now(), ended.ready_at)
        if self._is_hopeless():
            log.error(
                "event=supervisor.given_up %s reason='each process ended %d times within %g s "
                "before it was ready, the last with %s' action='its errors are above: mend them, "
                "and start the supervisor again'",
                *(who, EARLY_DEATHS_MAX, EARLY_DEATHS_SECONDS, _shown(code)),
            )
            self._exit_code = FAILED
            self._stop()
            return None
        self.restart_counts[ended.reason] += 1
        log.error("event=process.ended %s %s restart_s=%.1f", who, _shown(code), delay)
        return delay

    def _is_hopeless(self) -> bool:
        now = _now()  # The place of a process that is ready has hope.
        return all(place.is_left or place.restarts.is_hopeless(now) for place in self._places)

    # Processes.

    async def _spawn(self, place: Place) -> Running | None:
        """Start a process for a place; None if the machine refuses it."""
        taken = {running.child.number for running in self._running} | self._starting
        number = min({*range(1, self.count + SPARE + 1)} - taken)
        self._starting.add(number)
        try:
            child = await self._start(number)
        except OSError as error:
            log.error("event=process.not_started process=%d error=%r", number, error)  # noqa: TRY400  The machine's.
            return None
        finally:
            self._starting.discard(number)
        running = Running(child, started_at=_now())
        self._running.append(running)
        running.living = self._tasks.create_task(self._live(place, running))
        before = place.running
        if self._is_quiet or (before is not None and before.is_quiet):
            child.call(QUIET)
        if self._stopping.is_set():
            _stop(running)
        return running

    async def _live(self, place: Place, running: Running) -> None:
        """Watch a process to its end."""
        watching = asyncio.create_task(self._watch(place, running))
        ending = asyncio.create_task(running.child.ended())
        try:
            await asyncio.wait((watching, ending), return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()  # It ends by an error of ours only.
        finally:
            watching.cancel()
            ending.cancel()
            await asyncio.wait((watching, ending))
            self._running.remove(running)
            await running.child.close()

    async def _watch(self, place: Place, running: Running) -> None:
        while True:
            is_starting = (
                running.ready_at is None and _now() - running.started_at < STARTING_SECONDS
            )
            await asyncio.sleep(STARTING_LOOK_SECONDS if is_starting else LOOK_SECONDS)
            state = await running.child.state(ANSWER_SECONDS)
            if state is None:
                self._count_unanswered(running)
            else:
                self._take(place, running, state)

    def _take(self, place: Place, running: Running, state: ChildState) -> None:
        """Take the answer of a process."""
        running.state, running.unanswered, running.has_answered = state, 0, True
        self._loaded.set()
        if state.is_up:
            running.is_quiet = state.phase == QUIET
            if running.ready_at is None:
                running.ready_at = _now()
                place.restarts.worked()
        if self._memory_bytes_max is None or self._turn.locked() or running.is_stopping:
            return
        if running.ready_at is None or _now() - running.ready_at < MEMORY_SECONDS:
            return
        memory_bytes = running.child.memory_bytes()
        if memory_bytes > self._memory_bytes_max and place.running is running:
            log.warning(
                "event=process.memory process=%d pid=%d bytes=%d bytes_max=%d "
                "action='it stops, and is started again'",
                *(running.child.number, running.child.pid, memory_bytes, self._memory_bytes_max),
            )
            self._tasks.create_task(self._relieve(place, running))

    def _count_unanswered(self, running: Running) -> None:
        """Count a question without an answer, and kill a process that hangs."""
        if not running.has_answered and not running.is_stopping:
            return  # It imports the application, which may take long.
        running.unanswered += 1
        limit = UNANSWERED_STOPPING_MAX if running.is_stopping else UNANSWERED_MAX
        if running.unanswered >= limit:
            log.error(
                "event=process.hangs process=%d pid=%d unanswered=%d action='it is killed; its "
                "records are delivered again when their locks expire'",
                *(running.child.number, running.child.pid, running.unanswered),
            )
            if not running.is_stopping:
                running.reason = Reason.HANGS
            running.child.send(signal.SIGKILL)

    # Replacements.

    async def _relieve(self, place: Place, running: Running) -> None:
        """Replace a process that has too much memory; the old one stops first."""
        async with self._turn:
            if running.is_stopping or place.running is not running:
                return
            running.reason = Reason.MEMORY
            _stop(running)
            while place.running is running and not self._stopping.is_set():  # noqa: ASYNC110  As above.
                await asyncio.sleep(STARTING_LOOK_SECONDS)
            if place.running is not None:
                await self._comes_up(place.running)

    async def _reload_when_wanted(self) -> None:
        while True:
            await self._reload_wanted.wait()
            self._reload_wanted.clear()
            async with self._turn:
                await self._reload()

    async def _reload(self) -> None:
        places = [place for place in self._places if not place.is_left]
        self._say(f"reloading processes={len(places)}")
        for place in places:
            fresh = await self._spawn(place)
            if fresh is None or not await self._comes_up(fresh):
                if not self._stopping.is_set():
                    log.error(
                        "event=reload.given_up reason='the new process was not ready' "
                        "action='the others go on as they are; mend the error, and reload again'"
                    )
                if fresh is not None:
                    _stop(fresh)
                    await asyncio.wait((fresh.living,))
                return
            old, place.running = place.running, fresh
            self.restart_counts[Reason.RELOAD] += 1
            if old is not None:
                _stop(old)
                await asyncio.wait((old.living,))
        self._say(f"reloaded processes={len(places)}")

    async def _comes_up(self, running: Running) -> bool:
        """Wait until a process is ready; False if it ends, takes too long, or a stop comes."""
        deadline = _now() + READY_SECONDS_MAX
        while running.child.exit_code is None and not self._stopping.is_set():
            if running.state.is_up:
                return True
            if _now() >= deadline:
                return False
            await asyncio.sleep(STARTING_LOOK_SECONDS)
        return False


def _stop(running: Running) -> None:
    """Ask a process to stop, once."""
    if running.is_stopping:
        return
    running.is_stopping = True
    running.unanswered = 0
    if running.has_answered:
        running.child.call("stop")
    else:
        # It may be importing the application, and would read the call later.
        running.child.send(signal.SIGTERM)


async def _end_in(place: Place) -> tuple[Running, int]:
    """Wait for the end of the process in a place; a reload may put another one there first."""
    while True:
        running = place.running
        assert running is not None, "it was started"
        await asyncio.wait((running.living,))
        code = running.child.exit_code
        assert code is not None, "it has ended"
        if place.running is running:
            return running, code


async def _end_or_event(task: asyncio.Task[None], *events: asyncio.Event) -> None:
    """Wait for the end of a task, which goes on, or for the first of these events."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait((task, *waits), return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


def _now() -> float:
    return asyncio.get_running_loop().time()


def _shown(code: int) -> str:
    """Return an exit code as a pair of a log line."""
    if code >= 0:
        return f"code={code}"
    try:
        return f"signal={signal.Signals(-code).name}"
    except ValueError:  # Of a real-time signal.
        return f"signal={-code}"
