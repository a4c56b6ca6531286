"""How long to wait before the next try: exponential, with jitter, never above a limit.

The jitter keeps a hundred clients of one restarted broker from coming back in the same
millisecond, and again in lockstep ever after.  Chance comes in as a function that returns a
number in [0, 1), so a test can name the exact delays.
"""

from __future__ import annotations

from collections.abc import Callable

JITTER = 0.2
"""A delay is stretched or shrunk by up to this part of itself (Kafka's clients do the same)."""


class Backoff:
    """The delays of one thing that fails: each `next_ms` is longer, `reset` starts over."""

    __slots__ = ("_base_ms", "_chance", "_failures", "_max_ms")

    def __init__(self, base_ms: int, max_ms: int, *, chance: Callable[[], float]) -> None:
        assert 0 < base_ms <= max_ms
        self._base_ms = base_ms
        self._max_ms = max_ms
        self._chance = chance
        self._failures = 0

    def next_ms(self) -> int:
        """Count one more failure and say how long to wait after it."""
        # The exponent is bounded: after a day of failures 2**86400 must not be computed.
        doubled = 1 << min(self._failures, 30)
        self._failures += 1
        delay_ms = min(self._base_ms * doubled, self._max_ms)
        stretched = delay_ms * (1 - JITTER + 2 * JITTER * self._chance())
        return min(round(stretched), self._max_ms)

    def reset(self) -> None:
        """It worked: the next failure waits the shortest time again."""
        self._failures = 0
