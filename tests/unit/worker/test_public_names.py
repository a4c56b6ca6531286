"""What `sharegroup.worker` offers: loaded when it is used, and known by that name."""

from __future__ import annotations

import pickle

import pytest

import sharegroup.worker
from sharegroup.worker import (
    HandlerCrashed,
    HandlingTimeout,
    Reject,
    Release,
    RetryAfter,
    SomeFailed,
    UnreadablePayload,
)


def test_every_name_leads_to_something() -> None:
    for name in sharegroup.worker.__all__:
        assert getattr(sharegroup.worker, name) is not None
    assert sorted(sharegroup.worker.__all__) == sharegroup.worker.__all__
    assert set(sharegroup.worker.__all__) <= set(dir(sharegroup.worker))


def test_other_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Celery'"):
        _ = sharegroup.worker.Celery


@pytest.mark.parametrize(
    "error",
    [
        Reject("no"),
        Release(),
        Release("busy", delay="1m30s"),
        RetryAfter("1m30s", "busy"),
        SomeFailed({1: Reject("no")}),
        UnreadablePayload("expected Order"),
        HandlingTimeout("it ran for 3 s; max_handling is 2 s"),
        HandlerCrashed("bill", -9),
    ],
)
def test_outcome_is_pickled_under_its_public_name(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), repr(copy.args)) == (str(error), repr(error.args))
    assert type(error).__module__ == "sharegroup.worker"
    assert getattr(copy, "delay_seconds", None) == getattr(error, "delay_seconds", None)
