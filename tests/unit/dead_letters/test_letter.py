"""What a burier writes is what a reader reads; and what strangers write breaks nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given, strategies as st

from sharegroup.dead_letters.letter import Letter, letter_of
from sharegroup.dead_letters.letter_headers import TOLD
from sharegroup.dead_letters.reasons import DeadLetterReason
from sharegroup.dead_letters.story import NEW, Attempt, RecordOrigin, Story
from sharegroup.dead_letters.story_headers import PREFIX, REDRIVES, story_headers, story_of
from sharegroup.worker.dead_letters import (
    TRACEBACK_BYTES_MAX,
    Buried,
    dead_id,
    letter_headers,
)
from sharegroup.worker.decisions.decide import Bury
from sharegroup.worker.ports import Header
from tests.integration.worker.dead import Given
from tests.support.sent_back import sent_back_headers

BY = Buried("billing", "bill", "member-1")
ATTEMPTS = (Attempt(1, 1_000, "builtins.TimeoutError", "late", "m"),)


class Read(NamedTuple):
    """A record as it was read."""

    headers: list[Header]
    key: bytes | None = None
    value: bytes | None = None
    offset: int = 5
    timestamp: int | None = 9_000


def read(headers: object, **more: object) -> Letter:
    return letter_of("dead", 1, Read(list(headers), **more))  # type: ignore[arg-type]


def written(given: Given, step: Bury, *, shrunk: bool = False) -> Letter:
    return read(letter_headers(given, step, BY, now_ms=7_000, shrunk=shrunk))


def raised(text: str) -> BaseException:
    try:
        raise ValueError(text)  # noqa: TRY301  For its traceback.
    except ValueError as error:
        return error


names = st.text(max_size=8).filter(lambda name: not name.startswith(PREFIX))
own = st.lists(st.tuples(names, st.none() | st.binary(max_size=8)), max_size=5)
texts = st.text(st.characters(exclude_categories=[]), max_size=30)  # With lone surrogates.
stories = st.builds(
    Story,
    origin=st.none() | st.just(RecordOrigin("orders", 2, 77, 8)),
    failures=st.integers(0, 99),
    attempts=st.just(()) | st.just(ATTEMPTS),
    due_ms=st.none() | st.just(5),
    redrives=st.integers(0, 9),
    redrive_id=st.none() | st.just("earlier"),
    trace=st.none() | st.just("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
)


@given(own, stories, texts, st.booleans())
def test_letter_is_read_as_it_was_written(
    headers: list[Header], story: Story, text: str, shrunk: bool
) -> None:
    given_ = Given("orders", 7, headers=headers)
    letter = written(given_, Bury(story, "rejected", ValueError(text)), shrunk=shrunk)
    assert letter.headers == tuple(headers)
    expected = replace(
        story, due_ms=None,
        origin=story.origin or RecordOrigin("orders", 0, 7, given_.timestamp_ms),
        attempts=() if shrunk else story.attempts,
    )  # fmt: skip
    assert letter.story == expected
    assert letter.death.reason == "rejected"
    assert letter.death.error_class == "builtins.ValueError"
    assert letter.death.error_message == text.encode(errors="backslashreplace").decode()
    assert bool(letter.death.traceback) != shrunk
    assert letter.redrives == story.redrives
    again = story_of(sent_back_headers(letter, "id"))
    assert again == replace(expected, failures=0, redrives=story.redrives + 1, redrive_id="id")
    assert sent_back_headers(letter, "id")[: len(headers)] == headers


headers_of_strangers = st.lists(
    st.tuples(
        st.sampled_from(sorted(TOLD)) | st.text(max_size=5),
        st.none() | st.binary(max_size=12) | st.sampled_from([b"0", b"-1", b"billing", b"[]"]),
    ),
    max_size=12,
)


@given(headers_of_strangers)
def test_no_header_is_too_odd(headers: list[Header]) -> None:
    letter = read(headers)
    assert isinstance(letter.story, Story)
    assert letter.death.reason
    assert letter.lacks_its_record in (True, False)
    if letter.has_origin:
        # Who reads what is sent back may not believe it, and must not break.
        assert isinstance(story_of(sent_back_headers(letter, letter.redrive_id)), Story)


KAFKAS = [
    ("__dlq.errors.topic", b"orders"),
    ("__dlq.errors.partition", b"2"),
    ("__dlq.errors.offset", b"77"),
    ("__dlq.errors.group", b"billing"),
    ("__dlq.errors.delivery.count", b"5"),
    ("__dlq.errors.message", b"Offset delivery count exceeded the threshold."),
]


def test_letter_of_the_broker_has_its_origin_and_reason() -> None:
    letter = read([("tag", b"x"), *KAFKAS], value=b"v")
    assert letter.story == Story(origin=RecordOrigin("orders", 2, 77, -1))
    death = letter.death
    assert (death.reason, death.group, death.delivery_count) == (
        "deliveries-exhausted", "billing", 5,
    )  # fmt: skip
    assert (death.by_broker, letter.lacks_its_record) == (True, False)
    assert letter.headers == (("tag", b"x"),)
    assert letter.redrive_id == "dead/1/5"


@pytest.mark.parametrize(
    ("headers", "lacks"),
    [
        (KAFKAS, True),
        ([("tag", b"x"), *KAFKAS], False),
        ([("tag", b"x"), *KAFKAS, ("sharegroup.dlq.not.copied", b"too large")], True),
        ([("tag", b"x")], False),
    ],
)
def test_letter_that_lacks_its_record_is_recognized(headers: list[Header], lacks: bool) -> None:
    assert read(headers).lacks_its_record is lacks


def test_unsupported_reason_is_read_as_unknown() -> None:
    assert read([("__sharegroup.dead.reason", b"eclipse")]).death.reason is DeadLetterReason.UNKNOWN
    assert read([("__sharegroup.dead.reason", b"unrouted")]).death.reason is (
        DeadLetterReason.UNROUTED
    )


def test_record_that_was_found_is_the_letters() -> None:
    letter = read(KAFKAS)
    whole = letter.with_record(Read([("tag", b"x")], b"k", b"v", 77, 8_000))  # type: ignore[arg-type]
    assert (whole.key, whole.value, whole.headers) == (b"k", b"v", (("tag", b"x"),))
    assert (whole.offset, whole.timestamp_ms) == (5, 9_000)
    assert whole.story.origin == RecordOrigin("orders", 2, 77, 8_000)
    assert not whole.lacks_its_record
    bare = letter.with_record(Read([], None, None, 77, 8_000))  # type: ignore[arg-type]
    assert not bare.lacks_its_record, "a record need not have anything"


def test_redrives_of_a_record_count_if_only_the_record_has_them() -> None:
    """A broker's letter has no headers of its record, so a loop would not be recognised."""
    letter = read(KAFKAS)
    assert letter.redrives == 0
    again = Read([(REDRIVES, b"3")], b"k", b"v", 77, 8_000)
    assert letter.with_record(again).redrives == 3  # type: ignore[arg-type]


