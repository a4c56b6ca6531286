"""Announces this process to its application's fleet, and takes commands (`sharegroup.fleet`).

    heartbeat   every 10 s, and at once after a command or a change of the phase
    commands    those written after the start and for this process, each id once, unless expired
    stop        the key is deleted, so a process that is listed and not heard is lost

Nothing here can end or delay the worker.  A process whose topics do not exist, or whose user has no
right to them, says so once and looks again every five minutes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from sharegroup.errors import KafkaError
from sharegroup.fleet.commands import Intent, WorkerCommand
from sharegroup.fleet.fleet_topics import PARTITION, workers_topic
from sharegroup.fleet.heartbeats import (
    ANSWERS_MAX,
    BEAT_SECONDS,
    Answer,
    Answered,
    Heartbeat,
    Identity,
    encoded,
    key_of,
)
from sharegroup.worker.ports import Outbox, WorkerClock
from sharegroup.worker.telemetry.state import Phase, WorkerState

log = logging.getLogger(__name__)

PHASE_SECONDS = 0.5
"""Interval of looks at the phase of the worker."""
COMMAND_SECONDS = 2.0
"""Interval of looks for commands; each is one small request."""
AGAIN_SECONDS = 300.0
"""Interval of attempts while the topics or the rights are missing."""
LEAVE_SECONDS = 3.0
"""How long a stop waits for the last record."""
IDS_REMEMBERED = 1_000
"""Commands that are not carried out again if their records are duplicated."""

Obey = Callable[[Intent], None]
"""Carries a command out; returns at once."""


class CommandLog(Protocol):
    """The commands of the application, in their order."""

    async def skip_to_end(self) -> None:
        """Read only what is written from now on."""

    async def read(self) -> Sequence[WorkerCommand]:
        """Return what was written since the last call."""


class Announcer:
    """Announces one worker while it runs."""

    def __init__(
        self,
        identity: Identity,
        state: Callable[[], WorkerState],
        obey: Obey,
        *,
        outbox: Outbox,
        clock: WorkerClock,
        commands: CommandLog,
    ) -> None:
        self._identity = identity
        self._state = state
        self._obey = obey
        self._outbox = outbox
        self._clock = clock
        self._commands = commands
        self._answers: deque[Answered] = deque(maxlen=ANSWERS_MAX)
        self._ids: dict[str, None] = {}
        """The ids of the last commands, the oldest first."""
        self._has_failed = False
        self._is_announced = False

    async def run(self) -> None:
        """Announce the worker, until this is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._beat_regularly(), name="announce")
            tasks.create_task(self._listen(), name="commands")

    async def leave(self) -> None:
        """Say that the process has stopped; one that failed leaves its last state."""
        if not self._is_announced:
            return
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                if self._state().phase is Phase.FAILED:
                    await self._beat()
                else:
                    await self._write(key_of(self._identity.worker_id), None)
        except (KafkaError, TimeoutError) as error:
            log.warning(
                "event=announce.not_left worker=%s error=%r effect='it is listed as lost'",
                self._identity.worker_id,
                error,
            )

    # Heartbeats.

    async def _beat_regularly(self) -> None:
        while True:
            phase, due = self._state().phase, self._clock.now() + BEAT_SECONDS
            await self._beat_or_say()
            while self._clock.now() < due and self._state().phase is phase:
                await self._clock.sleep_until(min(due, self._clock.now() + PHASE_SECONDS))

    async def _beat_or_say(self) -> None:
        """Write a heartbeat; of failures in a row only the first is logged as a warning."""
        try:
            await self._beat()
        except KafkaError as error:
            level = logging.DEBUG if self._has_failed else logging.WARNING
            self._has_failed = True
            log.log(
                level,
                "event=announce.failed worker=%s error=%r effect='the process is listed as lost' "
                "action='heartbeats go on'",
                self._identity.worker_id,
                error,
            )
        else:
            self._has_failed = False

    async def _beat(self) -> None:
        state = self._state()
        key, value = encoded(
            Heartbeat(
                identity=self._identity,
                phase=str(state.phase),
                running=sum(group.running for group in state.groups),
                waiting=sum(group.waiting for group in state.groups),
                held=sum(group.held for group in state.groups),
                answers=tuple(self._answers),
            )
        )
        await self._write(key, value)
        self._is_announced = True

    async def _write(self, key: bytes, value: bytes | None) -> None:
        topic = workers_topic(self._identity.app)
        await self._outbox.send(topic, value, key=key, partition=PARTITION)

    # Commands.

    async def _listen(self) -> None:
        is_at_end = has_failed = False
        while True:
            try:
                if not is_at_end:
                    await self._commands.skip_to_end()
                    is_at_end = True
                for command in await self._commands.read():
                    await self._take(command)
                has_failed = False
            except KafkaError as error:
                level = logging.DEBUG if has_failed else logging.WARNING
                has_failed = True
                log.log(
                    level,
                    "event=commands.unread worker=%s error=%r action='they are read again'",
                    self._identity.worker_id,
                    error,
                )
            await self._clock.sleep_until(self._clock.now() + COMMAND_SECONDS)

    async def _take(self, command: WorkerCommand) -> None:
        """Carry a command out if it is for this process, new and not expired; then answer."""
        if not command.target.includes(self._identity) or command.command_id in self._ids:
            return
        self._ids[command.command_id] = None
        if len(self._ids) > IDS_REMEMBERED:
            del self._ids[next(iter(self._ids))]
        is_late = self._clock.wall_ms() >= command.expires_ms
        answer = Answer.EXPIRED if is_late else Answer.TAKEN
        self._answers.append(Answered(command.command_id, answer))
        log.info(
            "event=command.%s app=%s intent=%s target=%r by=%r",
            answer,
            self._identity.app,
            command.intent,
            str(command.target),
            command.by,
        )
        if not is_late:
            self._obey(command.intent)
        await self._beat_or_say()


@asynccontextmanager
async def announcing(
    announcer: Announcer, refusal: Callable[[], Awaitable[str]], clock: WorkerClock
) -> AsyncIterator[None]:
    """Announce a worker within the block, as soon as nothing stands against it.

    ``refusal`` returns why the process cannot announce itself; an empty text if it can.
    """
    task = asyncio.create_task(_announce(announcer, refusal, clock), name="announcer")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))
        await announcer.leave()


async def _announce(
    announcer: Announcer, refusal: Callable[[], Awaitable[str]], clock: WorkerClock
) -> None:
    try:
        await _announce_when_possible(announcer, refusal, clock)
    # A fault here must not end a worker that handles records.
    except Exception:
        log.exception("event=announce.ended effect='the process is listed as lost'")


async def _announce_when_possible(
    announcer: Announcer, refusal: Callable[[], Awaitable[str]], clock: WorkerClock
) -> None:
    is_told = False
    while why := await refusal():
        if not is_told:
            is_told = True
            log.warning(
                "event=announce.off reason=%r effect='worker status shows this process on its own "
                "machine only' action='run sharegroup worker apply, and grant the rights that "
                "worker plan --acls lists'",
                why,
            )
        await clock.sleep_until(clock.now() + AGAIN_SECONDS)
    await announcer.run()
