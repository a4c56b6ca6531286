"""Options that decide whether a handler is called at all: expiry, filters, circuit breakers.

A handler that declares none of them has no part that looks at its records before they run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sharegroup.durations import Duration, delay_seconds
from sharegroup.errors import InvalidConfig
from sharegroup.worker.declarations.checks import check_callable, is_whole
from sharegroup.worker.declarations.retry import ErrorClasses, error_classes

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
    """None if records expire only by their header."""
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


RUNS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitBreaker:
    """Stops calling a handler while it fails: after ``failures`` among its last ``of`` runs.

    After ``open_for`` one record is handled, which decides whether the others are.  ``on`` has the
    classes of exceptions that count, such as those of a service that may be down.
    """

    failures: int = 10
    of: int = 20
    open_for: Duration = "30s"
    on: ErrorClasses = (Exception,)
    open_seconds: float = field(init=False, repr=False, compare=False)
    classes: tuple[type[BaseException], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not is_whole(self.of, 1, RUNS_MAX) or not is_whole(self.failures, 1, self.of):
            raise InvalidConfig(
                f"CircuitBreaker: failures={self.failures!r}, of={self.of!r}; expected a number of "
                f"runs from 1 to {RUNS_MAX}, and of failures from 1 to that number"
            )
        try:
            open_seconds = delay_seconds(self.open_for)
        except (TypeError, ValueError) as error:
            raise InvalidConfig(f"CircuitBreaker: open_for: {error}") from None
        if not open_seconds:
            raise InvalidConfig("CircuitBreaker: open_for=0; expected more than 0")
        object.__setattr__(self, "open_seconds", open_seconds)
        object.__setattr__(self, "classes", error_classes("CircuitBreaker", "on", self.on))


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
    """Whether a filter takes the payload, too: it cannot be called with only the record."""
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return True
    except ValueError:  # Some functions written in C have no signature.
        return False
    return False