def test_dead_letter_of_a_dead_letter_keeps_the_headers_of_the_first() -> None:
    inner = [("tag", b"x"), *KAFKAS]
    outer = [*inner, *((name, b"9" if value == b"77" else value) for name, value in KAFKAS)]
    letter = read(outer)
    assert list(letter.headers) == inner
    assert letter.story.origin == RecordOrigin("orders", 2, 9, -1)


def test_dead_id_is_the_same_for_every_write_of_a_dead_letter() -> None:
    given_ = Given("billing.retry", offset=3)
    story = Story(origin=RecordOrigin("orders", 2, 77, 8), redrives=1)
    assert dead_id("billing", given_, story) == "billing/orders/2/77/1"
    assert dead_id("billing", Given("orders", 7), NEW) == "billing/orders/0/7/0"
    delayed = Story(origin=RecordOrigin("orders", -1, -1, 8))
    assert dead_id("billing", given_, delayed) == "billing/billing.retry/0/3/0"


def test_overlong_dead_id_is_replaced() -> None:
    assert read([("__sharegroup.dead.id", b"x" * 1_000)]).redrive_id == "dead/1/5"


def test_long_traceback_keeps_its_end() -> None:
    letter = written(Given("orders"), Bury(NEW, "rejected", raised("x" * 40_000 + "the end")))
    text = letter.death.traceback
    assert len(text.encode()) <= TRACEBACK_BYTES_MAX + 4
    assert text.startswith("...\n")
    assert text.endswith("the end\n")


def test_error_without_a_text_buries_its_record_all_the_same() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    letter = written(Given("orders"), Bury(NEW, "rejected", Broken()))
    assert (
        letter.death.error_message
        == "(the exception text is not available: RuntimeError in __str__)"
    )


def test_error_without_a_readable_traceback_still_buries_its_record() -> None:
    class Broken(Exception):
        def __getattribute__(self, name: str) -> object:
            if name == "__notes__":
                raise RuntimeError("no notes")
            return super().__getattribute__(name)

    letter = written(Given("orders"), Bury(NEW, "rejected", Broken("text")))
    assert letter.death.error_message == "text"
    assert (
        "RuntimeError" in letter.death.traceback
    )  # The exact text depends on the version of Python.


def test_cause_is_in_the_traceback() -> None:
    try:
        raise KeyError("outer") from raised("inner")  # noqa: TRY301  For its traceback.
    except KeyError as error:
        letter = written(Given("orders"), Bury(NEW, "rejected", error))
    assert "ValueError: inner" in letter.death.traceback
    assert "direct cause" in letter.death.traceback


