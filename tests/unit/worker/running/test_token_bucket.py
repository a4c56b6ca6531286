"""A token bucket grants what it holds at once, and the rest in the order of asking."""

from __future__ import annotations

from sharegroup.worker.declarations.route import RateLimit
from sharegroup.worker.running.rate_limiter import TokenBucket


def test_burst_is_granted_immediately_and_the_rest_one_by_one() -> None:
    bucket = TokenBucket(RateLimit(10, 1.0, burst=3))
    granted = [bucket.reserve(100.0) for _ in range(6)]
    assert [round(time_, 6) for time_ in granted] == [100.0, 100.0, 100.0, 100.1, 100.2, 100.3]


def test_default_burst_is_the_limit_of_one_period() -> None:
    bucket = TokenBucket(RateLimit(2, 60.0))
    assert [bucket.reserve(0.0) for _ in range(4)] == [0.0, 0.0, 30.0, 60.0]


def test_tokens_are_refilled_over_time_up_to_the_burst() -> None:
    bucket = TokenBucket(RateLimit(10, 1.0, burst=2))
    for _ in range(2):
        bucket.reserve(0.0)
    assert bucket.reserve(0.1) == 0.1
    assert [bucket.reserve(1000.0) for _ in range(3)] == [1000.0, 1000.0, 1000.1]


def test_returned_token_is_granted_to_the_next_caller() -> None:
    bucket = TokenBucket(RateLimit(1, 1.0, burst=1))
    assert (bucket.reserve(0.0), bucket.reserve(0.0)) == (0.0, 1.0)
    bucket.give_back()
    assert bucket.reserve(0.0) == 1.0


def test_room_is_the_number_of_tokens_available_soon() -> None:
    bucket = TokenBucket(RateLimit(10, 1.0, burst=4))
    assert bucket.room(0.0, 0.0) == 4
    for _ in range(9):
        bucket.reserve(0.0)
    assert [bucket.room(0.0, seconds) for seconds in (0.0, 0.45, 0.65)] == [0, 0, 1]
    assert bucket.room(0.65, 0.0) == 1
