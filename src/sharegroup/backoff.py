"""The delay before the next attempt: exponential, with jitter, up to a maximum.

Because of the jitter, a hundred clients of a restarted broker do not reconnect in the same
millisecond, and their later attempts are not in step.  The source of chance is a function that
returns a number in [0, 1), so tests can determine the exact delays; with `without_jitter` the
delays are exactly 1, 2, 4, ... times the first one.
"""

from __future__ import annotations

from collections.abc import Callable

JITTER = 0.2
"""The largest relative change of a delay, up or down (as in Kafka's clients)."""


def without_jitter() -> float:
    """Return the chance that changes no delay, for attempts that only one process makes."""
    return 0.5


class Backoff:
    """Growing delays after failures: each `next_ms` is longer, and `reset` starts over."""

    __slots__ = ("_base_ms", "_chance", "_failures", "_max_ms")

    def __init__(self, base_ms: int, max_ms: int, *, chance: Callable[[], float]) -> None:
        assert 0 < base_ms <= max_ms
        self._base_ms = base_ms
        self._max_ms = max_ms
        self._chance = chance
        self._failures = 0

    def next_ms(self) -> int:
        """Count one more failure, and return the delay after it in milliseconds."""
        # The exponent is limited, because after a day of failures 2**86400 would be computed.
        doubled = 1 << min(self._failures, 30)
        self._failures += 1
        delay_ms = min(self._base_ms * doubled, self._max_ms)
        stretched = delay_ms * (1 - JITTER + 2 * JITTER * self._chance())
        return min(round(stretched), self._max_ms)

    def reset(self) -> None:
        """Note a success, so that the next failure has the shortest delay again."""
        self._failures = 0


class Pause:
    """The pause before the next attempt, for example to connect to one address."""

    __slots__ = ("_backoff", "_monotonic", "_until", "failures")

    def __init__(self, backoff: Backoff, monotonic: Callable[[], float]) -> None:
        self.failures = 0
        """The number of failures in a row since the last success."""
        self._backoff = backoff
        self._monotonic = monotonic
        self._until = 0.0

    def remaining_seconds(self) -> float:
        """Return the seconds until the next attempt; 0 if it may be made now."""
        return max(0.0, self._until - self._monotonic())

    def failed(self) -> None:
        """Begin a pause, longer than the one before."""
        self.failures += 1
        self._until = self._monotonic() + self._backoff.next_ms() / 1000

    def worked(self) -> None:
        """End the pauses, so that the next one has the shortest time again."""
        self.failures = 0
        self._backoff.reset()
        self._until = 0.0
