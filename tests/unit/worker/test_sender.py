"""Sending to a handler: where it goes, as what, and when there is no way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest

from sharegroup.dead_letters.story import RecordOrigin, Story
from sharegroup.dead_letters.story_headers import own_headers, story_of
from sharegroup.errors import InvalidConfig, MessageTooLarge, NetworkException
from sharegroup.worker import App, NotConnected, Payload, Routed, share_group
from sharegroup.worker.ports import Header
from sharegroup.worker.sender import Outlet

NOW_MS = 1_767_225_600_000


@dataclass
class Order:
    total: int


async def bill(order: Order) -> None: ...


async def load(orders: list[Order]) -> None: ...


class Written(NamedTuple):
    topic: str
    value: bytes | None
    key: bytes | None
    headers: tuple[Header, ...]
    partition: int = 0
    offset: int = 5
    timestamp_ms: int = NOW_MS


class Outbox:
    """Returns what it is given; raises ``error`` where there is one."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Awaitable[Written]:
        async def sent() -> Written:
            if self.error is not None:
                raise self.error
            return Written(topic, value, key, tuple(headers))

        return sent()


class StillClock:
    def wall_ms(self) -> int:
        return NOW_MS


def sent(
    routed: Routed[Any, Any],
    payload: Any,
    *,
    app: App | None = None,
    outbox: Any = None,
    **how: Any,
) -> Any:
    app = app or App("orders-service")
    app.routes(routed)

    async def send() -> Any:
        async with app.connected(outbox or Outbox(), StillClock()):
            return await routed.send(payload, **how)

    return asyncio.run(send())


def billing(handler: Callable[..., Any] = bill, topics: Any = "orders", **options: Any) -> Any:
    return share_group("billing", topics=topics, handler=handler, **options)


def test_payload_is_sent_to_the_handlers_topic() -> None:
    assert sent(billing(), Order(3)) == Written("orders", b'{"total":3}', None, ())


def test_sender_of_a_batch_handler_sends_one() -> None:
    assert sent(billing(load), Order(3)).value == b'{"total":3}'


def test_key_and_headers_may_be_text() -> None:
    written = sent(billing(), Order(3), key="kund-ö", headers={"a": "ü", "b": b"\x00", "c": None})
    assert written.key == "kund-ö".encode()
    assert written.headers == (("a", "ü".encode()), ("b", b"\x00"), ("c", None))


def test_headers_may_be_pairs_with_doubles() -> None:
    headers = [("a", "1"), ("a", "2")]
    assert sent(billing(), Order(3), headers=headers).headers == (("a", b"1"), ("a", b"2"))


def test_reserved_headers_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"names that start with __sharegroup\. are reserved for the worker"
    ):
        sent(billing(), Order(3), headers={"__sharegroup.failures": "9"})


def test_key_or_header_that_is_no_text_or_bytes_is_refused() -> None:
    with pytest.raises(TypeError, match=r"bill\.send: expected a key of text or bytes, got 7"):
        sent(billing(), Order(3), key=7)
    with pytest.raises(TypeError, match="header 'attempt': expected text or bytes, got 1"):
        sent(billing(), Order(3), headers={"attempt": 1})


def test_topic_is_one_of_the_handlers() -> None:
    routed = billing(topics=("orders", "returns"))
    assert sent(routed, Order(3), topic="returns").topic == "returns"
    for topic in (None, "others"):
        with pytest.raises(
            InvalidConfig, match=r"expected a topic of its handler: orders, returns"
        ):
            sent(routed, Order(3), topic=topic)


def test_delayed_record_is_sent_to_a_retry_topic_with_its_story() -> None:
    written = sent(billing(), Order(3), key="k", headers={"a": "1"}, delay="10m")
    assert (written.topic, written.value, written.key) == (
        "billing.retry.10m",
        b'{"total":3}',
        b"k",
    )
    assert own_headers(written.headers) == (("a", b"1"),)
    story = story_of(written.headers)
    assert story.id is not None
    assert replace(story, id=None) == Story(
        origin=RecordOrigin("orders", -1, -1, NOW_MS), due_ms=NOW_MS + 600_000
    )


def test_record_for_a_time_waits_in_a_retry_topic_until_then() -> None:
    at = datetime(2026, 1, 1, 1, 10, tzinfo=ZoneInfo("Europe/Berlin"))
    written = sent(billing(), Order(3), at=at)
    assert written.topic == "billing.retry.10m"
    assert story_of(written.headers).due_ms == NOW_MS + 600_000


def test_record_for_a_time_that_has_passed_is_for_this_group_alone_too() -> None:
    """Otherwise a moment decided whether other groups get the record."""
    assert sent(billing(), Order(3), at=datetime(2025, 12, 31, tzinfo=UTC)).topic == "billing.retry"
    assert sent(billing(), Order(3), at=datetime(1969, 7, 20, tzinfo=UTC)).topic == "billing.retry"
    assert sent(billing(), Order(3)).topic == "orders"


def test_time_and_delay_together_are_refused() -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    with pytest.raises(ValueError, match=r"delay=.1h. and at=2026-01-02T00:00:00\+00:00; expected"):
        sent(billing(), Order(3), at=at, delay="1h")


def test_time_without_retry_topics_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="with retry=None there are none"):
        sent(billing(retry=None), Order(3), at=datetime(2026, 1, 2, tzinfo=UTC))


def test_delay_uses_the_tiers_of_the_route() -> None:
    written = sent(billing(retry_tiers=("1s", "1m")), Order(3), delay="10m")
    assert written.topic == "billing.retry.1m"


