"""Options that decide whether a handler is called at all: expiry and filters.

A handler that declares none of them has no part that looks at its records before they run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sharegroup.errors import InvalidConfig
from sharegroup.worker.declarations.checks import check_callable
from sharegroup.worker.durations import Duration, delay_seconds

Filter = Callable[..., Any]
"""A function of a `Record`, or of a payload and its `Record`: whether the handler is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """When a record is too old for its handler, and what then becomes of it.

    A record expires ``after`` this time since its timestamp, and at the time in its header
    ``expires``, whichever is earlier.  With ``dead_letter`` it becomes a dead letter, otherwise it
    is dropped.
    """

    after: Duration | None = None
    """None if records expire by their header alone."""
    dead_letter: bool = True
    after_ms: int | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            after_ms = None if self.after is None else round(delay_seconds(self.after) * 1000)
        except (TypeError, ValueError) as error:
            raise InvalidConfig(f"Expiry: after: {error}") from None
        if after_ms == 0:
            raise InvalidConfig("Expiry: after=0; expected more than 0, or None for the header")
        if not isinstance(self.dead_letter, bool):
            raise InvalidConfig(f"Expiry: dead_letter={self.dead_letter!r}; expected True or False")
        object.__setattr__(self, "after_ms", after_ms)


def expiry_of(value: Expiry | Duration | None) -> Expiry | None:
    """Convert the option ``expires_after``, which may be a duration."""
    return value if isinstance(value, Expiry | None) else Expiry(after=value)


def check_filter(function: object, *, may_decode: bool) -> None:
    """Raise InvalidConfig unless ``function`` is a plain function of a record."""
    if inspect.iscoroutinefunction(function):
        raise InvalidConfig(
            "only: expected a plain function, because the worker does not wait for it; a handler "
            "that must ask somebody returns at once for records that it does not need"
        )
    check_callable(function, "only", takes=(1, 2))
    if takes_payload(function) and not may_decode:
        raise InvalidConfig(
            "only: its payloads are decoded with a schema registry, which may have to be waited "
            "for; expected a function of the record alone, such as of its headers"
        )


def takes_payload(function: Any) -> bool:
    """Whether a filter takes the payload, too: it cannot be called with the record alone."""
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return True
    except ValueError:  # Some functions written in C have no signature.
        return False
    return False
