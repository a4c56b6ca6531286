"""The retry policy of a handler: which failures are retried, how often, and after which delay.

    attempt 1 -- initial_delay --> attempt 2 -- initial_delay * multiplier --> attempt 3
              -- initial_delay * multiplier^2 --> ... attempt `max_attempts`

Delays grow up to ``max_delay``, so a service that is down is called less and less often.
``jitter`` spreads them, so records that failed together are not retried together.

A mapping of classes to policies (`RetryByError`) retries each kind of failure in its own way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, cast

from sharegroup.durations import Duration, delay_seconds
from sharegroup.errors import InvalidConfig
from sharegroup.worker.declarations.topics import Replication
from sharegroup.worker.records.outcomes import HandlerDecision, RetryAfter

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
            object.__setattr__(self, name, error_classes("Retry", name, getattr(self, name)))
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

    def policy_for(self, error: BaseException) -> Retry | None:
        """The policy by which this failure, or RetryAfter, is retried; None if it is not."""
        return self if isinstance(error, RetryAfter) or self.applies_to(error) else None

    def delay(self, retry: int, chance: float) -> float:
        """Seconds before the ``retry``-th retry, from 1; ``chance`` is random, in [0, 1)."""
        assert retry >= 1, retry
        try:
            grown = self.initial_delay_seconds * self.multiplier ** (retry - 1)
        except OverflowError:  # Above the range of a float, so above any `max_delay`.
            grown = self.max_delay_seconds if self.initial_delay_seconds else 0.0
        spread = 1 + self.jitter * (2 * chance - 1)
        return min(grown, self.max_delay_seconds) * spread


DEFAULT: Literal["default"] = "default"
"""The key of the policy for failures of classes that a mapping does not name."""

RetryPolicies = Mapping[type[BaseException] | Literal["default"], Retry | None]


@dataclass(frozen=True, slots=True)
class RetryByError:
    """A retry policy for each class of failures, as the option ``retry`` has it as a mapping.

    The policy of a failure is that of the nearest class in its method resolution order, otherwise
    that of the key ``"default"``; without that key it is not retried.  None in place of a policy
    means the same.  All failures of a record count as its attempts, whatever their class is.
    """

    policies: tuple[tuple[type[BaseException], Retry | None], ...]
    default: Retry | None = None

    @classmethod
    def of(cls, policies: RetryPolicies) -> RetryByError:
        """Check a mapping; raises InvalidConfig."""
        named = {key: policy for key, policy in policies.items() if key != DEFAULT}
        for key, policy in policies.items():
            if key != DEFAULT:
                error_classes("Retry", "a key of the mapping", key)
            if not isinstance(policy, Retry | None):
                raise InvalidConfig(
                    f"Retry: the mapping has {policy!r} for {key!r}; expected Retry(...), or None "
                    f"for no retries"
                )
        by_error = cls(tuple(named.items()), policies.get(DEFAULT))
        if not any(by_error._all()):
            raise InvalidConfig(
                "Retry: the mapping has no policy; expected Retry(...) for a class or for "
                "'default', or retry=None for no retries"
            )
        for name in ("replication_factor", "min_insync_replicas"):
            if len(declared := by_error._declared(name)) > 1:
                raise InvalidConfig(
                    f"Retry: the mapping has {name}={sorted(declared)}; expected one number, "
                    f"because all failures of a group wait in the same topics"
                )
        return by_error

    def policy_for(self, error: BaseException) -> Retry | None:
        """The policy by which this failure, or RetryAfter, is retried; None if it is not."""
        named = dict(self.policies)
        # The type's, because an error of the application may lie about its class.
        nearest = next((kind for kind in type(error).__mro__ if kind in named), None)
        policy = self.default if nearest is None else named[nearest]
        if policy is not None:
            return policy.policy_for(error)
        if isinstance(error, RetryAfter) and nearest is None:
            # The handler wants another attempt, so some limit must apply: the widest.
            return max(filter(None, self._all()), key=lambda retry: retry.max_attempts)
        return None

    def applies_to(self, error: BaseException) -> bool:
        """Whether this failure is retried."""
        return self.policy_for(error) is not None

    @property
    def replication_factor(self) -> int | None:
        """The replication factor of the group's retry topics, if a policy declares it."""
        return next(iter(self._declared("replication_factor")), None)

    @property
    def min_insync_replicas(self) -> int | None:
        """The replicas of these topics that must be in sync, if a policy declares it."""
        return next(iter(self._declared("min_insync_replicas")), None)

    def _all(self) -> Iterator[Retry | None]:
        yield from (policy for _, policy in self.policies)
        yield self.default

    def _declared(self, name: str) -> set[int]:
        numbers = {getattr(policy, name) for policy in self._all() if policy is not None}
        return numbers - {None}


def retry_of(value: Retry | RetryPolicies | None) -> Retry | RetryByError | None:
    """Convert the option ``retry``, which may be a mapping."""
    return RetryByError.of(value) if isinstance(value, Mapping) else value


def error_classes(whose: str, name: str, given: object) -> tuple[type[BaseException], ...]:
    """Return classes of failures, of which one or several are given; raises InvalidConfig."""
    classes = given if isinstance(given, tuple | list | set | frozenset) else (given,)
    for kind in classes:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise InvalidConfig(f"{whose}: {name} has {kind!r}; expected classes of exceptions")
        if issubclass(kind, HandlerDecision):
            raise InvalidConfig(
                f"{whose}: {name} has {kind.__name__}, which itself decides the outcome of a record"
            )
    return tuple(classes)


def _seconds(name: str, given: Duration) -> float:
    try:
        return delay_seconds(given)
    except (TypeError, ValueError) as error:
        raise InvalidConfig(f"Retry: {name}: {error}") from None
