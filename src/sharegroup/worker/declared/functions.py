"""Functions that an application is given: looked at when they are declared.

A hook that takes too much, or a listener that is a coroutine function and would never be awaited,
is an error of the line that declares it, and is told there and not when the first record fails.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection

from sharegroup.errors import InvalidConfig


def check_callable(function: object, whose: str, *, takes: Collection[int]) -> None:
    """InvalidConfig unless it can be called with one of these numbers of arguments."""
    if not callable(function):
        raise InvalidConfig(f"{whose}: expected a function, got {function!r}")
    try:
        signature = inspect.signature(function)
    except ValueError:  # Of some that are written in C nobody knows what they take.
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
    """InvalidConfig unless it is a plain function of an event."""
    check_callable(function, whose, takes=(1,))
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  An object whose call is one.
    ):
        raise InvalidConfig(
            f"{whose}: {function!r} is a coroutine function, which nobody would await; expected "
            f"a plain, quick function: let it start a task, or put the event in a queue"
        )
