"""Schedules of an application: due runs, the records that keep them, and commands for them.

    timing               when a schedule is due: an interval, or a cron expression in a time zone
    schedule             a schedule as an application declares it, and as its owner stores it
    due_runs             decides which runs are due, and what commands change (pure)
    schedule_records     the records of the topic ``<app>.schedules``
    schedule_log         reads them from a cluster
    schedule_client      `Schedules`: lists, pauses, resumes and runs schedules from any program

The owner of a schedule, which writes the runs, is in `sharegroup.worker.scheduling`.
Names are imported when they are first used, so declaring schedules does not import the client.
"""

from typing import TYPE_CHECKING

from sharegroup.lazy_names import lazy_names

if TYPE_CHECKING:
    from sharegroup.schedules.schedule import (
        Missed as Missed,
        ScheduleDefinition as ScheduleDefinition,
        ScheduledRun as ScheduledRun,
        StoredSchedule as StoredSchedule,
    )
    from sharegroup.schedules.schedule_client import (
        CommandResult as CommandResult,
        ScheduleListing as ScheduleListing,
        ScheduleNotFound as ScheduleNotFound,
        Schedules as Schedules,
    )
    from sharegroup.schedules.timing import Cron as Cron, Interval as Interval


if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "schedules.schedule": "Missed ScheduleDefinition ScheduledRun StoredSchedule",
            "schedules.schedule_client": """
                CommandResult ScheduleListing ScheduleNotFound Schedules
            """,
            "schedules.timing": "Cron Interval",
        },
    )
