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
`least` is forgotten slowly, for what is behind the handler changes.
"""

from __future__ import annotations

from math import sqrt

LEVEL_START = 8
LEVEL_MAX = 512
TOLERANCE = 1.5
GRADIENT_MIN = 0.5
SMOOTHING = 0.3
FORGETTING = 1.01
"""`least` grows so much in each window that does not confirm it."""
SATURATED = 0.5
"""A window in which fewer handlers ran, of the level, says nothing about the level."""


class Level:
    """See the module's text.  Windows come in from outside, time with them."""

    __slots__ = ("_least", "_level", "_most")

    def __init__(self, start: int = LEVEL_START, most: int = LEVEL_MAX) -> None:
        self._level = float(start)
        self._most = most
        self._least: float | None = None

    @property
    def now(self) -> int:
        """Handlers at a time."""
        return int(self._level)

    def window(self, *, runs: int, seconds: float, running: int) -> None:
        """So many runs ended in a window and took so long together, ``running`` at a time."""
        if runs < max(1, self.now // 2) or running < self._level * SATURATED:
            return
        mean = max(seconds / runs, 1e-6)
        least = mean if self._least is None else self._least * FORGETTING
        self._least = least = min(mean, least)
        gradient = max(GRADIENT_MIN, min(1.0, TOLERANCE * least / mean))
        aim = self._level * gradient + sqrt(self._level)
        moved = self._level + SMOOTHING * (aim - self._level)
        self._level = min(max(moved, 1.0), float(self._most))
