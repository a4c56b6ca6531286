"""How long each retry waits, and which failures have one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, strategies as st

from sharegroup.errors import InvalidConfig
from sharegroup.worker import Reject, Retry, RetryAfter
from sharegroup.worker.declarations.retry import RetryByError


def test_delays_grow_by_the_factor_up_to_the_longest() -> None:
    retry = Retry(max_attempts=8, initial_delay="1s", multiplier=3, max_delay="1m", jitter=0)
    assert [retry.delay(n, 0.5) for n in range(1, 7)] == [1.0, 3.0, 9.0, 27.0, 60.0, 60.0]


def test_jitter_spreads_the_delay_on_both_sides() -> None:
    retry = Retry(initial_delay="10s", jitter=0.2)
    assert retry.delay(1, 0.0) == 8.0
    assert retry.delay(1, 0.5) == 10.0
    assert retry.delay(1, 0.75) == 11.0


def test_delay_of_a_retry_beyond_all_numbers_is_the_longest() -> None:
    assert Retry(max_attempts=100_000, initial_delay="1s", jitter=0).delay(90_000, 0.5) == 3_600.0


def test_initial_delay_of_zero_stays_zero() -> None:
    assert Retry(max_attempts=100_000, initial_delay=0).delay(90_000, 0.9) == 0.0


@given(
    retry=st.integers(1, 10_000),
    chance=st.floats(0, 1, exclude_max=True),
    first=st.floats(0, 100),
    factor=st.floats(1, 50),
    jitter=st.floats(0, 1),
)
def test_delay_is_never_below_zero_nor_above_max_delay_and_jitter(
    retry: int, chance: float, first: float, factor: float, jitter: float
) -> None:
    policy = Retry(initial_delay=first, multiplier=factor, max_delay=100.0, jitter=jitter)
    assert 0 <= policy.delay(retry, chance) <= 100.0 * (1 + jitter)


def test_one_class_need_not_be_a_tuple() -> None:
    retry = Retry(retry_on=ConnectionError, dont_retry_on=ConnectionRefusedError)
    assert retry.retry_on == (ConnectionError,)
    assert retry.applies_to(ConnectionResetError())
    assert not retry.applies_to(ConnectionRefusedError())
    assert not retry.applies_to(ValueError())


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError()])
def test_base_exception_is_treated_like_an_exception(error: BaseException) -> None:
    assert Retry().applies_to(error)
    assert not Retry(retry_on=ValueError).applies_to(error)
    assert not Retry(dont_retry_on=type(error)).applies_to(error)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_attempts": 0}, r"max_attempts=0; expected 1"),
        ({"max_attempts": 2.5}, r"max_attempts=2\.5; expected 1"),
        ({"max_attempts": "3"}, r"max_attempts='3'; expected 1"),
        ({"multiplier": 0.5}, r"multiplier=0\.5; expected 1 \(a constant delay\) or more"),
        ({"multiplier": float("nan")}, r"multiplier=nan; expected 1 \(a constant delay\) or more"),
        ({"multiplier": "3"}, r"multiplier='3'; expected a number"),
        ({"jitter": "20%"}, r"jitter='20%'; expected a number"),
        ({"jitter": 1.1}, r"jitter=1\.1; expected 0 to 1"),
        ({"initial_delay": "soon"}, r"initial_delay: a duration: expected .* got 'soon'"),
        ({"max_delay": None}, r"max_delay: a duration: expected .* got NoneType"),
        (
            {"initial_delay": "2h"},
            r"max_delay='1h' is below initial_delay='2h'; expected .* set a longer max_delay",
        ),
        ({"retry_on": "TimeoutError"}, r"retry_on has 'TimeoutError'; expected classes"),
        ({"retry_on": (ValueError, 3)}, r"retry_on has 3; expected classes"),
        ({"dont_retry_on": Reject}, r"dont_retry_on has Reject, which itself decides"),
        ({"retry_on": (RetryAfter,)}, r"retry_on has RetryAfter, which itself decides"),
        (
            {"retry_on": (KeyError, ValueError), "dont_retry_on": (ValueError,)},
            r"retry_on has ValueError, and dont_retry_on has ValueError, .* remove one of the two",
        ),
        (
            {"retry_on": TimeoutError, "dont_retry_on": OSError},
            r"retry_on has TimeoutError, and dont_retry_on has OSError, which excludes it",
        ),
    ],
)
def test_policy_that_makes_no_sense_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        Retry(**options)


class RateLimited(ConnectionError): ...


QUICK, SLOW, REST = (Retry(max_attempts=count, jitter=0) for count in (2, 9, 3))
BY_CLASS = RetryByError.of(
    {ConnectionError: QUICK, RateLimited: SLOW, KeyError: None, "default": REST}
)


@pytest.mark.parametrize(
    ("error", "policy"),
    [
        (RateLimited(), SLOW),
        (ConnectionResetError(), QUICK),
        (KeyError("absent"), None),
        (LookupError(), REST),
        (asyncio.CancelledError(), REST),
        (RetryAfter("1m"), REST),
    ],
)
def test_nearest_class_of_a_mapping_decides(error: BaseException, policy: Retry | None) -> None:
    assert BY_CLASS.policy_for(error) is policy
    assert BY_CLASS.applies_to(error) is (policy is not None)


def test_failure_that_a_mapping_does_not_name_is_not_retried() -> None:
    by_class = RetryByError.of({ConnectionError: QUICK, RateLimited: SLOW})
    assert by_class.policy_for(ValueError()) is None
    # The handler asks for another attempt, so the policy with the most attempts limits them.
    assert by_class.policy_for(RetryAfter("1m")) is SLOW


def test_policy_of_a_class_may_exclude_some_of_its_failures() -> None:
    policy = Retry(retry_on=ConnectionError, dont_retry_on=ConnectionRefusedError)
    by_class = RetryByError.of({OSError: policy, "default": REST})
    assert by_class.policy_for(ConnectionResetError()) is policy
    assert by_class.policy_for(ConnectionRefusedError()) is None


def test_topics_of_retries_are_those_of_any_policy_that_declares_them() -> None:
    by_class = RetryByError.of({OSError: Retry(replication_factor=2), "default": REST})
    assert (by_class.replication_factor, by_class.min_insync_replicas) == (2, None)


@pytest.mark.parametrize(
    ("policies", "text"),
    [
        ({}, "the mapping has no policy"),
        ({KeyError: None}, "the mapping has no policy"),
        ({KeyError: 3}, "the mapping has 3 for <class 'KeyError'>; expected Retry"),
        ({"timeout": REST}, "a key of the mapping has 'timeout'; expected classes"),
        ({Reject: REST}, "has Reject, which itself decides"),
        (
            {OSError: Retry(replication_factor=2), KeyError: Retry(replication_factor=3)},
            r"replication_factor=\[2, 3\]; expected one number",
        ),
    ],
)
def test_mapping_that_contradicts_itself_is_refused(policies: Any, text: str) -> None:
    with pytest.raises(InvalidConfig, match=text):
        RetryByError.of(policies)
