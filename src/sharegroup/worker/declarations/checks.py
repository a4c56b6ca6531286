"""Checks of the functions and numbers that an application is given, made when they are declared.

Examples are a hook with too many parameters, or a listener that is a coroutine function and would
never be awaited.  The error is raised at the declaration, not when the first record fails.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection

from sharegroup.errors import InvalidConfig


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