def test_delay_without_retry_topics_is_refused() -> None:
    expected = r"with retry=None there are none; Retry\(max_attempts=1\)"
    with pytest.raises(InvalidConfig, match=expected):
        sent(billing(retry=None), Order(3), delay="10m")


def test_wrong_payload_is_not_sent() -> None:
    with pytest.raises(TypeError, match="expected Order, got dict"):
        sent(billing(), {"total": 3})


def test_write_that_fails_raises_its_error() -> None:
    error = MessageTooLarge("topic 'orders': too large")
    with pytest.raises(MessageTooLarge, match="too large"):
        sent(billing(), Order(3), outbox=Outbox(error))


def test_before_send_may_add_headers() -> None:
    app = App("orders-service")

    @app.before_send
    def add(topic: str, headers: list[Header]) -> None:
        headers.append(("to", topic.encode()))

    assert sent(billing(), Order(3), app=app, headers={"a": "1"}).headers == (
        ("a", b"1"),
        ("to", b"orders"),
    )


def test_payload_that_may_wait_is_encoded_in_a_thread() -> None:
    import threading

    def encode(order: Order) -> bytes:
        return threading.current_thread().name.encode()

    routed = billing(payload=Payload(decode=lambda value: Order(1), encode=encode))
    assert sent(routed, Order(3)).value == b"MainThread"
    object.__setattr__(routed.route.codec, "may_block", True)
    assert sent(routed, Order(3)).value != b"MainThread"


def test_first_send_creates_the_topics_and_retries_after_a_failure() -> None:
    app = App("orders-service")
    routed = app.share_group("billing", topics="orders", handler=bill)
    prepared: list[str] = []
    errors: list[Exception] = [NetworkException("no broker can be reached")]

    async def prepare() -> None:
        prepared.append("asked")
        await asyncio.sleep(0)
        if errors:
            raise errors.pop()

    async def send() -> list[Any]:
        async with app.connected(Outbox(), StillClock()):
            app.outlet.prepare = prepare
            with pytest.raises(NetworkException, match="no broker can be reached"):
                await routed.send(Order(1))
            sent = [routed.send(Order(number)) for number in range(3)]
            return await asyncio.gather(*sent)

    assert [written.value for written in asyncio.run(send())] == [
        b'{"total":0}',
        b'{"total":1}',
        b'{"total":2}',
    ]
    assert prepared == ["asked", "asked"]
    assert app.outlet.prepare is None


def test_send_of_a_handler_without_an_application_is_refused() -> None:
    with pytest.raises(NotConnected, match=r"bill\.send: the handler belongs to no App yet"):
        asyncio.run(billing().send(Order(3)))


def test_send_without_a_running_application_is_refused_with_advice() -> None:
    app = App("orders-service")
    routed = app.share_group("billing", topics="orders", handler=bill)
    with pytest.raises(NotConnected) as raised:
        asyncio.run(routed.send(Order(3)))
    assert str(raised.value) == (
        "bill.send: App 'orders-service' has no producer here; send from a running app, or inside "
        "`async with app.client():`, or in a test inside `async with app.test():` "
        "(without asyncio, write to the handler's topic with sharegroup.client.sync.Producer)"
    )
    with pytest.raises(NotConnected):
        routed.send.blocking(Order(3))


def test_application_sends_through_one_outbox_at_a_time() -> None:
    app = App("orders-service")

    async def twice() -> None:
        async with app.connected(Outbox(), StillClock()), app.connected(Outbox(), StillClock()):
            pass

    with pytest.raises(RuntimeError, match="App 'orders-service' is already running or sending"):
        asyncio.run(twice())
    assert app.outlet.outbox is None


def test_handler_belongs_to_the_last_application_it_was_added_to() -> None:
    routed = billing()
    first, second = App("first"), App("second")
    first.routes(routed)
    second.routes(routed)
    with pytest.raises(NotConnected, match="App 'second'"):
        asyncio.run(routed.send(Order(3)))


def test_plain_function_in_a_thread_sends_and_waits() -> None:
    app = App("orders-service")
    routed = app.share_group("billing", topics="orders", handler=bill)

    async def from_a_thread() -> Any:
        async with app.connected(Outbox(), StillClock()):
            return await asyncio.to_thread(routed.send.blocking, Order(3), key="k")

    assert asyncio.run(from_a_thread()) == Written("orders", b'{"total":3}', b"k", ())


def test_blocking_send_on_the_event_loop_is_refused() -> None:
    app = App("orders-service")
    routed = app.share_group("billing", topics="orders", handler=bill)

    async def on_the_loop() -> None:
        async with app.connected(Outbox(), StillClock()):
            routed.send.blocking(Order(3))

    with pytest.raises(RuntimeError, match=r"on the event loop, use `await bill\.send"):
        asyncio.run(on_the_loop())


def test_preparation_of_a_client_that_ended_is_not_that_of_the_next() -> None:
    """The next client may find other topics missing, so its first send has to prepare."""

    async def scenario() -> None:
        outlet = Outlet("shop")
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def first() -> None:
            begun.set()
            await may_end.wait()

        async def second() -> None: ...

        outlet.prepare = first
        sending = asyncio.ensure_future(outlet.prepared())
        await begun.wait()
        outlet.prepare = second  # The first client has ended, and another one has begun.
        may_end.set()
        await sending
        assert outlet.prepare is second

    asyncio.run(scenario())
