"""What a reader of heartbeats makes of them: who is lost, and what became of a command."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sharegroup.fleet.commands import Intent, Target, TargetKind, WorkerCommand
from sharegroup.fleet.fleet import Outcome, SeenWorker, Workers, outcome_of
from sharegroup.fleet.fleet_topics import apps_of
from sharegroup.fleet.heartbeats import Answer, Answered, Departed
from tests.unit.fleet.test_fleet_records import BEAT, COMMAND

ASKED_MS = 100_000
STOP = replace(COMMAND, asked_ms=ASKED_MS, expires_ms=ASKED_MS + 30_000)
QUIET = replace(STOP, intent=Intent.QUIET)
BEFORE = SeenWorker(replace(BEAT, phase="running", answers=()), ASKED_MS - 9_000)
ID = BEAT.identity.worker_id


def test_worker_is_lost_if_it_was_not_heard_for_thirty_seconds() -> None:
    assert not BEFORE.is_lost(BEFORE.heard_ms + 30_000)
    assert BEFORE.is_lost(BEFORE.heard_ms + 30_001)
    assert not BEFORE.is_lost(BEFORE.heard_ms - 99_000)  # A reader whose clock is behind.


def test_worker_that_failed_said_so_and_is_not_lost() -> None:
    assert not SeenWorker(replace(BEAT, phase="failed"), 0).is_lost(10**9)


def test_last_heartbeat_of_each_process_counts_until_it_stops() -> None:
    workers = Workers()
    workers.take(BEAT, 1)
    workers.take(replace(BEAT, running=7), 2)
    assert [(seen.beat.running, seen.heard_ms) for seen in workers.listed()] == [(7, 2)]
    workers.take(Departed(ID), 3)
    workers.take(Departed("nobody"), 3)
    assert (workers.listed(), workers.departed) == ([], {ID})


def test_processes_above_the_limit_are_counted() -> None:
    workers = Workers(limit=1)
    workers.take(BEAT, 1)
    workers.take(replace(BEAT, identity=replace(BEAT.identity, worker_id="another")), 1)
    workers.take(BEAT, 2)
    assert (len(workers.listed()), workers.left_out) == (1, 1)


def heard(phase: str, *answers: Answer) -> Workers:
    workers = Workers()
    told = tuple(Answered(COMMAND.command_id, answer) for answer in answers)
    workers.take(replace(BEAT, phase=phase, answers=told), ASKED_MS + 1_000)
    return workers


@pytest.mark.parametrize(
    ("command", "workers", "after_ms", "outcome"),
    [
        (QUIET, heard("running"), 1_000, None),
        (QUIET, heard("running", Answer.TAKEN), 1_000, None),
        (QUIET, heard("quiet", Answer.TAKEN), 1_000, Outcome.DONE),
        # Quiet already, but by another command, which proves nothing of this one.
        (QUIET, heard("quiet"), 1_000, None),
        (QUIET, heard("running", Answer.EXPIRED), 1_000, Outcome.EXPIRED),
        (QUIET, Workers(), 1_000, Outcome.STOPPED),
        (STOP, Workers(), 1_000, Outcome.DONE),
        (STOP, heard("stopping", Answer.TAKEN), 31_999, None),
        (STOP, heard("stopping", Answer.TAKEN), 32_000, Outcome.UNDER_WAY),
        # An answer of the last moment is waited for.
        (STOP, heard("running"), 31_999, None),
        (STOP, heard("running"), 32_000, Outcome.UNHEARD),
    ],
)
def test_outcome_of_a_command(
    command: WorkerCommand, workers: Workers, after_ms: int, outcome: Outcome | None
) -> None:
    assert outcome_of(command, BEFORE, workers, now_ms=ASKED_MS + after_ms) is outcome


def test_lost_worker_is_not_waited_for() -> None:
    silent = BEFORE._replace(heard_ms=ASKED_MS - 31_000)
    assert outcome_of(STOP, silent, heard("running"), now_ms=ASKED_MS) is Outcome.LOST
    awake = heard("stopping", Answer.TAKEN)
    assert outcome_of(STOP, silent, awake, now_ms=ASKED_MS + 1_000) is None


@pytest.mark.parametrize(
    ("target", "is_for"),
    [
        (Target(), True),
        (Target(TargetKind.HOST, "web-3"), True),
        (Target(TargetKind.HOST, "web-30"), False),
        (Target(TargetKind.WORKER, ID), True),
        (Target(TargetKind.WORKER, "web-3"), False),
    ],
)
def test_target_includes_all_a_host_or_one_process(target: Target, is_for: bool) -> None:
    assert target.includes(BEAT.identity) is is_for


def test_applications_are_those_with_both_topics() -> None:
    topics = ["a.workers", "a.control", "b.workers", "c.control", ".workers", ".control", "d"]
    assert apps_of(topics) == ["a"]
