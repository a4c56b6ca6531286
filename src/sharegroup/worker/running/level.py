"""The number of handlers to run concurrently, derived from how long handlers take.

A handler uses something with a limited capacity: a database, a service, a disk.  Below the
capacity, each additional concurrent handler raises the throughput, and handling times stay the
same.  Above it, the throughput stays the same, and handling times grow, because handlers wait for
each other.  So handling times show where the capacity is (TCP Vegas does the same for packets):

    seconds |                        .  '     least: the time of a handler without contention
            |               .  '              tolerated: TOLERANCE * least
      least | . . . . . . '
            '-------------|----------> concurrent handlers
                     capacity

After each window its mean is compared with `least`.  The level is multiplied by tolerated / mean
if that is below 1, and its square root is added to probe for more capacity.  So the level grows
while handling times stay the same, settles where they have grown by about half, and falls when
they grow further.

The capacity changes, so `least` is measured again after every `PROBE_AFTER` windows: for a few
windows half as many handlers run, and the shortest mean of these windows becomes the new `least`.
"""

from __future__ import annotations

from math import sqrt

LEVEL_START = 8
LEVEL_MAX = 512
TOLERANCE = 1.5
GRADIENT_MIN = 0.5
SMOOTHING = 0.3
PROBE_AFTER = 100
"""The number of windows after which `least` is measured again."""
PROBE_WINDOWS = 4
PROBE_PART = 0.5
SATURATED = 0.5
"""A window is ignored if fewer handlers than this part of the level ran in it."""


class Level:
    """The number of concurrent handlers of a route, adapted after each measuring window.

    It has no clock of its own; the caller measures the windows.
    """

    __slots__ = ("_age", "_least", "_level", "_most", "_probe", "_probed")

    def __init__(self, start: int = LEVEL_START, most: int = LEVEL_MAX) -> None:
        self._level = float(start)
        self._most = most
        self._least: float | None = None
        self._age = 0
        self._probe = 0
        """The remaining windows of the current probe; 0 if there is none."""
        self._probed = 0.0

    @property
    def now(self) -> int:
        """The number of handlers that may run concurrently, at least 1."""
        return max(1, int(self._level * (PROBE_PART if self._probe else 1.0)))

    def window(self, *, runs: int, seconds: float, running: int) -> None:
        """Adapt the level after a window.

        ``runs`` handler runs ended in it and took ``seconds`` in total; ``running`` is the number
        of concurrent handlers.
        """
        # Few runs say nothing of the capacity: the handlers did not wait for each other in them.
        if runs < max(1, self.now // 2) or running < self.now * SATURATED:
            return
        mean = max(seconds / runs, 1e-6)
        if self._probe:
            self._look_anew(mean)
            return
        self._age += 1
        if self._age >= PROBE_AFTER:
            self._probe, self._probed = PROBE_WINDOWS, mean
            return
        self._least = least = mean if self._least is None else min(mean, self._least)
        gradient = max(GRADIENT_MIN, min(1.0, TOLERANCE * least / mean))
        target = self._level * gradient + sqrt(self._level)
        smoothed = self._level + SMOOTHING * (target - self._level)
        self._level = min(max(smoothed, 1.0), float(self._most))

    def _look_anew(self, mean: float) -> None:
        self._probed = min(self._probed, mean)
        self._probe -= 1
        if not self._probe:
            self._least, self._age = self._probed, 0
