"""The OPTIONS of the backend in Django's setting TASKS, checked; needs no Django.

All problems are found at once, so that ``manage.py check`` reports each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import Any

from sharegroup.durations import Duration, seconds
from sharegroup.errors import InvalidConfig
from sharegroup.suggestions import did_you_mean
from sharegroup.worker import Retry
from sharegroup.worker.declarations.checks import checked_app_name, checked_group, is_whole, or_none

CONCURRENCY_MAX = 1_000
ATTEMPTS_MAX = 1_000
"""Each attempt is an element of the result's ``worker_ids``."""
RESULT_BYTES = 64 * 1024
RESULT_BYTES_MAX = 16 * 1024 * 1024
NO_RETRY = Retry(max_attempts=1)
CLASSES = ("retry_on", "dont_retry_on")
"""The options of `Retry` that have exception classes, which settings name by their paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """The options of a backend."""

    name: str = "django-tasks"
    """Prefix of groups and topics, and the client id: ``<name>.<queue>``."""
    database: str = "default"
    """The alias in DATABASES in which results and the outbox are."""
    bootstrap_servers: str | list[str] | None = None
    """Addresses of brokers; by default those of SHAREGROUP_BOOTSTRAP or of the profile."""
    client: Mapping[str, Any] = field(default_factory=dict)
    """Further options of the Kafka clients, such as those for security."""
    concurrency: int = 8
    """The number of tasks that run at the same time in a worker process."""
    retry: Retry = NO_RETRY
    """A mapping with the options of `Retry`; exception classes are given by their paths."""
    max_handling: Duration | None = "1h"
    """A task that runs for longer is interrupted, and this attempt fails."""
    grace: Duration = "30s"
    """The time that running tasks get to finish when the worker stops."""
    result_bytes_max: int = RESULT_BYTES
    """The size of a return value as JSON; a task that returns more fails."""
    announce: bool = False
    """Whether workers announce themselves, for ``sharegroup worker status``."""
    replication_factor: int | None = None
    """Replicas of the topics; by default three, or one per broker if there are fewer."""


def read_options(
    given: Mapping[str, Any], queues: Collection[str]
) -> tuple[TaskOptions | None, list[str]]:
    """Return the options, or None and what is wrong with them, a sentence for each problem."""
    problems: list[str] = []
    if not isinstance(given, Mapping):
        return None, [f"OPTIONS: expected a dict, got {given!r}"]
    names = [option.name for option in fields(TaskOptions)]
    for unknown in sorted(str(name) for name in given if name not in names):
        suggestion = did_you_mean(unknown, names)
        problems.append(
            f"OPTIONS: there is no option {unknown!r}{suggestion}"
            + ("" if suggestion else f"; the options are {', '.join(names)}")
        )
    values: dict[str, Any] = {}
    for name in names:
        if name in given:
            try:
                values[name] = CHECKS[name](given[name])
            except (InvalidConfig, ImportError, TypeError, ValueError) as error:
                problems.append(f"OPTIONS: {name}: {error}")
    options = TaskOptions(**values)
    problems += _queue_problems(options.name, queues)
    return (None, problems) if problems else (options, [])


def group_of(name: str, queue: str) -> str:
    """The share group of a queue."""
    return f"{name}.{queue}"


def _queue_problems(name: str, queues: Collection[str]) -> list[str]:
    if not queues:
        return ["QUEUES: expected one or more, because each has its own topics; [] means any queue"]
    problems = []
    for queue in sorted(queues, key=str):
        try:
            checked_group(group_of(name, _text(queue)))
        except (InvalidConfig, TypeError) as error:
            problems.append(f"QUEUES: {queue!r}: {error}")
    return problems


def _whole(low: int, high: int) -> Callable[[object], int]:
    def check(given: object) -> int:
        if not is_whole(given, low, high):
            raise InvalidConfig(f"expected {low} to {high}, got {given!r}")
        assert isinstance(given, int)
        return given

    return check


def _retry(given: object) -> Retry:
    if isinstance(given, Retry):
        retry = given
    elif isinstance(given, Mapping):
        settings = dict(given)
        for name in CLASSES:
            if name in settings:
                settings[name] = _classes(settings[name])
        retry = Retry(**settings)
    else:
        raise TypeError(f"expected a dict as {{'max_attempts': 5}}, got {given!r}")
    if retry.max_attempts > ATTEMPTS_MAX:
        raise InvalidConfig(f"max_attempts={retry.max_attempts}; expected up to {ATTEMPTS_MAX}")
    return retry


def _classes(given: object) -> tuple[Any, ...]:
    paths = given if isinstance(given, list | tuple) else (given,)
    return tuple(_imported(path) if isinstance(path, str) else path for path in paths)


def _imported(path: str) -> object:
    module, _, name = path.rpartition(".")
    try:
        return getattr(import_module(module or "builtins"), name)
    except (AttributeError, ImportError) as error:
        raise InvalidConfig(f"{path!r}: no such exception class ({error})") from error


def _text(given: object) -> str:
    if not isinstance(given, str) or not given:
        raise TypeError(f"expected a text, got {given!r}")
    return given


def _servers(given: object) -> object:
    texts = given if isinstance(given, list) else [given]
    if given is not None and not (texts and all(isinstance(text, str) for text in texts)):
        raise TypeError(f"expected 'host:port', or a list of those, got {given!r}")
    return given


def _mapping(given: object) -> object:
    if not isinstance(given, Mapping):
        raise TypeError(f"expected a dict, got {given!r}")
    return given


def _duration(given: Any) -> Duration:
    if not seconds(given) > 0:
        raise ValueError(f"expected more than 0, got {given!r}")
    return given


def _grace(given: Any) -> Duration:
    seconds(given)
    return given


def _flag(given: object) -> bool:
    if not isinstance(given, bool):
        raise TypeError(f"expected True or False, got {given!r}")
    return given


CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "name": checked_app_name,
    "database": _text,
    "bootstrap_servers": _servers,
    "client": _mapping,
    "concurrency": _whole(1, CONCURRENCY_MAX),
    "retry": _retry,
    "max_handling": or_none(_duration),
    "grace": _grace,
    "result_bytes_max": _whole(1, RESULT_BYTES_MAX),
    "announce": _flag,
    "replication_factor": or_none(_whole(1, 2**15 - 1)),
}
"""For each option the function that returns its value, or raises what is wrong with it."""
