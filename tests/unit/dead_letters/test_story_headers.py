"""A record's story survives its way through headers, and no header can break its reader."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from hypothesis import example, given, strategies as st

from sharegroup.dead_letters.story import NEW, Attempt, RecordOrigin, Story
from sharegroup.dead_letters.story_headers import (
    ATTEMPTS_BYTES_MAX,
    PREFIX,
    own_headers,
    redrive_headers,
    story_headers,
    story_of,
)

ORIGIN = RecordOrigin("orders", 3, 1_234, 1_767_225_600_000)
FAILED = Attempt(2, 1_767_225_601_500, "builtins.TimeoutError", "slow", "worker-7")

times = st.integers(0, 2**63 - 1)
texts = st.text(max_size=60)
attempts = st.builds(Attempt, st.integers(1, 100), times, texts, texts, texts)
origins = st.builds(
    RecordOrigin,
    st.text("abcXYZ019._-", min_size=1, max_size=249),
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**63 - 1),
)
stories = st.builds(
    Story,
    origin=origins,
    failures=st.integers(0, 1_000),
    attempts=st.lists(attempts, max_size=20).map(tuple),
    due_ms=st.none() | times,
    redrives=st.integers(0, 1_000),
    redrive_id=st.none() | st.text("0123456789abcdef-", min_size=1, max_size=60),
    trace=st.none() | st.just("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    cancelled_by=st.none()
    | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60),
    age_from_ms=st.none() | times,
    id=st.none() | st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True),
)
foreign = st.lists(
    st.tuples(texts.filter(lambda name: not name.startswith(PREFIX)), st.none() | st.binary())
).map(tuple)


@given(story=stories, application=foreign)
def test_story_and_application_headers_survive_a_round_trip(
    story: Story, application: tuple[tuple[str, bytes | None], ...]
) -> None:
    assert story.origin is not None
    headers = (*application, *story_headers(story, story.origin))
    assert story_of(headers) == story
    assert own_headers(headers) == application


@pytest.mark.parametrize(
    "value", [None, b"", b"a b", b"a/b", b"a\n", b"\x1b[2J", b"x" * 65, b"\xff"]
)
def test_id_of_another_form_is_ignored(value: bytes | None) -> None:
    """It is printed, typed by operators, and part of a key of a topic."""
    assert story_of([(PREFIX + "id", value)]) == NEW


def test_record_made_from_another_one_continues_its_redrives_and_nothing_else() -> None:
    assert redrive_headers(NEW) == ()
    assert story_of(redrive_headers(Story(ORIGIN, 2, (FAILED,), 1, 3, "r-1"))) == Story(redrives=3)


def test_headers_are_text_that_other_tools_can_read() -> None:
    story = Story(ORIGIN, 2, (FAILED,), 1_767_225_602_000, 1, "r-1")
    assert story_headers(story, ORIGIN) == (
        ("__sharegroup.origin.topic", b"orders"),
        ("__sharegroup.origin.partition", b"3"),
        ("__sharegroup.origin.offset", b"1234"),
        ("__sharegroup.origin.timestamp", b"1767225600000"),
        ("__sharegroup.failures", b"2"),
        (
            "__sharegroup.attempts",
            b'[[2,1767225601500,"builtins.TimeoutError","slow","worker-7"]]',
        ),
        ("__sharegroup.due", b"1767225602000"),
        ("__sharegroup.redrives", b"1"),
        ("__sharegroup.redrive.id", b"r-1"),
    )


def test_record_without_our_headers_is_new() -> None:
    assert story_of(()) is NEW
    assert story_of((("trace", b"1"), ("sharegroup", None))) is NEW


def test_reserved_header_outside_the_story_is_ignored() -> None:
    headers = (("__sharegroup.dead.reason", b"rejected"), ("__sharegroup.failures", b"3"))
    assert story_of(headers) == Story(failures=3)


def test_message_that_utf8_cannot_encode_survives_a_round_trip() -> None:
    story = Story(ORIGIN, 1, (FAILED._replace(message="\ud800"),))
    assert story_of(story_headers(story, ORIGIN)) == story


def test_only_the_last_attempts_are_written() -> None:
    many = tuple(FAILED._replace(number=number) for number in range(1, 31))
    read = story_of(story_headers(Story(ORIGIN, 30, many), ORIGIN))
    assert read.failures == 30
    assert [attempt.number for attempt in read.attempts] == list(range(11, 31))


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param([("__sharegroup.failures", b"\xff")], id="not UTF-8"),
        pytest.param([("__sharegroup.failures", b"")], id="empty"),
        pytest.param([("__sharegroup.failures", None)], id="null"),
        pytest.param([("__sharegroup.failures", b"-1")], id="below zero"),
        pytest.param([("__sharegroup.failures", b"1_000")], id="underscore"),
        pytest.param([("__sharegroup.failures", b" 1")], id="space"),
        pytest.param([("__sharegroup.failures", b"9" * 10_000)], id="ten thousand digits"),
        pytest.param([("__sharegroup.due", b"9223372036854775808")], id="over 63 bits"),
        pytest.param([("__sharegroup.failures", b"1")] * 2, id="doubled"),
        pytest.param([("__sharegroup.origin.topic", b"orders")], id="origin in part"),
        pytest.param([("__sharegroup.redrive.id", b"\xc3")], id="id not UTF-8"),
        pytest.param([("__sharegroup.redrive.id", b"x" * 1_025)], id="id too long"),
        pytest.param([("__sharegroup.attempts", b"{}")], id="no list"),
        pytest.param([("__sharegroup.attempts", b"[1]")], id="no attempt"),
        pytest.param([("__sharegroup.attempts", b'[[1,2,"a","b"]]')], id="attempt too short"),
        pytest.param([("__sharegroup.attempts", b'[[true,2,"a","b","c"]]')], id="true"),
        pytest.param([("__sharegroup.attempts", b'[[1,-2,"a","b","c"]]')], id="time below zero"),
        pytest.param([("__sharegroup.attempts", b"[" * 100_000)], id="deep"),
        pytest.param(
            [("__sharegroup.attempts", b" " * (ATTEMPTS_BYTES_MAX + 1))], id="attempts too large"
        ),
        pytest.param(
            [("__sharegroup.attempts", b"[" + b'[1,2,"a","b","c"],' * 20 + b"[]]")], id="too many"
        ),
    ],
)
def test_unsound_story_makes_a_new_record_and_a_line_in_the_log(
    headers: list[tuple[str, bytes | None]], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert story_of(headers) is NEW
    assert [record.getMessage().split()[0] for record in caplog.records] == ["event=story_refused"]


ours = st.sampled_from(
    [
        "__sharegroup.origin.topic",
        "__sharegroup.origin.partition",
        "__sharegroup.origin.offset",
        "__sharegroup.origin.timestamp",
        "__sharegroup.failures",
        "__sharegroup.attempts",
        "__sharegroup.due",
        "__sharegroup.redrives",
        "__sharegroup.redrive.id",
        "__sharegroup.",
    ]
)
values = (
    st.none()
    | st.binary(max_size=40)
    | st.integers().map(lambda number: str(number).encode())
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(repr).map(str.encode)
)


@given(st.lists(st.tuples(ours, values)))
@example([("__sharegroup.origin.topic", b"t")])
def test_arbitrary_headers_can_be_read_without_an_exception(
    headers: list[tuple[str, bytes | None]],
) -> None:
    story = story_of(headers)
    origin = story.origin or ORIGIN
    assert story_of(story_headers(story, origin)) == replace(story, origin=origin)
