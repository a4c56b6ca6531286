"""What became of a command, as the records of its partition say after it was deleted."""

from __future__ import annotations

import pytest

from sharegroup.schedules.schedule import ScheduleDefinition, StoredSchedule
from sharegroup.schedules.schedule_client import was_carried_out
from sharegroup.schedules.schedule_records import Intent, ScheduleCommand
from sharegroup.schedules.timing import Interval

NIGHTLY = ScheduleDefinition(name="nightly", revision=1, timing=Interval(1_000), topic="reports")
ASKED_MS = 10_000_000


def stored(last_run_ms: int | None) -> StoredSchedule:
    return StoredSchedule(definition=NIGHTLY, last_due_ms=0, last_run_ms=last_run_ms)


def command(intent: Intent) -> ScheduleCommand:
    return ScheduleCommand(name="nightly", intent=intent, id="f0", by="anna", asked_ms=ASKED_MS)


@pytest.mark.parametrize(
    ("last_run_ms", "is_done"),
    [
        (None, False),
        (9_000_000, False),  # As before.
        (ASKED_MS, True),
        (ASKED_MS + 1_000, True),  # One that was due after that of the command.
        (ASKED_MS + 3_600_001, False),  # The command had expired.
    ],
)
def test_a_command_to_run_is_done_if_there_was_a_run(
    last_run_ms: int | None, is_done: bool
) -> None:
    before, after = stored(9_000_000), stored(last_run_ms)

    assert was_carried_out(command(Intent.RUN), before, [after]) is is_done


@pytest.mark.parametrize("intent", [Intent.PAUSE, Intent.RESUME, Intent.RUN])
def test_a_command_for_a_schedule_that_is_gone_was_forgotten(intent: Intent) -> None:
    assert not was_carried_out(command(intent), stored(None), [])


def test_a_removed_schedule_is_gone() -> None:
    assert was_carried_out(command(Intent.REMOVE), stored(None), [])
