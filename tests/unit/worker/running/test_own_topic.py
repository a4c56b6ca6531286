"""Each record of a group's own topic is run or becomes a dead letter, whatever its headers.

The records are not the worker's own: a program wrote them, a mirror copied them from another
cluster or from a topic with another name, or someone forged their headers.  On virtual time.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from sharegroup.dead_letters.story import RecordOrigin, Story
from sharegroup.dead_letters.story_headers import STORY, story_headers
from sharegroup.worker import App, Record, Retry
from sharegroup.worker.ports import Header
from sharegroup.worker.running.record_routing import UNROUTED_MAX
from sharegroup.worker.testing.app_test import AppTest

THRICE = Retry(max_attempts=3, initial_delay="10s", multiplier=1, jitter=0)
OWN = "billing.retry"
TWO_HOURS = "2h"
"""Longer than `UNROUTED_MAX` postponements; the waiting times in these tests are shorter."""


class Failing:
    """An application with failing handlers of the group `billing`, one for each topic."""

    def __init__(self, *topics: str, **options: Any) -> None:
        self.app = App("mirrored")
        self.attempts: list[int] = []
        for topic in topics:
            self.app.share_group(
                "billing", topics=topic, name=topic, retry=THRICE, handler=self.handle, **options
            )

    async def handle(self, value: bytes, record: Record) -> None:
        self.attempts.append(record.attempt)
        raise ValueError("it fails")


def put(t: AppTest, *headers: Header, topic: str = OWN) -> None:
    t._world.log.append(topic, b"x", headers=headers)


def unrouted(t: AppTest) -> dict[str, int]:
    assert t._worker is not None
    return dict(t._worker.state.groups[0].unrouted)


async def ends(
    headers: tuple[Header, ...], *topics: str, topic: str = OWN, after: str = TWO_HOURS
) -> tuple[str, list[int]]:
    """The reason of the record's only dead letter, and the attempts of the handlers before."""
    failing = Failing(*topics)
    async with failing.app.test() as t:
        put(t, *headers, topic=topic)
        await t.advance(after)
        (letter,) = t.dead_letters
        assert letter.value == b"x"
        return str(letter.death.reason), failing.attempts


def of(topic: str, **story: Any) -> tuple[Header, ...]:
    return story_headers(Story(**story), RecordOrigin(topic, 3, 77, 1_700_000_000_000))


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param((), id="none"),
        pytest.param((("__sharegroup.origin.topic", b"orders"),), id="half of an origin"),
        pytest.param((*of("orders"), *of("refunds")), id="two origins"),
        pytest.param(of(OWN), id="the own topic as origin"),
    ],
)
def test_record_without_a_usable_origin_ends_in_the_only_handler_of_its_group(
    headers: tuple[Header, ...],
) -> None:
    """It failed once, had its place in the own topic as its origin, and was never run again."""
    assert asyncio.run(ends(headers, "orders", after="1m")) == ("attempts-exhausted", [1, 2, 3])


@pytest.mark.parametrize("origin", ["us.orders", "billing.retry.5s", "other.retry", "x" * 249])
def test_record_of_a_renamed_topic_becomes_a_dead_letter_after_an_hour(origin: str) -> None:
    """MirrorMaker copies topics under other names, but not the names in the headers."""

    async def test() -> None:
        failing = Failing("orders", "refunds")
        async with failing.app.test() as t:
            put(t, *of(origin))
            await t.advance("59m")
            assert t.dead_letters == []
            await t.advance("10m")
            (letter,) = t.dead_letters
            assert (letter.death.reason, letter.story.origin) == (
                "unrouted", RecordOrigin(origin, 3, 77, 1_700_000_000_000),
            )  # fmt: skip
            assert unrouted(t) == {"postponed": UNROUTED_MAX, "dead_lettered": 1}
        assert failing.attempts == []

    asyncio.run(test())


def test_group_without_dead_letters_rejects_such_a_record_and_counts_it() -> None:
    async def test() -> None:
        failing = Failing("orders", "refunds", dead_letter=None)
        async with failing.app.test() as t:
            put(t)
            await t.settle()
            assert unrouted(t) == {"rejected": 1}

    asyncio.run(test())


