"""The options of a task, and when a run that failed is tried again: Celery's rules.

countdown of retry n (from 0)    min(retry_backoff * 2 ** n, retry_backoff_max), with
                                 retry_jitter a random number of seconds below it
without retry_backoff            default_retry_delay, 180 s
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from sharegroup.errors import InvalidConfig
from sharegroup.worker.declarations.checks import is_whole
from sharegroup.worker.declarations.foreign_options import refuse_unknown
from sharegroup.worker.declarations.retry import error_classes
from sharegroup.worker.tasks.elsewhere import CANVAS_OF_TASKS, OF_A_TASK
from sharegroup.worker.tasks.settings import CHECKS, seconds_of

RETRIES_MAX = 999_999
"""The retries of a task with ``max_retries=None``; the attempts of a record are limited."""
EXPONENT_MAX = 60

ErrorClass = type[BaseException]


class TaskArguments(TypedDict, total=False):
    """The options of ``@app.task``."""

    name: str
    bind: bool
    queue: str
    ignore_result: bool
    max_retries: int | None
    default_retry_delay: float
    autoretry_for: tuple[ErrorClass, ...] | list[ErrorClass] | ErrorClass
    dont_autoretry_for: tuple[ErrorClass, ...] | list[ErrorClass] | ErrorClass
    retry_kwargs: Mapping[str, Any]
    retry_backoff: bool | float
    retry_backoff_max: float
    retry_jitter: bool
    time_limit: float | None
    expires: float | None
    priority: int | None
    typing: bool
    serializer: str
    acks_late: bool
    reject_on_worker_lost: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """The options of a task, checked."""

    name: str
    bind: bool = False
    queue: str | None = None
    """None for the queue of ``task_routes``, or the default one."""
    ignore_result: bool | None = None
    """None for the setting ``task_ignore_result``."""
    max_retries: int | None = 3
    default_retry_delay: float = 180.0
    autoretry_for: tuple[ErrorClass, ...] = ()
    dont_autoretry_for: tuple[ErrorClass, ...] = ()
    retry_backoff: float = 0.0
    """The first countdown in seconds; 0 for none that grows."""
    retry_backoff_max: float = 600.0
    retry_jitter: bool = True
    time_limit: float | None = None
    """None for the setting ``task_time_limit``."""
    expires: float | None = None
    priority: int | None = None
    typing: bool = True

    def retries_itself(self, error: BaseException) -> bool:
        """Whether this failure is tried again without a call of ``self.retry``."""
        return isinstance(error, self.autoretry_for) and not isinstance(
            error, self.dont_autoretry_for
        )

    def countdown(self, retries: int, chance: float) -> float:
        """Seconds before the next run, after ``retries`` of them; ``chance`` is in [0, 1)."""
        if not self.retry_backoff:
            return self.default_retry_delay
        grown = self.retry_backoff * 2.0 ** min(retries, EXPONENT_MAX)
        longest = min(grown, self.retry_backoff_max)
        # As Celery: whole seconds, from none to the longest.
        return float(int(chance * (longest + 1))) if self.retry_jitter else longest


def task_options(name: str, given: TaskArguments) -> TaskOptions:
    """Check the options of a task; raises InvalidConfig, which names the task and the option."""
    whose = f"task {name!r}"
    options: dict[str, Any] = {**given}
    known = TaskArguments.__annotations__
    refuse_unknown(options, known, whose, {**CANVAS_OF_TASKS, **OF_A_TASK}, "a task")
    _take_fixed(options, whose)
    _take_retry(options, whose)
    for option in ("default_retry_delay", "retry_backoff_max", "time_limit", "expires"):
        if options.get(option) is not None:
            options[option] = _number(option, options[option], whose)
    if options.get("time_limit") == 0:
        raise InvalidConfig(f"{whose}: time_limit=0; expected more than 0, or None for no limit")
    for option in ("bind", "retry_jitter", "typing", "ignore_result"):
        if not isinstance(options.get(option, False), bool):
            raise InvalidConfig(
                f"{whose}: {option}={options[option]!r:.80}; expected True or False"
            )
    options["name"] = name
    return TaskOptions(**options)


def _take_retry(options: dict[str, Any], whose: str) -> None:
    """Check the options of retries, and put those of ``retry_kwargs`` in their places."""
    retry = dict(options.pop("retry_kwargs", {}))
    refuse_unknown(retry, ("max_retries", "countdown"), whose, {}, "retry_kwargs")
    for option, place in (("max_retries", "max_retries"), ("default_retry_delay", "countdown")):
        if place in retry:
            options[option] = retry[place]
    for option in ("autoretry_for", "dont_autoretry_for"):
        if option in options:
            options[option] = error_classes(whose, option, options[option])
    if backoff := options.get("retry_backoff"):
        # As Celery: True is a factor of 1 s, and a factor below that as well.
        number = 1.0 if backoff is True else _number("retry_backoff", backoff, whose)
        options["retry_backoff"] = max(1.0, number)
    most = options.get("max_retries", 0)
    if most is not None and not is_whole(most, 0, RETRIES_MAX):
        raise InvalidConfig(
            f"{whose}: max_retries={most!r:.80}; expected 0 to {RETRIES_MAX}, or None for no limit"
        )


def _take_fixed(options: dict[str, Any], whose: str) -> None:
    """Check the options that can only have one value here, and remove them."""
    for option, setting in (
        ("serializer", "task_serializer"),
        ("acks_late", "task_acks_late"),
        ("reject_on_worker_lost", "task_reject_on_worker_lost"),
    ):
        if option in options:
            try:
                CHECKS[setting](options.pop(option))
            except ValueError as error:
                raise InvalidConfig(f"{whose}: {option}: {error}") from error


def _number(option: str, value: Any, whose: str) -> float:
    number = seconds_of(value)
    if number is None or not 0 <= number < float("inf"):
        raise InvalidConfig(f"{whose}: {option}={value!r:.80}; expected seconds, 0 or more")
    return float(number)
