"""Names of errors in a fault script are Kafka's."""

from __future__ import annotations

import pytest

from sharegroup.errors import BY_CODE
from sharegroup.faults.script import Delay, FaultScript, error_named
from sharegroup.wire.codec.schema import code_name


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("UNKNOWN_SERVER_ERROR", -1),
        ("NOT_LEADER_OR_FOLLOWER", 6),
        ("INVALID_TOPIC_EXCEPTION", 17),
        ("RECORD_LIST_TOO_LARGE", 18),
        ("INVALID_TXN_STATE", 48),
        ("INVALID_RECORD_STATE", 121),
    ],
)
def test_error_has_kafkas_name(name: str, code: int) -> None:
    assert error_named(name).code == code


def test_every_error_is_found_by_its_name() -> None:
    assert {error_named(code_name(error)) for error in BY_CODE.values()} == set(BY_CODE.values())


def test_other_spellings_are_refused() -> None:
    with pytest.raises(ValueError, match=r"did you mean .*INVALID_TOPIC_EXCEPTION"):
        error_named("InvalidTopic")


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan"), 1e300])
def test_delay_that_no_clock_can_make_is_refused(seconds: float) -> None:
    """With it a request would fail, and all later ones of its connection would wait for ever."""
    script = FaultScript()
    with pytest.raises(ValueError, match="a delay"):
        script.add(Delay(seconds), "Produce")
    assert script.faults == []
