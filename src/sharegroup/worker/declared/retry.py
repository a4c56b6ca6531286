"""Which failures are tried again, how often, and after how long."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """``attempts`` runs in all; before the n-th retry ``first * factor ** (n - 1)`` seconds, at
    most ``longest``, give or take ``jitter`` of it."""

    attempts: int = 5
    first: float | str = "1s"
    factor: float = 3.0
    longest: float | str = "1h"
    jitter: float = 0.2
    on: tuple[type[BaseException], ...] = (Exception,)
    never: tuple[type[BaseException], ...] = ()
