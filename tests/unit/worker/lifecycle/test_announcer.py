"""A worker announces itself and takes commands, on virtual time; nothing of it ends the worker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

import pytest

from sharegroup.errors import NetworkException
from sharegroup.fleet.commands import Intent, Target, TargetKind, WorkerCommand
from sharegroup.fleet.heartbeats import Answer, Answered, Departed, Heartbeat, parsed
from sharegroup.testing import virtual_time
from sharegroup.worker.lifecycle.announcer import Announcer, announcing
from sharegroup.worker.ports import SendOptions
from sharegroup.worker.telemetry.state import Phase, WorkerGroupState, WorkerState
from tests.unit.fleet.test_fleet_records import BEAT
from tests.unit.worker.running.loop_clock import WALL_MS, LoopClock

WHO = BEAT.identity
COMMAND = WorkerCommand(
    command_id="c1", intent=Intent.QUIET, target=Target(), by="anna",
    asked_ms=WALL_MS, expires_ms=WALL_MS + 3_600_000,
)  # fmt: skip


@dataclass
class Stage:
    """A worker, its outbox and its commands."""

    phase: Phase = Phase.RUNNING
    is_away: bool = False
    refused: str = ""
    written: list[tuple[float, Heartbeat | Departed]] = field(default_factory=list)
    commands: list[WorkerCommand] = field(default_factory=list)
    obeyed: list[Intent] = field(default_factory=list)
    asked: int = 0

    def state(self) -> WorkerState:
        one = WorkerGroupState("a", "m", True, waiting=1, running=2, held=3)
        return WorkerState(self.phase, (one, one))

    def send(
        self, topic: str, value: bytes | None, **options: Unpack[SendOptions]
    ) -> Awaitable[Any]:
        async def answer() -> None:
            if self.is_away:
                raise NetworkException("the broker is away")
            assert (topic, options.get("partition")) == ("orders-service.workers", 0)
            self.written.append((LoopClock().now(), parsed(options.get("key"), value)))

        return answer()

    async def skip_to_end(self) -> None:
        if self.is_away:
            raise NetworkException("the broker is away")
        self.commands.clear()

    async def read(self) -> Sequence[WorkerCommand]:
        if self.is_away:
            raise NetworkException("the broker is away")
        taken, self.commands = self.commands, []
        return taken

    def obey(self, intent: Intent) -> None:
        self.obeyed.append(intent)
        self.phase = {Intent.QUIET: Phase.QUIET, Intent.STOP: Phase.STOPPING}.get(
            intent, Phase.RUNNING
        )

    async def refusal(self) -> str:
        self.asked += 1
        return self.refused

    def beats(self) -> list[Heartbeat]:
        return [beat for _, beat in self.written if isinstance(beat, Heartbeat)]


def play(stage: Stage, scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        clock = LoopClock()
        announcer = Announcer(
            WHO, stage.state, stage.obey, outbox=stage, clock=clock, commands=stage
        )
        async with announcing(announcer, stage.refusal, clock):
            await scene()

    virtual_time.run(run())


def test_heartbeats_are_regular_and_a_stop_deletes_the_key() -> None:
    stage = Stage()
    play(stage, lambda: asyncio.sleep(25))
    times = [round(at - stage.written[0][0]) for at, _ in stage.written]
    assert times == [0, 10, 20, 25]
    assert stage.written[-1][1] == Departed(WHO.worker_id)
    beat = stage.beats()[0]
    assert (beat.phase, beat.running, beat.waiting, beat.held) == ("running", 4, 2, 6)


def test_change_of_the_phase_is_announced_at_once() -> None:
    stage = Stage()

    async def scene() -> None:
        await asyncio.sleep(3)
        stage.phase = Phase.STOPPING
        await asyncio.sleep(1)

    play(stage, scene)
    assert [beat.phase for beat in stage.beats()] == ["running", "stopping"]


def test_failed_worker_leaves_its_last_state() -> None:
    stage = Stage(phase=Phase.FAILED)
    play(stage, lambda: asyncio.sleep(1))
    assert [beat.phase for beat in stage.beats()] == ["failed", "failed"]
    assert len(stage.written) == 2


def test_command_is_carried_out_once_and_answered() -> None:
    stage = Stage()

    async def scene() -> None:
        await asyncio.sleep(1)
        stage.commands += [COMMAND, COMMAND]
        await asyncio.sleep(5)
        stage.commands.append(COMMAND)  # Duplicated by whoever wrote it.
        await asyncio.sleep(5)

    play(stage, scene)
    assert stage.obeyed == [Intent.QUIET]
    last = stage.beats()[-1]
    assert (last.phase, last.answers) == ("quiet", (Answered("c1", Answer.TAKEN),))


def test_command_is_not_carried_out_if_it_is_late_or_for_another() -> None:
    stage = Stage()
    late = replace(COMMAND, command_id="late", asked_ms=WALL_MS - 9, expires_ms=WALL_MS - 1)
    other = replace(COMMAND, command_id="other", target=Target(TargetKind.HOST, "web-4"))

    async def scene() -> None:
        await asyncio.sleep(1)
        stage.commands += [late, other]
        await asyncio.sleep(5)

    play(stage, scene)
    assert stage.obeyed == []
    assert stage.beats()[-1].answers == (Answered("late", Answer.EXPIRED),)


def test_commands_before_the_start_are_not_for_this_process() -> None:
    stage = Stage(commands=[COMMAND])
    play(stage, lambda: asyncio.sleep(9))
    assert stage.obeyed == []


def test_broker_that_is_away_is_said_once_and_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(is_away=True)

    async def scene() -> None:
        await asyncio.sleep(60)
        assert stage.written == []
        stage.is_away = False
        await asyncio.sleep(11)
        stage.commands.append(COMMAND)
        await asyncio.sleep(3)

    play(stage, scene)
    assert stage.obeyed == [Intent.QUIET]
    said = [line.getMessage() for line in caplog.records if line.levelno >= logging.WARNING]
    assert [line.split()[0] for line in said] == ["event=announce.failed", "event=commands.unread"]


def test_stop_does_not_wait_for_a_broker_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()

    async def scene() -> None:
        await asyncio.sleep(1)
        stage.is_away = True

    play(stage, scene)
    assert "event=announce.not_left" in caplog.text


def test_missing_right_is_said_once_and_asked_for_again(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(refused="topic 'orders-service.workers' does not exist")

    async def scene() -> None:
        await asyncio.sleep(1_000)
        assert (stage.written, stage.asked) == ([], 4)
        stage.refused = ""
        await asyncio.sleep(300)
        assert stage.written

    play(stage, scene)
    said = [line.getMessage() for line in caplog.records if line.levelno >= logging.WARNING]
    [line] = said
    assert "event=announce.off reason=\"topic 'orders-service.workers' does not exist\"" in line


def test_fault_of_the_announcer_does_not_end_the_worker(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()

    async def scene() -> None:
        await asyncio.sleep(1)
        stage.commands.append(None)  # type: ignore[arg-type]  A fault that nobody knows of.
        await asyncio.sleep(30)

    play(stage, scene)
    assert "event=announce.ended" in caplog.text