def test_a_handler_without_dead_letters_does_not_take_those_of_its_group() -> None:
    async def test() -> None:
        failing = Failing("orders", dead_letter=None)
        failing.app.share_group("billing", topics="refunds", retry=THRICE, handler=failing.handle)
        async with failing.app.test() as t:
            put(t)
            await t.settle()
            assert [letter.death.reason for letter in t.dead_letters] == ["unrouted"]

    asyncio.run(test())


@pytest.mark.parametrize("timestamp_ms", [-(2**63), -2, 2**63 - 1])
def test_record_with_an_extreme_timestamp_keeps_its_story(timestamp_ms: int) -> None:
    headers = story_headers(Story(failures=2), RecordOrigin("orders", 0, 7, timestamp_ms))
    assert asyncio.run(ends(headers, "orders", "refunds", after="1m")) == (
        "attempts-exhausted", [3],
    )  # fmt: skip


@pytest.mark.parametrize("topic", [OWN, f"{OWN}.5s", f"{OWN}.6h", f"{OWN}.due"])
@pytest.mark.parametrize(
    "due", [b"-5", b"0", b"9223372036854775807", b"9223372036854775808", b"soon", b"", None]
)
def test_record_with_an_impossible_due_time_is_run_at_once(topic: str, due: bytes | None) -> None:
    headers = (
        *of("orders"), ("__sharegroup.due", due), ("__sharegroup.delay", b"9223372036854775807"),
    )  # fmt: skip
    assert asyncio.run(ends(headers, "orders", topic=topic, after="1m")) == (
        "attempts-exhausted", [1, 2, 3],
    )  # fmt: skip


numbers = st.integers(-(2**64), 2**64).map(lambda number: b"%d" % number)
values = numbers | st.none() | st.binary(max_size=12) | st.sampled_from([b"orders", OWN.encode()])
names = st.sampled_from([*sorted(STORY), "__sharegroup.delay", "__sharegroup.written", "mine"])
some_headers = st.lists(st.tuples(names, values), max_size=14).map(tuple)


@settings(max_examples=40, deadline=None)
@given(
    headers=some_headers,
    whole=st.booleans(),
    topic=st.sampled_from([OWN, f"{OWN}.5s", f"{OWN}.6h", f"{OWN}.due"]),
    topics=st.sampled_from([("orders",), ("orders", "refunds")]),
)
def test_record_with_any_headers_becomes_exactly_one_dead_letter(
    headers: tuple[Header, ...], whole: bool, topic: str, topics: tuple[str, ...]
) -> None:
    if whole:
        present = {name for name, _ in headers}
        headers += tuple(header for header in of("us.orders") if header[0] not in present)
    reason, _ = asyncio.run(ends(headers, *topics, topic=topic))
    assert reason in ("attempts-exhausted", "unrouted", "cancelled")


@pytest.mark.parametrize("origin", ["orders", "us.orders"], ids=["handled here", "not here"])
def test_row_26_record_that_was_cancelled_becomes_a_letter_and_does_not_run(origin: str) -> None:
    async def test() -> None:
        failing = Failing("orders", "refunds")
        async with failing.app.test() as t:
            put(t, *of(origin, failures=1, id="f00", cancelled_by="anna"))
            await t.settle()
            (letter,) = t.dead_letters
            assert (letter.death.reason, letter.story.cancelled_by, letter.story.id) == (
                "cancelled", "anna", "f00",
            )  # fmt: skip
            assert letter.story.failures == 1, "as it was when it was cancelled"
        assert failing.attempts == []

    asyncio.run(test())


def test_record_of_another_topic_is_not_cancelled_by_its_headers() -> None:
    async def test() -> None:
        failing = Failing("orders")
        async with failing.app.test() as t:
            put(t, *of("orders", cancelled_by="anna"), topic="orders")
            await t.settle()
            assert t.dead_letters == []
        assert failing.attempts != []

    asyncio.run(test())
