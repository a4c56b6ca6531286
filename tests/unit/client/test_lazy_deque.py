"""A deque that is filled while it is used."""

from __future__ import annotations

from collections.abc import Iterator

from sharegroup.client.fetch.record_content import LazyDeque


def numbers(taken: list[int]) -> Iterator[int]:
    for number in range(4):
        taken.append(number)
        yield number


def test_elements_are_fetched_when_they_are_used() -> None:
    taken: list[int] = []
    queue = LazyDeque(numbers(taken))
    assert taken == []
    assert queue
    assert (queue[0], taken) == (0, [0])
    assert queue.popleft() == 0
    assert taken == [0]


def test_element_that_was_put_back_comes_before_the_others() -> None:
    queue = LazyDeque(numbers([]))
    assert queue
    queue[0] = 7
    queue.appendleft(8)
    assert list(queue.drain()) == [8, 7, 1, 2, 3]
    assert not queue
