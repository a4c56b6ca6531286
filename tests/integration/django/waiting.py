"""Waiting for conditions and results of tasks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.support.limits import HANGING_SECONDS


def until(is_so: Callable[[], bool], found: Callable[[], object]) -> None:
    """Wait for a condition; the error of one that does not come has what was found instead."""
    limit = time.monotonic() + HANGING_SECONDS
    while not is_so():
        assert time.monotonic() < limit, found()
        time.sleep(0.01)


def finished(result: Any) -> Any:
    """Return the result when its task has finished."""

    def is_finished() -> bool:
        if not result.is_finished:
            result.refresh()
        return bool(result.is_finished)

    until(is_finished, lambda: result)
    return result
