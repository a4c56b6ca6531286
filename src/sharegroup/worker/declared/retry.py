"""Which failures are tried again, how often, and after how long.

    run 1 -- first --> run 2 -- first * factor --> run 3 -- first * factor^2 --> ... run `attempts`

Delays grow by a factor, so that a service that is down is asked less and less, up to ``longest``;
``jitter`` spreads them, so that what failed together does not come back together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from sharegroup.errors import InvalidConfig
from sharegroup.worker.durations import Duration, seconds
from sharegroup.worker.records.outcomes import Outcome

ErrorClasses = type[BaseException] | tuple[type[BaseException], ...]

ATTEMPTS_MAX = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """``attempts`` runs in all; before the n-th retry ``first * factor ** (n - 1)`` seconds, at
    most ``longest``, give or take ``jitter`` of it.

    ``on`` says which exceptions are tried again, ``never`` which of these are not.
    """

    attempts: int = 5
    first: Duration = "1s"
    factor: float = 3.0
    longest: Duration = "1h"
    jitter: float = 0.2
    on: ErrorClasses = (Exception,)
    never: ErrorClasses = ()
    first_seconds: float = field(init=False, repr=False, compare=False)
    longest_seconds: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("on", "never"):
            object.__setattr__(self, name, _classes(name, getattr(self, name)))
        for name in ("first", "longest"):
            object.__setattr__(self, f"{name}_seconds", _seconds(name, getattr(self, name)))
        if self.attempts not in range(1, ATTEMPTS_MAX + 1):
            raise InvalidConfig(
                f"Retry: attempts={self.attempts!r}; expected 1 (no retry) to {ATTEMPTS_MAX}"
            )
        for name in ("factor", "jitter"):
            if not isinstance(getattr(self, name), int | float):
                raise InvalidConfig(f"Retry: {name}={getattr(self, name)!r}; expected a number")
        if not self.factor >= 1:
            raise InvalidConfig(f"Retry: factor={self.factor!r}; expected 1 or more")
        if not 0 <= self.jitter <= 1:
            raise InvalidConfig(f"Retry: jitter={self.jitter!r}; expected 0 to 1")
        if self.longest_seconds < self.first_seconds:
            raise InvalidConfig(f"Retry: longest={self.longest!r} is below first={self.first!r}")
        if both := set(self.retried) & set(self.not_retried):
            names = ", ".join(sorted(one.__qualname__ for one in both))
            raise InvalidConfig(f"Retry: {names} in `on` and in `never`")

    @property
    def retried(self) -> tuple[type[BaseException], ...]:
        """``on``, as a tuple."""
        return cast("tuple[type[BaseException], ...]", self.on)  # Made one above.

    @property
    def not_retried(self) -> tuple[type[BaseException], ...]:
        """``never``, as a tuple."""
        return cast("tuple[type[BaseException], ...]", self.never)  # Made one above.

    def applies_to(self, error: BaseException) -> bool:
        """Whether such a failure is tried again.

        What is no Exception, as a SystemExit or a CancelledError that a handler raised itself,
        is treated like one: it ended this record's run, and nothing else.
        """
        if isinstance(error, self.not_retried):
            return False
        return isinstance(error, self.retried) or (
            not isinstance(error, Exception) and Exception in self.retried
        )

    def delay(self, retry: int, chance: float) -> float:
        """Seconds before the ``retry``-th retry, from 1; ``chance`` is in [0, 1)."""
        assert retry >= 1, retry
        try:
            grown = self.first_seconds * self.factor ** (retry - 1)
        except OverflowError:  # Of a float's range; by far above any `longest`.
            grown = self.longest_seconds if self.first_seconds else 0.0
        spread = 1 + self.jitter * (2 * chance - 1)
        return min(grown, self.longest_seconds) * spread


def _classes(name: str, given: object) -> tuple[type[BaseException], ...]:
    classes = given if isinstance(given, tuple | list | set | frozenset) else (given,)
    for one in classes:
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            raise InvalidConfig(f"Retry: {name} has {one!r}; expected classes of exceptions")
        if issubclass(one, Outcome):
            raise InvalidConfig(
                f"Retry: {name} has {one.__name__}, which says itself what becomes of a record"
            )
    return tuple(classes)


def _seconds(name: str, given: Duration) -> float:
    try:
        return seconds(given)
    except (TypeError, ValueError) as error:
        raise InvalidConfig(f"Retry: {name}: {error}") from None
