"""Integers at which programs break."""

from __future__ import annotations

import random


def interesting(bits: int, dice: random.Random) -> int:
    """A signed integer of so many bits: a limit, one beside it, a small or a random one."""
    half = 1 << (bits - 1)
    kind = dice.randrange(10)
    if kind < 4:
        return dice.choice((0, 1, 2, 3, -1, -2, 10, 100))
    if kind < 8:
        return dice.choice((half - 1, -half, half - 2, 1 - half, half // 2, -half // 2))
    return dice.randrange(-half, half)
