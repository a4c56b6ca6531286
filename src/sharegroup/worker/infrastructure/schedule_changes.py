"""Differences between the schedules that an application declares and those that are stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sharegroup.schedules.schedule import StoredSchedule
from sharegroup.worker.declarations.schedules import DeclaredSchedule
from sharegroup.worker.infrastructure.changes import Change, ChangeKind

SCHEDULE = "schedule"
"""The resource of these changes."""
REVISION = "revision"


def schedule_changes(
    declared: Iterable[DeclaredSchedule], stored: Iterable[StoredSchedule]
) -> list[Change]:
    """Return the differences; a worker that starts declares what is missing or newer.

    A newer stored revision is none: the process that asks is of an older deployment.
    """
    there = {schedule.name: schedule for schedule in stored}
    here = {schedule.name: schedule for schedule in declared}
    return [
        *(change for schedule in here.values() for change in _of(schedule, there)),
        *(_surplus(there[name]) for name in sorted(there.keys() - here.keys())),
    ]


def _of(schedule: DeclaredSchedule, there: dict[str, StoredSchedule]) -> Iterator[Change]:
    stored = there.get(schedule.name)
    if stored is None:
        yield Change(
            ChangeKind.WARNING,
            *(SCHEDULE, schedule.name),
            wanted=str(schedule.revision),
            why="a worker that starts declares it",
        )
        return
    revision = stored.definition.revision
    if schedule.revision > revision:
        yield Change(
            ChangeKind.WARNING,
            *(SCHEDULE, schedule.name, REVISION),
            now=str(revision),
            wanted=str(schedule.revision),
            why="a worker that starts declares it",
        )
    elif schedule.revision == revision and schedule.definition() != stored.definition:
        yield Change(
            ChangeKind.REFUSED,
            *(SCHEDULE, schedule.name, REVISION),
            now=str(revision),
            wanted=str(schedule.revision),
            why=f"it differs from the stored one; declare it with revision={revision + 1}",
        )


def _surplus(stored: StoredSchedule) -> Change:
    return Change(
        ChangeKind.SURPLUS,
        *(SCHEDULE, stored.name),
        now=str(stored.definition.revision),
        why="not declared; it is still run",
    )
