"""Waiting for results of tasks."""

from __future__ import annotations

import time
from typing import Any

from tests.support.limits import HANGING_SECONDS


def finished(result: Any) -> Any:
    """Return the result when its task has finished."""
    limit = time.monotonic() + HANGING_SECONDS
    while not result.is_finished:
        assert time.monotonic() < limit, result
        time.sleep(0.01)
        result.refresh()
    return result
