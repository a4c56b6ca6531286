"""``beat_schedule``: tasks at fixed times, as schedules of the application (docs/schedules.md).

app.conf.beat_schedule = {
    "daily": {"task": "shop.tasks.report", "schedule": crontab(hour=6, minute=0)},
    "often": {"task": "shop.tasks.clean", "schedule": 300.0, "args": (30,)},
}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sharegroup.errors import InvalidConfig
from sharegroup.suggestions import did_you_mean
from sharegroup.worker.declarations.foreign_options import refuse_unknown
from sharegroup.worker.tasks.application import Tasks
from sharegroup.worker.tasks.connected import Connected
from sharegroup.worker.tasks.elsewhere import OF_A_CALL, OF_AN_ENTRY
from sharegroup.worker.tasks.message import message_for

KEYS = ("task", "schedule", "args", "kwargs", "options", "revision")
OPTIONS = ("queue", "expires", "priority")
Field = str | int | list[int] | tuple[int, ...] | set[int]


@dataclass(frozen=True, slots=True, init=False)
class crontab:  # noqa: N801  As in Celery.
    """The times of a schedule: minute, hour, and so on, in the zone ``app.conf.timezone``."""

    expression: str

    def __init__(
        self,
        minute: Field = "*",
        hour: Field = "*",
        day_of_week: Field = "*",
        day_of_month: Field = "*",
        month_of_year: Field = "*",
        **unknown: Any,
    ) -> None:
        refuse_unknown(
            unknown,
            ("minute", "hour", "day_of_week", "day_of_month", "month_of_year"),
            "crontab",
            {"nowfun": "app.conf.timezone", "app": "app.conf.timezone"},
            "it",
        )
        days, weekdays = _text(day_of_month), _text(day_of_week)
        if not days.startswith("*") and not weekdays.startswith("*"):
            raise InvalidConfig(
                f"crontab: day_of_month={days!r} and day_of_week={weekdays!r}: for Celery both "
                f"must hold, for cron one is enough; give one of them, and let the task look at "
                f"the other"
            )
        fields = (_text(minute), _text(hour), days, _text(month_of_year), weekdays)
        object.__setattr__(self, "expression", " ".join(fields))


def _text(field: Field) -> str:
    if isinstance(field, str):
        return field.replace(" ", "")
    if isinstance(field, int):
        return str(field)
    return ",".join(map(str, sorted(field)))


def declare_schedules(tasks: Tasks, on: Connected) -> None:
    """Add the schedules of the settings to the application."""
    for name, entry in tasks.conf.beat_schedule.items():
        whose = f"beat_schedule[{name!r}]"
        if not isinstance(entry, Mapping):
            raise InvalidConfig(f"{whose}: {entry!r:.80}; expected a dict with task and schedule")
        refuse_unknown(entry, KEYS, whose, OF_AN_ENTRY, "an entry")
        if missing := [key for key in ("task", "schedule") if key not in entry]:
            raise InvalidConfig(f"{whose}: it has no {missing[0]!r}")
        _declare(tasks, on, name, dict(entry))


def _declare(tasks: Tasks, on: Connected, name: str, entry: dict[str, Any]) -> None:
    whose = f"beat_schedule[{name!r}]"
    options = dict(entry.get("options") or {})
    refuse_unknown(options, OPTIONS, f"{whose}: options", OF_A_CALL, "a schedule")
    task_name = getattr(entry["task"], "name", entry["task"])
    task = tasks.tasks.get(task_name)
    if task is None and "queue" not in options:
        raise InvalidConfig(
            f"{whose}: there is no task {task_name!r}{did_you_mean(str(task_name), tasks.tasks)}; "
            f"for a task of another project, name its queue: 'options': {{'queue': ...}}"
        )
    message = message_for(task_name, entry.get("args") or (), entry.get("kwargs") or {})
    if task is not None:
        try:
            task.check_arguments(message)
        except TypeError as error:
            raise InvalidConfig(f"{whose}: {error}") from error
    queue = options.get("queue") or tasks.queue_of(
        task_name, None if task is None else task.options
    )
    if queue not in on.queues:
        raise tasks.no_queue(queue)
    routed = on.queues[queue]
    priority = options.get("priority", None if task is None else task.options.priority)
    declared: dict[str, Any] = {
        "to": routed,
        "payload": message,
        "name": name,
        "topic": on.topic(routed, priority),
        "revision": entry.get("revision", 1),
    }
    if "expires" in options:
        declared["missed"] = "skip"
    match entry["schedule"]:
        case crontab() as times:
            on.app.cron(times.expression, timezone=tasks.conf.timezone, **declared)
        case timedelta() | int() | float() as interval if not isinstance(interval, bool):
            on.app.every(interval, **declared)
        case other:
            raise InvalidConfig(
                f"{whose}: schedule={other!r:.80}; expected crontab(...) of sharegroup.worker."
                f"tasks, a timedelta, or a number of seconds"
            )
