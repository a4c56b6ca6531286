"""Waiting for what a broker does in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests.support.limits import HANGING_SECONDS

SECONDS_MAX = HANGING_SECONDS
POLL_SECONDS = 0.01

T = TypeVar("T")


def wait_for(condition: Callable[[], T], wanted: str) -> T:
    """The first value that is true; asked again and again until the limit."""
    limit = time.monotonic() + SECONDS_MAX
    while not (value := condition()):
        assert time.monotonic() < limit, f"not within {SECONDS_MAX} s: {wanted}; {value!r}"
        time.sleep(POLL_SECONDS)
    return value
