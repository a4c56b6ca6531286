"""Who writes which letter, and which topics that needs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from sharegroup.client.records import RecordMetadata
from sharegroup.dead_letters.story import NEW
from sharegroup.errors import MessageTooLarge
from sharegroup.worker.dead_letters import Burier, dead_letter_topics, group_configs_of
from sharegroup.worker.decisions.decide import Bury
from sharegroup.worker.declarations.topics import BrokerDeadLetter, DeadLetter
from sharegroup.worker.ports import WrittenRecord
from tests.integration.worker.dead import Given, WallClock, failed, route


class Kept:
    """An outbox that keeps what it is given, or refuses it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.sent: list[tuple[str, bytes | None, dict[str, Any]]] = []
        self._error = error

    async def _sent(self, topic: str, value: bytes | None, more: dict[str, Any]) -> WrittenRecord:
        if self._error is not None:
            raise self._error
        self.sent.append((topic, value, more))
        return RecordMetadata(topic, 0, len(self.sent) - 1, 0)

    def send(self, topic: str, value: bytes | None, **more: Any) -> Awaitable[WrittenRecord]:
        return self._sent(topic, value, more)


def bury(outbox: Kept, dead_letter: Any, **more: Any) -> WrittenRecord | None:
    burier = Burier(outbox, WallClock(), route("billing", dead_letter), "member-1")
    given = Given("orders", 7, key=b"k", value=b"v")
    return asyncio.run(burier.bury(given, Bury(NEW, "rejected"), **more))


@pytest.mark.parametrize(
    ("dead_letter", "topic"),
    [(DeadLetter(), "billing.dead"), (DeadLetter("orders.dead"), "orders.dead")],
)
def test_dead_letter_is_written_to_the_declared_topic(dead_letter: DeadLetter, topic: str) -> None:
    outbox = Kept()
    assert bury(outbox, dead_letter) == RecordMetadata(topic, 0, 0, 0)
    ((where, value, more),) = outbox.sent
    assert (where, value, more["key"]) == (topic, b"v", b"k")
    assert "timestamp_ms" not in more, "retention counts from the burial"


@pytest.mark.parametrize("dead_letter", [None, BrokerDeadLetter("dlq.billing")])
def test_burier_writes_nothing_for_broker_dead_letters_or_without_a_topic(dead_letter: Any) -> None:
    outbox = Kept()
    assert bury(outbox, dead_letter) is None
    assert outbox.sent == []


def test_write_that_fails_is_the_callers() -> None:
    with pytest.raises(MessageTooLarge):
        bury(Kept(MessageTooLarge("too large")), DeadLetter())


def test_letter_can_be_made_smaller() -> None:
    whole, shrunk = Kept(), Kept()
    bury(whole, DeadLetter())
    bury(shrunk, DeadLetter(), shrunk=True)
    assert len(shrunk.sent[0][2]["headers"]) <= len(whole.sent[0][2]["headers"])


@pytest.mark.parametrize(("details", "end"), [("late", "TimeoutError: late"), ("", "TimeoutError")])
def test_message_ends_with_the_error(details: str, end: str) -> None:
    outbox = Kept()
    burier = Burier(outbox, WallClock(), route("billing", DeadLetter()), "member-1")
    step = failed(TimeoutError(details) if details else TimeoutError())
    asyncio.run(burier.bury(Given("orders", 7), step))
    assert dict(outbox.sent[0][2]["headers"])["__dlq.errors.message"].decode().endswith(end)


def test_topic_of_a_workers_letters() -> None:
    (topic,) = dead_letter_topics(route("billing", DeadLetter(partitions=3, retention="30d")))
    assert topic == (
        "billing.dead", 3,
        {"cleanup.policy": "delete", "max.message.bytes": "16777216", "retention.ms": "2592000000"},
        (None, None),
        None,
    )  # fmt: skip
    (kept,) = dead_letter_topics(route("billing", DeadLetter(retention=None)))
    assert kept.configs["retention.ms"] == "-1"
    assert dead_letter_topics(route("billing", None)) == []
    assert group_configs_of(route("billing", DeadLetter())) == {}


def test_topic_and_group_of_a_brokers_letters() -> None:
    declared = route("billing", BrokerDeadLetter("dlq.billing"))
    assert dead_letter_topics(declared) == [
        ("dlq.billing", 1, {"errors.deadletterqueue.group.enable": "true"}, (None, None), None)
    ]
    assert group_configs_of(declared) == {
        "errors.deadletterqueue.topic.name": "dlq.billing",
        "errors.deadletterqueue.copy.record.enable": "true",
    }
