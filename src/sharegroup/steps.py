"""Steps: long computations as generators that yield at the points where they may pause.

    def squares(numbers: Sequence[int]) -> Steps[list[int]]:
        squared = []
        for number, pause in paced(numbers):
            squared.append(number * number)
            if pause:
                yield
        return squared

A computation yields None, and its return value is the result.  It yields at least once for every
`STEP_ELEMENTS` elements of the usual size, which take about 0.1 ms.  The broker serves other
requests between steps (`sharegroup.broker.load.slices`); `run_to_end` runs all steps without a
pause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TypeVar

E = TypeVar("E")
T = TypeVar("T")

Steps = Generator[None, None, T]

STEP_ELEMENTS = 64
"""Number of elements between two steps; a power of two."""

STEP_MASK = STEP_ELEMENTS - 1


ATTEMPT_STEPS = 8
"""Number of steps after which a computation counts as large: about 500 elements."""


def paced(elements: Iterable[E], every: int = STEP_ELEMENTS) -> Iterator[tuple[E, bool]]:
    """Yield each element, and whether a step ends after it."""
    for count, element in enumerate(elements, 1):
        yield element, count % every == 0


def of_each(make: Callable[[E], T], elements: Iterable[E]) -> Steps[tuple[T, ...]]:
    """Return the results of ``make`` for all elements, in their order."""
    results = []
    for element, pause in paced(elements):
        results.append(make(element))
        if pause:
            yield
    return tuple(results)


def counted(elements: Iterable[E]) -> Steps[Counter[E]]:
    """Return how often each element occurs."""
    counts = Counter[E]()
    for element, pause in paced(elements):
        counts[element] += 1
        if pause:
            yield
    return counts


class Unfinished:
    """The type of `UNFINISHED`, which `attempt` returns if the computation has not ended."""


UNFINISHED = Unfinished()


def attempt(steps: Steps[T]) -> T | Unfinished:
    """Return the result if the computation ends within `ATTEMPT_STEPS` steps, else `UNFINISHED`."""
    for _ in range(ATTEMPT_STEPS):
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
    return UNFINISHED


def run_to_end(steps: Steps[T]) -> T:
    """Run all steps without a pause and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
