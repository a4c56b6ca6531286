"""How long each retry waits, and which failures have one."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.errors import InvalidConfig
from sharegroup.worker import Reject, Retry, RetryAfter


def test_delays_grow_by_the_factor_up_to_the_longest() -> None:
    retry = Retry(attempts=8, first="1s", factor=3, longest="1m", jitter=0)
    assert [retry.delay(n, 0.5) for n in range(1, 7)] == [1.0, 3.0, 9.0, 27.0, 60.0, 60.0]


def test_jitter_spreads_the_delay_on_both_sides() -> None:
    retry = Retry(first="10s", jitter=0.2)
    assert retry.delay(1, 0.0) == 8.0
    assert retry.delay(1, 0.5) == 10.0
    assert retry.delay(1, 0.75) == 11.0


def test_delay_of_a_retry_beyond_all_numbers_is_the_longest() -> None:
    assert Retry(attempts=100_000, first="1s", jitter=0).delay(90_000, 0.5) == 3_600.0


def test_retry_at_once_stays_at_once() -> None:
    assert Retry(attempts=100_000, first=0).delay(90_000, 0.9) == 0.0


@given(
    retry=st.integers(1, 10_000),
    chance=st.floats(0, 1, exclude_max=True),
    first=st.floats(0, 100),
    factor=st.floats(1, 50),
    jitter=st.floats(0, 1),
)
def test_delay_is_never_below_zero_nor_above_longest_and_jitter(
    retry: int, chance: float, first: float, factor: float, jitter: float
) -> None:
    policy = Retry(first=first, factor=factor, longest=100.0, jitter=jitter)
    assert 0 <= policy.delay(retry, chance) <= 100.0 * (1 + jitter)


def test_one_class_need_not_be_a_tuple() -> None:
    retry = Retry(on=ConnectionError, never=ConnectionRefusedError)
    assert retry.on == (ConnectionError,)
    assert retry.applies_to(ConnectionResetError())
    assert not retry.applies_to(ConnectionRefusedError())
    assert not retry.applies_to(ValueError())


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError()])
def test_what_is_no_exception_is_treated_like_one(error: BaseException) -> None:
    assert Retry().applies_to(error)
    assert not Retry(on=ValueError).applies_to(error)
    assert not Retry(never=type(error)).applies_to(error)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attempts": 0}, r"attempts=0; expected 1"),
        ({"attempts": 2.5}, r"attempts=2\.5; expected 1"),
        ({"attempts": "3"}, r"attempts='3'; expected 1"),
        ({"factor": 0.5}, r"factor=0\.5; expected 1 or more"),
        ({"factor": float("nan")}, r"factor=nan; expected 1 or more"),
        ({"factor": "3"}, r"factor='3'; expected a number"),
        ({"jitter": "20%"}, r"jitter='20%'; expected a number"),
        ({"jitter": 1.1}, r"jitter=1\.1; expected 0 to 1"),
        ({"first": "soon"}, r"first: a duration: expected .* got 'soon'"),
        ({"longest": None}, r"longest: a duration: expected .* got NoneType"),
        ({"first": "2h"}, r"longest='1h' is below first='2h'"),
        ({"on": "TimeoutError"}, r"on has 'TimeoutError'; expected classes"),
        ({"on": (ValueError, 3)}, r"on has 3; expected classes"),
        ({"never": Reject}, r"never has Reject, which says itself"),
        ({"on": (RetryAfter,)}, r"on has RetryAfter, which says itself"),
        ({"on": (ValueError,), "never": (ValueError,)}, r"ValueError in `on` and in `never`"),
    ],
)
def test_policy_that_makes_no_sense_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        Retry(**options)
