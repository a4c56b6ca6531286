"""The answers to the commands of one caller, while others give commands for the same records."""

from __future__ import annotations

import pytest

from sharegroup.waiting.control_records import Answer, Command, Intent, Place, Reply
from sharegroup.waiting.waiting_records import _Round

PLACE = Place("billing.retry.1h", 0, 17)


def round_of(place: Place | None) -> _Round:
    return _Round(asked={"mine": "f00d"}, at={place or "f00d": "mine"})


def reply(
    answer: Answer, ask: str, *, place: Place | None = PLACE, record_id: str = "f00d"
) -> Reply:
    return Reply(record_id=record_id, answer=answer, place=place, ask=ask, at_ms=0, member="m")


@pytest.mark.parametrize(
    ("answer", "record_id", "expected"),
    [
        (Answer.DONE, "f00d", Answer.GONE),
        (Answer.MOVED, "f00d", Answer.GONE),
        (Answer.GONE, "f00d", Answer.GONE),
        (Answer.GONE, "another", None),
        (Answer.REFUSED, "f00d", None),
    ],
)
def test_answer_to_a_later_command_of_somebody_else(
    answer: Answer, record_id: str, expected: Answer | None
) -> None:
    """A later command has the same key, so the earlier one may get no answer of its own."""
    current = round_of(PLACE)
    current.take(reply(answer, "other", record_id=record_id))
    assert current.outcomes("f00d") == {expected}


def test_own_answer_stands_against_those_to_others() -> None:
    current = round_of(PLACE)
    current.take(reply(Answer.GONE, "other"))
    current.take(reply(Answer.DONE, "mine"))
    current.take(reply(Answer.MOVED, "other"))
    assert current.outcomes("f00d") == {Answer.DONE}


def test_question_of_somebody_else_is_answered_for_both() -> None:
    current = round_of(None)
    current.take(reply(Answer.HELD, "other", place=None))
    assert current.outcomes("f00d") == {Answer.HELD}
    assert current.members == {"f00d": "m"}


def command(ask: str, *, record_id: str = "f00d") -> Command:
    return Command(
        record_id=record_id, intent=Intent.RUN, place=PLACE, ask=ask, by="somebody", asked_ms=0
    )


def test_refusal_of_the_command_that_replaced_this_one_is_its_answer() -> None:
    current = round_of(PLACE)
    for record in (command("mine"), command("later"), reply(Answer.REFUSED, "later")):
        current.take(record)
    assert current.outcomes("f00d") == {Answer.REFUSED}
    assert current.is_complete


def test_refusal_of_a_command_before_this_one_is_no_answer() -> None:
    current = round_of(PLACE)
    for record in (command("earlier"), command("mine"), reply(Answer.REFUSED, "earlier")):
        current.take(record)
    assert current.outcomes("f00d") == {None}
    current.take(reply(Answer.DONE, "mine"))
    assert current.outcomes("f00d") == {Answer.DONE}
