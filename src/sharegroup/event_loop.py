"""Runs a program on uvloop where it is installed, and on asyncio's own event loop elsewhere.

uvloop has no wheels for some platforms (`pyproject.toml` has the marker), and no compiler may be
there.  Everything works without it; ``docs/comparison.md`` says how much slower.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)


def run(work: Coroutine[Any, Any, T], *, is_said: bool = False) -> T:
    """Run a coroutine in a new event loop, and return its result.

    A program that runs for long sets ``is_said``: without uvloop a line of its log says so.
    """
    try:
        # Imported here because verbs with a single request start sooner without it.
        import uvloop
    except ImportError as error:
        if is_said:
            log.warning(
                "event=event_loop loop=asyncio reason=%r action='install uvloop, if there is a "
                "wheel of it for this machine: records are processed more slowly without it'",
                str(error),
            )
        return asyncio.run(work)
    return uvloop.run(work)
