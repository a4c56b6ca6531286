"""Checks of the functions and numbers that an application is given, made when they are declared.

Examples are a hook with too many parameters, or a listener that is a coroutine function and would
never be awaited.  The error is raised at the declaration, not when the first record fails.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection
from typing import Any

from sharegroup.dead_letters.topics import is_topic_name
from sharegroup.durations import Duration, seconds
from sharegroup.errors import InvalidConfig
from sharegroup.fleet.fleet_topics import APP_NAME, OF_A_GROUP, commands_topic
from sharegroup.worker.stores.store import Store

# Checks of topic and group names, and the names of topics that a worker adds to a group.
#
# These topics are named after the group, so the name of a group must be valid in a topic name::
#
#     billing.retry, .retry. ...  retries (`sharegroup.waiting.retry_topics`)
#     billing.dead                the dead letters, unless their topic is declared


PARTITIONS_MAX = 2**31 - 1

GROUP_CHARACTERS_MAX = 220
_GROUP = re.compile(rf"[a-zA-Z0-9._-]{{1,{GROUP_CHARACTERS_MAX}}}")


def checked_topic(name: object, whose: str) -> str:
    """Return ``name`` if Kafka allows it as a topic name; raise InvalidConfig otherwise."""
    if isinstance(name, str) and is_topic_name(name):
        return name
    raise InvalidConfig(
        f"{whose}: topic {name!r}; expected 1 to 249 of the characters a-z A-Z 0-9 . _ -"
    )


def checked_group(name: object, declared_by: str = "share_group") -> str:
    """Return ``name`` if the group's own topics can be named after it.

    Raises InvalidConfig otherwise.
    """
    if isinstance(name, str) and _GROUP.fullmatch(name):
        return name
    if callable(name):
        raise InvalidConfig(
            f"{declared_by}: expected a group's name, got {name!r}; "
            f"write @app.{declared_by}('group', topics='topic') above the handler"
        )
    raise InvalidConfig(
        f"{declared_by.replace('_', ' ')} {name!r}: expected 1 to {GROUP_CHARACTERS_MAX} of the "
        f"characters a-z A-Z 0-9 . _ -, because its own topics are named <group>.retry and so on"
    )


def dead_topic(group: str) -> str:
    """The default dead-letter topic of this group."""
    return f"{group}.dead"


def check_callable(function: object, whose: str, *, takes: Collection[int]) -> None:
    """Raise InvalidConfig unless ``function`` accepts one of these numbers of arguments."""
    if not callable(function):
        raise InvalidConfig(f"{whose}: expected a function, got {function!r}")
    try:
        signature = inspect.signature(function)
    except ValueError:  # Some functions written in C have no signature.
        return
    for count in takes:
        try:
            signature.bind(*(None,) * count)
        except TypeError:
            continue
        return
    counts = " or ".join(map(str, sorted(takes)))
    name = getattr(function, "__qualname__", repr(function))
    raise InvalidConfig(f"{whose}: {name}{signature} can't be called with {counts} arguments")


def check_listener(function: object, whose: str) -> None:
    """Raise InvalidConfig unless ``function`` is a plain function that accepts an event."""
    check_callable(function, whose, takes=(1,))
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  An object whose `__call__` is one.
    ):
        raise InvalidConfig(
            f"{whose}: {function!r} is a coroutine function, which would not be awaited; expected "
            f"a plain function that returns quickly: let it start a task, or put the event in a "
            f"queue"
        )


def check_redact(redact: object, whose: str) -> None:
    """Raise InvalidConfig unless ``redact`` is a plain function that accepts a text."""
    check_callable(redact, f"{whose}: redact", takes=(1,))
    if inspect.iscoroutinefunction(redact):
        raise InvalidConfig(f"{whose}: redact must be a plain function, not a coroutine function")


def is_whole(value: object, low: int, high: int) -> bool:
    """Whether ``value`` is an int, not a bool, from ``low`` to ``high`` (both included)."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def is_number(value: object, low: float) -> bool:
    """Whether ``value`` is an int or float of ``low`` or more; False for a bool and for NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= low


def or_none(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a check that accepts None besides what ``check`` accepts."""
    return lambda value: None if value is None else check(value)


def checked_app_name(given: object) -> str:
    """Return the name of an App; raise InvalidConfig if it is none."""
    if not isinstance(given, str) or not APP_NAME.fullmatch(given):
        raise InvalidConfig(
            f"App name {given!r}: expected 1 to 100 of the characters a-z A-Z 0-9 . _ -"
        )
    return given


def checked_announce(given: object, name: str) -> bool:
    """Return whether the workers of this App announce themselves; raise InvalidConfig."""
    if not isinstance(given, bool):
        raise InvalidConfig(f"App {name!r}: announce={given!r}; expected True or False")
    if given and name.endswith(OF_A_GROUP):
        raise InvalidConfig(
            f"App {name!r}: announce=True needs a name that does not end in {OF_A_GROUP!r}: "
            f"{commands_topic(name)!r} is the topic of commands for waiting records of a group"
        )
    return given


def checked_grace(given: Duration, name: str) -> float:
    """Return the grace of this App in seconds; raise InvalidConfig if it is no duration."""
    try:
        return seconds(given)
    except (TypeError, ValueError) as error:
        raise InvalidConfig(f"App {name!r}: grace: {error}") from None


def checked_store(given: Store | None, name: str) -> Store | None:
    """Return the store of this App; raise InvalidConfig if it is none."""
    if given is not None and not callable(getattr(given, "reserve", None)):
        raise InvalidConfig(
            f"App {name!r}: store={given!r:.80}; expected a store, such as "
            f"SqliteStore('names.db'), PostgresStore(...) or RedisStore(...)"
        )
    return given
