"""A token bucket grants what it holds at once, and the rest in the order of asking."""

from __future__ import annotations

from sharegroup.worker.declarations.rate import RateLimit
from sharegroup.worker.running.token_bucket import TokenBucket


def test_a_burst_goes_at_once_and_the_rest_one_by_one() -> None:
    bucket = TokenBucket(RateLimit(10, 1.0, burst=3))
    granted = [bucket.reserve(100.0) for _ in range(6)]
    assert [round(time_, 6) for time_ in granted] == [100.0, 100.0, 100.0, 100.1, 100.2, 100.3]


def test_without_a_burst_as_many_as_come_in_one_time() -> None:
    bucket = TokenBucket(RateLimit(2, 60.0))
    assert [bucket.reserve(0.0) for _ in range(4)] == [0.0, 0.0, 30.0, 60.0]


def test_tokens_come_back_with_time_up_to_the_burst() -> None:
    bucket = TokenBucket(RateLimit(10, 1.0, burst=2))
    for _ in range(2):
        bucket.reserve(0.0)
    assert bucket.reserve(0.1) == 0.1
    assert [bucket.reserve(1000.0) for _ in range(3)] == [1000.0, 1000.0, 1000.1]


def test_a_token_that_is_given_back_is_the_next_ones() -> None:
    bucket = TokenBucket(RateLimit(1, 1.0, burst=1))
    assert (bucket.reserve(0.0), bucket.reserve(0.0)) == (0.0, 1.0)
    bucket.give_back()
    assert bucket.reserve(0.0) == 1.0


def test_room_is_what_may_begin_soon() -> None:
    bucket = TokenBucket(RateLimit(10, 1.0, burst=4))
    assert bucket.room(0.0, 0.0) == 4
    for _ in range(9):
        bucket.reserve(0.0)
    assert [bucket.room(0.0, seconds) for seconds in (0.0, 0.45, 0.65)] == [0, 0, 1]
    assert bucket.room(0.65, 0.0) == 1