def test_letter_has_kafkas_headers_in_addition_to_ours() -> None:
    headers = dict(
        letter_headers(
            Given("billing.retry", 3, delivery_count=2),
            Bury(Story(RecordOrigin("orders", 2, 77, 8)), "rejected", ValueError("negative")),
            BY, now_ms=7_000, shrunk=False,
        )
    )  # fmt: skip
    assert {name: value for name, value in headers.items() if name.startswith("__dlq.")} == {
        "__dlq.errors.topic": b"orders",
        "__dlq.errors.partition": b"2",
        "__dlq.errors.offset": b"77",
        "__dlq.errors.group": b"billing",
        "__dlq.errors.delivery.count": b"2",
        "__dlq.errors.message": b"The handler raised Reject. builtins.ValueError: negative",
    }
    assert headers["__sharegroup.dead.first.failure"] == b"7000"


FORGED = (
    ("own", b"1"),
    ("__sharegroup.origin.topic", b"payments"),
    ("__sharegroup.origin.partition", b"0"),
    ("__sharegroup.origin.offset", b"7"),
    ("__sharegroup.origin.timestamp", b"1"),
    ("__sharegroup.redrives", b"1"),
    ("__sharegroup.dead.id", b"payments-workers/payments/0/7/0"),
    ("__sharegroup.dead.reason", b"rejected"),
    ("__sharegroup.dead.group", b"payments-workers"),
)
"""What a producer may write into its own record."""


def of_broker(*headers: Header, topic: bytes = b"eve", vouched: bool = True) -> Letter:
    """The letter that a broker writes when the group ``eves`` rejects a record."""
    about = {
        "topic": topic, "partition": b"2", "offset": b"9", "group": b"eves",
        "delivery.count": b"1", "message": b"Offset rejected by client.",
    }  # fmt: skip
    told = [(f"__dlq.errors.{name}", content) for name, content in about.items()]
    record = Read([*headers, *told], b"k", b"v")
    return letter_of("dead", 1, record, is_vouched=vouched)


def test_broker_of_a_marked_letter_is_believed_and_not_the_record() -> None:
    letter = of_broker(*FORGED)
    assert (letter.group, letter.by_worker, letter.by_broker) == ("eves", False, True)
    assert letter.story.origin == RecordOrigin("eve", 2, 9, -1)
    assert not letter.is_origin_claimed
    death = letter.death
    assert (death.group, death.reason, death.by_broker) == ("eves", "rejected", True)
    assert (death.handler, death.id, death.delivery_count) == ("", "", 1)
    assert letter.redrive_id == "dead/1/5"
    assert letter.headers == (("own", b"1"),)
    copy = dict(sent_back_headers(letter, "id"))
    assert copy["__sharegroup.origin.topic"] == b"eve"
    assert not any(b"payments" in (content or b"") for content in copy.values())


def test_marked_letter_without_a_group_has_none() -> None:
    letter = letter_of("dead", 1, Read(list(FORGED)), is_vouched=True)
    assert (letter.group, letter.by_worker) == ("", False)


def test_forged_letter_without_the_mark_is_a_claim() -> None:
    letter = of_broker(*FORGED, vouched=False)
    assert (letter.group, letter.by_worker) == ("payments-workers", True)
    assert letter.is_origin_claimed


def test_attempts_that_a_producer_wrote_are_not_the_story_of_a_brokers_letter() -> None:
    attempts = b'[[1,1000,"Forged","text","member"]]'
    letter = of_broker(*FORGED, ("__sharegroup.attempts", attempts))
    assert (letter.story.attempts, letter.story.failures) == ((), 0)
    assert letter.redrives == 1


def test_story_of_a_record_in_the_groups_own_topic_stays_but_its_origin_is_a_claim() -> None:
    letter = of_broker(*FORGED, topic=b"eves.retry")
    assert letter.story.origin == RecordOrigin("payments", 0, 7, 1)
    assert (letter.is_vouched, letter.is_origin_claimed) == (True, True)


def test_letter_of_kafka_is_completed_with_its_place_and_not_with_a_forged_origin() -> None:
    letter = of_broker(vouched=False)
    whole = letter.with_record(Read(list(FORGED), b"k", b"v", offset=9, timestamp=5))  # type: ignore[arg-type]
    assert whole.story.origin == RecordOrigin("eve", 2, 9, 5)
    assert (whole.group, whole.redrives, whole.is_origin_claimed) == ("eves", 1, True)


def test_marked_letter_completed_with_its_record_is_still_vouched_for() -> None:
    whole = of_broker().with_record(Read(list(FORGED), b"k", b"v", offset=9, timestamp=5))  # type: ignore[arg-type]
    assert whole.story.origin == RecordOrigin("eve", 2, 9, 5)
    assert (whole.group, whole.is_vouched, whole.is_origin_claimed) == ("eves", True, False)


def test_record_that_was_sent_with_a_delay_is_in_no_original_topic() -> None:
    """It was written to the group's own topic only, so nothing can complete a broker's letter."""
    story = Story(origin=RecordOrigin("orders", -1, -1, 8))
    own = [("__dlq.errors.topic", b"billing.retry"), *KAFKAS[1:]]
    letter = read([*story_headers(story, RecordOrigin("orders", -1, -1, 8)), *own], value=b"v")
    assert letter.story.origin == RecordOrigin("orders", -1, -1, 8)
    assert letter.headers == ()
    assert not letter.lacks_its_record
