"""Notes the calls of a function without replacing it, by the profile hook of the interpreter."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def observed_calls(
    function: Callable[..., Any], note: Callable[[Mapping[str, Any]], None]
) -> Iterator[None]:
    """Call ``note`` with the arguments of each call of a plain function in this thread."""
    code, before = inspect.unwrap(function).__code__, sys.getprofile()

    def called(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code is code:
            note(frame.f_locals)
        if before is not None:
            before(frame, event, argument)

    sys.setprofile(called)
    try:
        yield
    finally:
        sys.setprofile(before)


@contextmanager
def most_calls_in_a_turn(function: Callable[..., Any]) -> Iterator[Callable[[], int]]:
    """Count the calls in each turn of the event loop; the result gives the most in one turn."""
    counts = {"now": 0, "most": 0}

    def count(_: Mapping[str, Any]) -> None:
        if counts["now"] == 0:
            asyncio.get_running_loop().call_soon(counts.__setitem__, "now", 0)
        counts["now"] += 1
        counts["most"] = max(counts.values())

    with observed_calls(function, count):
        yield lambda: counts["most"]
