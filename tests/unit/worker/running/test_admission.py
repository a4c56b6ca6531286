"""Expiry and filters in virtual time: which records never reach their handler."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sharegroup.dead_letters.story import RecordOrigin, Story
from sharegroup.dead_letters.story_headers import story_headers
from sharegroup.errors import InvalidConfig
from sharegroup.worker import (
    App,
    Batching,
    CircuitBreaker,
    Expiry,
    Payload,
    Record,
    Registry,
    Release,
    Retry,
)  # fmt: skip
from sharegroup.worker.testing.app_test import AppTest
from tests.unit.worker.app_runs import run

RETRY = Retry(max_attempts=3, initial_delay="10m", multiplier=1, jitter=0)

START = datetime(2026, 1, 1, tzinfo=UTC)
"""The time at which virtual time begins."""


def is_invoice(record: Record) -> bool:
    return record.header("type") == b"invoice"


class Shop:
    """An application with one handler, which fails for payloads with ``fails``."""

    def __init__(self, *, kind: str = "share_group", **options: Any) -> None:
        self.app = App("shop")
        self.handled: list[Any] = []
        self.clock: Any = None
        """For a handler that ``waits``."""
        self.events: list[str] = []
        declare = getattr(self.app, kind)

        async def bill(order: dict) -> None:
            self.handled.append(order)
            if seconds := order.get("waits"):
                await self.clock.sleep_until(self.clock.now() + seconds)
            if order.get("released") and self.handled.count(order) == 1:
                raise Release
            if order.get("fails"):
                raise ConnectionError

        self.bill: Any = declare("billing", topics="orders", **{"retry": RETRY, **options})(bill)
        for name in ("record.filtered", "record.expired", "record.failed"):
            self.app.on(name, lambda event: self.events.append(event.name))


def counts(t: AppTest) -> tuple[int, int]:
    """The records that the handler of an application did not want, and those that have expired."""
    assert t._worker is not None
    (counted,) = t._worker.counts
    return counted.filtered, counted.expired


KINDS = pytest.mark.parametrize("kind", ["share_group", "consumer_group"])


@KINDS
def test_row_27_record_that_is_too_old_becomes_a_letter_with_its_failures(
    kind: str,
) -> None:
    shop = Shop(kind=kind, expires_after="15m")

    async def story(t: AppTest) -> None:
        order = await t.send(shop.bill, {"fails": True})
        await t.advance("1h")
        assert order.times == (0, 600)  # The retry at 20 minutes is too late.
        assert order.outcome == "dead_lettered"
        (letter,) = t.dead_letters
        assert (letter.death.reason, len(letter.story.attempts)) == ("expired", 2)
        assert shop.events[-1] == "record.expired"

    run(shop.app, story)


@KINDS
def test_expired_record_is_dropped_without_a_copy(kind: str) -> None:
    shop = Shop(kind=kind, expires_after=Expiry(after="15m", dead_letter=False))

    async def story(t: AppTest) -> None:
        order = await t.send(shop.bill, {"fails": True})
        await t.advance("1h")
        assert (order.outcome, t.dead_letters) == ("accepted", [])

    run(shop.app, story)


def test_held_retry_expires_while_it_is_held() -> None:
    retry = Retry(max_attempts=9, initial_delay="2s", multiplier=1, jitter=0)
    shop = Shop(retry=retry, expires_after="5s")

    async def story(t: AppTest) -> None:
        order = await t.send(shop.bill, {"fails": True})
        await t.advance("1m")
        assert order.times == (0, 2, 4)
        assert t.dead_letters[0].death.reason == "expired"

    run(shop.app, story)


def test_record_that_waits_for_the_rate_limit_expires_there() -> None:
    shop = Shop(expires_after="25s", rate_limit="1/10s")

    async def story(t: AppTest) -> None:
        for number in range(5):
            await t.send(shop.bill, {"number": number})
        await t.advance("2m")
        assert [order["number"] for order in shop.handled] == [0, 1, 2]
        assert len(t.dead_letters) == 2

    run(shop.app, story)


def test_expired_records_take_no_token_of_the_rate_limit() -> None:
    shop = Shop(expires_after="1s", rate_limit="1/h", retry=Retry(initial_delay="2s", jitter=0))

    async def story(t: AppTest) -> None:
        for _ in range(5):
            await t.send(shop.bill, {}, headers={"expires": "0"})
        order = await t.send(shop.bill, {"fails": True})
        await t.advance("0.5s")
        assert order.times == (0,)
        assert len(t.dead_letters) == 5
        assert counts(t) == (0, 5)
        # Its retry has expired when it is due, and waits for no token.
        await t.advance("2m")
        assert order.outcome == "dead_lettered"

    run(shop.app, story)


@pytest.mark.parametrize(
    ("content", "outcome"),
    [
        ("2000-01-01T00:00:00Z", "dead_lettered"),
        ("946684800000", "dead_lettered"),
        (str(2**80), "accepted"),
        ("2999-01-01T00:00:00+02:00", "accepted"),
        # None of these is a time, so the record does not expire by it.
        ("2000-01-01T00:00:00", "accepted"),
        ("soon", "accepted"),
        (b"\xff\x00", "accepted"),
        (None, "accepted"),
        ("9" * 65, "accepted"),
    ],
)
def test_header_expires_counts_if_it_is_a_time(content: Any, outcome: str) -> None:
    shop = Shop(expires_after=Expiry())

    async def story(t: AppTest) -> None:
        order = await t.send(shop.bill, {}, headers={"expires": content})
        await t.advance("1s")
        assert order.outcome == outcome

    run(shop.app, story)


def test_header_expires_is_ignored_by_handlers_that_do_not_declare_expiry() -> None:
    shop = Shop()

    async def story(t: AppTest) -> None:
        order = await t.send(shop.bill, {}, headers={"expires": "0"})
        await t.advance("1s")
        assert order.times == (0,)
        with pytest.raises(InvalidConfig, match=r"declare expires_after=Expiry\(\)"):
            await shop.bill.send({}, expires="1m")

    run(shop.app, story)


def test_age_of_a_delayed_record_counts_from_when_it_is_due() -> None:
    shop = Shop(expires_after="1m")

    async def story(t: AppTest) -> None:
        await shop.bill.send({"number": 1}, delay="1h")
        await shop.bill.send({"number": 2}, delay="1h", expires="30m")
        await shop.bill.send({"number": 3, "fails": True}, expires=START + timedelta(seconds=30))
        await t.advance("2h")
        assert [order["number"] for order in shop.handled] == [3, 1, 2]
        # The time of the header is earlier than the retry.
        assert [letter.death.reason for letter in t.dead_letters] == ["expired"]

    run(shop.app, story)


def test_retries_of_a_delayed_record_do_not_begin_its_age_anew() -> None:
    shop = Shop(expires_after="15m")

    async def story(t: AppTest) -> None:
        await shop.bill.send({"fails": True}, delay="1h")
        await t.advance("3h")
        assert len(shop.handled) == 2  # At 1 h and 1 h 10 min.
        (letter,) = t.dead_letters
        assert (letter.death.reason, letter.story.failures) == ("expired", 2)
        assert letter.story.age_from_ms is None  # A redrive begins it anew.

    run(shop.app, story)


@pytest.mark.parametrize("delay", ["2s", "10m"], ids=["held", "postponed"])
def test_retries_of_a_redriven_record_do_not_begin_its_age_anew(delay: str) -> None:
    retry = Retry(max_attempts=20, initial_delay=delay, multiplier=1, jitter=0)
    shop = Shop(expires_after="5s" if delay == "2s" else "15m", retry=retry)
    origin = RecordOrigin("orders", 0, 7, 1_000)
    headers = (*story_headers(Story(redrives=1), origin), ("expires", b"0"))

    async def story(t: AppTest) -> None:
        t._world.log.append("billing.retry", b'{"fails": true}', headers=headers)
        await t.advance("3h")
        assert len(shop.handled) == (3 if delay == "2s" else 2)
        assert [letter.death.reason for letter in t.dead_letters] == ["expired"]

    run(shop.app, story)


def test_parked_records_that_were_delayed_expire() -> None:
    breaker = CircuitBreaker(failures=1, of=1, open_for="2m", on=ConnectionError)
    shop = Shop(expires_after="5m", breaker=breaker, concurrency=1)

    async def story(t: AppTest) -> None:
        for number in range(4):
            await shop.bill.send({"number": number, "fails": True}, delay="1h")
        await t.advance("4h")
        assert len(shop.handled) == 3  # At 60, 62 and 64 minutes.
        assert [letter.death.reason for letter in t.dead_letters] == ["expired"] * 4

    run(shop.app, story)


def test_suspect_that_expires_before_its_turn_has_one_letter() -> None:
    """Its letter takes longer than `Alone` waits for the begin of the handler."""
    shop = Shop(expires_after=Expiry(), concurrency=4)

    async def story(t: AppTest) -> None:
        origin = RecordOrigin("orders", 0, 7, 1_000)
        expires = str(int(START.timestamp() * 1000) + 300).encode()
        headers = (*story_headers(Story(suspicions=1), origin), ("expires", expires))
        t.fail_writes("billing.dead")
        shop.clock = t._world.clock
        await t.send(shop.bill, {"waits": 1})
        await t.advance("100ms")
        t._world.log.append("billing.retry", b"{}", headers=headers)
        await t.advance("30s")
        t.mend_writes("billing.dead")
        await t.advance("2m")
        assert shop.handled == [{"waits": 1}]
        assert [letter.death.reason for letter in t.dead_letters] == ["expired"]
        assert shop.events == ["record.expired"]

    run(shop.app, story, patience_seconds=0.01)


def test_time_without_a_zone_is_refused() -> None:
    shop = Shop(expires_after=Expiry())

    async def story(_: AppTest) -> None:
        with pytest.raises(ValueError, match="has no zone"):
            await shop.bill.send({}, expires=datetime(2999, 1, 1))  # noqa: DTZ001
        with pytest.raises(ValueError, match="within the next 366 days"):
            await shop.bill.send({}, expires=datetime(2999, 1, 1, tzinfo=UTC))

    run(shop.app, story)


@KINDS
def test_row_28_filter_of_headers_skips_records_without_decoding_them(kind: str) -> None:
    shop = Shop(kind=kind, only=is_invoice)

    async def story(t: AppTest) -> None:
        mine = await t.send(shop.bill, {"number": 1}, headers={"type": "invoice"})
        other = await t.send("orders", b"not JSON", headers={"type": "note"})
        await t.advance("1s")
        assert (mine.outcome, other.outcome, other.times) == ("accepted", "accepted", ())
        assert shop.handled == [{"number": 1}]
        assert shop.events == ["record.filtered"]
        assert counts(t) == (1, 0)

    run(shop.app, story)


def test_filter_of_the_payload_decodes_it_once() -> None:
    decoded: list[bytes] = []

    def decode(value: bytes) -> dict:
        decoded.append(value)
        return {"total": int(value)}

    payload = Payload(decode=decode, encode=lambda order: b"%d" % order["total"])
    shop = Shop(
        payload=payload, only=lambda order, record: order["total"] > 5, order_by=lambda order: 1
    )

    async def story(t: AppTest) -> None:
        for value in (b"3", b"7", b"x"):
            await t.send("orders", value)
        await t.advance("1s")
        assert shop.handled == [{"total": 7}]
        assert decoded == [b"3", b"7", b"x"]
        assert [letter.death.reason for letter in t.dead_letters] == ["unreadable"]

    run(shop.app, story)


@pytest.mark.parametrize("order_by", [None, "key"])
@pytest.mark.parametrize("delay", ["2s", "10m"], ids=["held", "postponed"])
def test_filter_that_raises_fails_the_record_and_is_asked_again(delay: str, order_by: Any) -> None:
    answers: list[Any] = [LookupError("not yet"), LookupError("not yet"), True]

    def only(record: Record) -> bool:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    retry = Retry(max_attempts=3, initial_delay=delay, multiplier=1, jitter=0)
    shop = Shop(only=only, retry=retry, order_by=order_by)

    async def story(t: AppTest) -> None:
        order = await t.send(shop.bill, {}, key="a")
        await t.advance("1h")
        assert order.outcome == "accepted"
        assert len(shop.handled) == 1
        assert shop.events.count("record.failed") == 2

    run(shop.app, story)


def test_filters_apply_to_each_record_of_a_batch() -> None:
    app = App("shop")
    batches: list[list[Any]] = []

    def only(row: dict, record: Record) -> bool:
        return bool(1 / row["id"] < 1)

    @app.share_group("loading", topics="rows", batch=Batching(size=9), only=only, retry=RETRY)
    async def load(rows: list[dict]) -> None:
        batches.append(rows)

    async def story(t: AppTest) -> None:
        rows = [await t.send(load, {"id": number}) for number in (0, 1, 2, 3)]
        await t.advance("1s")
        assert batches == [[{"id": 2}, {"id": 3}]]
        assert [row.outcome for row in rows] == ["retrying", "accepted", "accepted", "accepted"]

    run(app, story)


def test_skipped_records_take_no_token_of_the_rate_limit() -> None:
    shop = Shop(only=is_invoice, rate_limit="1/10s")

    async def story(t: AppTest) -> None:
        for number in range(500):
            kind = "invoice" if number % 250 == 249 else "note"
            await t.send(shop.bill, {"number": number}, headers={"type": kind})
        await t.advance("11s")
        assert [order["number"] for order in shop.handled] == [249, 499]

    run(shop.app, story)


def test_filter_is_asked_about_a_record_delivered_before_when_it_may_run() -> None:
    """A filter that ends its process is judged like a handler that does (ADR 0035)."""
    asked: list[int] = []

    def only(record: Record) -> bool:
        asked.append(record.delivery_attempt)
        if record.delivery_attempt < 2:
            raise Release
        return False

    shop = Shop(only=only)

    async def story(t: AppTest) -> None:
        order = await t.send(shop.bill, {})
        await t.advance("1m")
        assert (order.outcome, asked, shop.handled) == ("accepted", [1, 2], [])
        assert shop.events == ["record.filtered"]

    run(shop.app, story)


def test_filter_is_not_asked_about_a_record_delivered_before_while_it_waits() -> None:
    """It may have ended the process before, so it is asked only when the record may run."""
    asked: list[tuple[int, float]] = []

    def only(record: Record) -> bool:
        if record.key == b"released":
            asked.append((record.delivery_attempt, round(shop.clock.now())))
        return True

    shop = Shop(only=only, order_by=lambda order: 1)

    async def story(t: AppTest) -> None:
        shop.clock = t._world.clock
        began = round(shop.clock.now())
        released = await t.send(shop.bill, {"waits": 5, "released": True}, key="released")
        await t.send(shop.bill, {"waits": 20})
        await t.advance("1m")
        # Delivered again after 5 s, and then behind the other one.
        assert asked == [(1, began), (2, began + 25)]
        assert (released.outcome, len(shop.handled)) == ("accepted", 3)

    run(shop.app, story, patience_seconds=0.02)


def test_filter_that_fails_for_a_record_delivered_before_is_asked_again() -> None:
    answers: list[Any] = [Release(), LookupError("not yet"), False]

    def only(record: Record) -> bool:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    shop = Shop(only=only, retry=Retry(initial_delay="2s", jitter=0))

    async def story(t: AppTest) -> None:
        order = await t.send(shop.bill, {})
        await t.advance("1m")
        assert (order.outcome, answers, shop.handled) == ("accepted", [], [])
        assert shop.events == ["record.failed", "record.filtered"]

    run(shop.app, story)


async def ask(record: Record) -> bool:
    return True


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"only": ask}, "only: expected a plain function"),
        ({"only": 3}, "only: expected a function, got 3"),
        ({"only": lambda: True}, "can't be called with 1 or 2 arguments"),
        (
            {"only": lambda order, record: True, "payload": Registry("http://127.0.0.1:1")},
            "only: its payloads are decoded with a schema registry",
        ),
        ({"expires_after": 0}, "expires_after: Expiry: after=0; expected more than 0"),
        ({"expires_after": "soon"}, "expires_after: Expiry: after: a duration: expected numbers"),
    ],
)
def test_option_that_makes_no_sense_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidConfig, match=text):
        Shop(**options)
