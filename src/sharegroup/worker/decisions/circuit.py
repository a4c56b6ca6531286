"""A circuit breaker: decides from the latest runs of a handler whether it is to be called; pure.

              N of the last M runs failed                  time is over
    CLOSED ------------------------------> OPEN --------------------------> HALF_OPEN
       ^                                    ^                                |      |
       |                                    '-------- the probe failed ------'      |
       '------------------------------ the probe succeeded -------------------------'

Runs that began before the probe say nothing about the time after it, and are ignored.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum


class CircuitState(StrEnum):
    """The state of a circuit breaker."""

    CLOSED = "closed"
    """The handler is called for all records."""
    OPEN = "open"
    """It is not called."""
    HALF_OPEN = "half_open"
    """It is called for one record, the probe, which decides."""


class Circuit:
    """The state of a handler's circuit breaker, from the outcomes of its latest runs."""

    __slots__ = ("_failed", "_failures_max", "_probe_from", "_runs", "state")

    def __init__(self, *, failures: int, of: int) -> None:
        self._failures_max = failures
        self._runs: deque[bool] = deque(maxlen=of)
        """Whether each of the latest runs has failed."""
        self._failed = 0
        self._probe_from = 0.0
        self.state = CircuitState.CLOSED

    def observe(self, *, has_failed: bool, begun_at: float) -> bool:
        """Note the outcome of a run; returns whether the state has changed."""
        match self.state:
            case CircuitState.OPEN:
                return False
            case CircuitState.HALF_OPEN:
                if begun_at < self._probe_from:
                    return False
                self._clear()
                self.state = CircuitState.OPEN if has_failed else CircuitState.CLOSED
                return True
        runs = self._runs
        if len(runs) == runs.maxlen:
            self._failed -= runs[0]
        runs.append(has_failed)
        self._failed += has_failed
        if self._failed < self._failures_max:
            return False
        self._clear()
        self.state = CircuitState.OPEN
        return True

    def half_open(self, now: float) -> None:
        """Let runs that begin from now on decide."""
        assert self.state is CircuitState.OPEN, self.state
        self.state = CircuitState.HALF_OPEN
        self._probe_from = now

    def _clear(self) -> None:
        self._runs.clear()
        self._failed = 0
