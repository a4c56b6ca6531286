"""The retry policy of a handler: which failures are retried, how often, and after which delay.

    attempt 1 -- initial_delay --> attempt 2 -- initial_delay * multiplier --> attempt 3
              -- initial_delay * multiplier^2 --> ... attempt `max_attempts`

Delays grow up to ``max_delay``, so a service that is down is called less and less often.
``jitter`` spreads them, so records that failed together are not retried together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from sharegroup.errors import InvalidConfig
from sharegroup.worker.declarations.topics import Replication
from sharegroup.worker.durations import Duration, delay_seconds
from sharegroup.worker.records.outcomes import HandlerDecision

ErrorClasses = type[BaseException] | tuple[type[BaseException], ...]

ATTEMPTS_MAX = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The retry policy of a handler.

    ``max_attempts`` counts all attempts, including the first.  The delay before the n-th retry is
    ``initial_delay * multiplier ** (n - 1)``, at most ``max_delay``.  It then varies by up to
    ``jitter`` of it in both directions.

    ``retry_on`` has the exception classes to retry.  ``dont_retry_on`` has subclasses of these that
    are not retried.
    ``replication_factor`` and ``min_insync_replicas`` apply to the group's retry topics, and
    default to those of the App.
    """

    max_attempts: int = 5
    initial_delay: Duration = "1s"
    multiplier: float = 3.0
    max_delay: Duration = "1h"
    jitter: float = 0.2
    retry_on: ErrorClasses = (Exception,)
    dont_retry_on: ErrorClasses = ()
    replication_factor: int | None = None
    min_insync_replicas: int | None = None
    initial_delay_seconds: float = field(init=False, repr=False, compare=False)
    max_delay_seconds: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("retry_on", "dont_retry_on"):
            object.__setattr__(self, name, _classes(name, getattr(self, name)))
        for name in ("initial_delay", "max_delay"):
            object.__setattr__(self, f"{name}_seconds", _seconds(name, getattr(self, name)))
        if self.max_attempts not in range(1, ATTEMPTS_MAX + 1):
            raise InvalidConfig(
                f"Retry: max_attempts={self.max_attempts!r}; expected 1 (no retry) to "
                f"{ATTEMPTS_MAX}"
            )
        for name in ("multiplier", "jitter"):
            if not isinstance(getattr(self, name), int | float):
                raise InvalidConfig(f"Retry: {name}={getattr(self, name)!r}; expected a number")
        if not self.multiplier >= 1:
            raise InvalidConfig(
                f"Retry: multiplier={self.multiplier!r}; expected 1 (a constant delay) or more"
            )
        if not 0 <= self.jitter <= 1:
            raise InvalidConfig(f"Retry: jitter={self.jitter!r}; expected 0 to 1")
        if self.max_delay_seconds < self.initial_delay_seconds:
            raise InvalidConfig(
                f"Retry: max_delay={self.max_delay!r} is below "
                f"initial_delay={self.initial_delay!r}; expected at least as much: set a longer "
                f"max_delay or a shorter initial_delay"
            )
        Replication(self.replication_factor, self.min_insync_replicas).checked("Retry")
        for error_class in self._retry_on:
            if issubclass(error_class, self._dont_retry_on):
                excluding = next(
                    excluded
                    for excluded in self._dont_retry_on
                    if issubclass(error_class, excluded)
                )
                raise InvalidConfig(
                    f"Retry: retry_on has {error_class.__qualname__}, and dont_retry_on has "
                    f"{excluding.__qualname__}, which excludes it; expected subclasses of the "
                    f"classes of retry_on: remove one of the two"
                )

    @property
    def _retry_on(self) -> tuple[type[BaseException], ...]:
        return cast("tuple[type[BaseException], ...]", self.retry_on)  # See `__post_init__`.

    @property
    def _dont_retry_on(self) -> tuple[type[BaseException], ...]:
        return cast("tuple[type[BaseException], ...]", self.dont_retry_on)  # See `__post_init__`.

    def applies_to(self, error: BaseException) -> bool:
        """Whether this failure is retried.

        A SystemExit or CancelledError that a handler raised itself is not an Exception but is
        treated like one, because it ended the run of this record only.
        """
        if isinstance(error, self._dont_retry_on):
            return False
        return isinstance(error, self._retry_on) or (
            not isinstance(error, Exception) and Exception in self._retry_on
        )

    def delay(self, retry: int, chance: float) -> float:
        """Seconds before the ``retry``-th retry, from 1; ``chance`` is random, in [0, 1)."""
        assert retry >= 1, retry
        try:
            grown = self.initial_delay_seconds * self.multiplier ** (retry - 1)
        except OverflowError:  # Above the range of a float, so above any `max_delay`.
            grown = self.max_delay_seconds if self.initial_delay_seconds else 0.0
        spread = 1 + self.jitter * (2 * chance - 1)
        return min(grown, self.max_delay_seconds) * spread


def _classes(name: str, given: object) -> tuple[type[BaseException], ...]:
    classes = given if isinstance(given, tuple | list | set | frozenset) else (given,)
    for kind in classes:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise InvalidConfig(f"Retry: {name} has {kind!r}; expected classes of exceptions")
        if issubclass(kind, HandlerDecision):
            raise InvalidConfig(
                f"Retry: {name} has {kind.__name__}, which itself decides the outcome of a record"
            )
    return tuple(classes)


def _seconds(name: str, given: Duration) -> float:
    try:
        return delay_seconds(given)
    except (TypeError, ValueError) as error:
        raise InvalidConfig(f"Retry: {name}: {error}") from None
