"""How many handlers to run at a time, found out from how long they take.

Behind a handler is something with a capacity: a database, a service, a disk.  Below it, one more
handler at a time means more work done, and each takes as long as before; beyond it nothing more
is done, and each takes longer, because they wait for each other there.  So the time that a
handler takes tells where the capacity lies (as TCP Vegas found it for packets):

    seconds |                        .  '     what it takes with nobody beside it: `least`
            |               .  '              tolerated: so many times `least`
      least | . . . . . . '
            '-------------|----------> handlers at a time
                     capacity

Each window's mean is compared with `least`: the level is multiplied by tolerated : mean, if that
is below 1, and gets the square root of itself added, to try whether there is more.  So it grows
while times stay, settles where they have grown by about half, and falls when they grow further.

What is behind a handler changes, so `least` is found anew now and then: for a few windows half as
many handlers run, and the shortest time of these windows is the new one.
"""

from __future__ import annotations

from math import sqrt

LEVEL_START = 8
LEVEL_MAX = 512
TOLERANCE = 1.5
GRADIENT_MIN = 0.5
SMOOTHING = 0.3
PROBE_AFTER = 100
"""Windows until `least` is found anew."""
PROBE_WINDOWS = 4
PROBE_PART = 0.5
SATURATED = 0.5
"""A window in which fewer handlers ran, of the level, says nothing about the level."""


class Level:
    """See the module's text.  Windows come in from outside, time with them."""

    __slots__ = ("_age", "_least", "_level", "_most", "_probe", "_probed")

    def __init__(self, start: int = LEVEL_START, most: int = LEVEL_MAX) -> None:
        self._level = float(start)
        self._most = most
        self._least: float | None = None
        self._age = 0
        self._probe = 0
        """How many windows of a probe are left."""
        self._probed = 0.0

    @property
    def now(self) -> int:
        """Handlers at a time."""
        return max(1, int(self._level * (PROBE_PART if self._probe else 1.0)))

    def window(self, *, runs: int, seconds: float, running: int) -> None:
        """So many runs ended in a window and took so long together, ``running`` at a time."""
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
        aim = self._level * gradient + sqrt(self._level)
        moved = self._level + SMOOTHING * (aim - self._level)
        self._level = min(max(moved, 1.0), float(self._most))

    def _look_anew(self, mean: float) -> None:
        self._probed = min(self._probed, mean)
        self._probe -= 1
        if not self._probe:
            self._least, self._age = self._probed, 0
