"""A deque that takes its elements from an iterator as they are used."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


class LazyDeque(deque[T]):
    """A deque whose truth value is whether an element is left; finding out may fetch one.

    Look at the truth value before each access. The length counts only elements fetched so far.
    """

    __slots__ = ("_source",)

    def __init__(self, source: Iterable[T]) -> None:
        super().__init__()
        self._source = iter(source)

    def __bool__(self) -> bool:
        if not len(self):
            for element in self._source:
                self.append(element)
                break
        return len(self) > 0

    def drain(self) -> Iterator[T]:
        """Remove and yield all elements."""
        while self:
            yield self.popleft()
