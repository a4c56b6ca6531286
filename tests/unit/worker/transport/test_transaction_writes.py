"""Records of a transaction: which of them failed, and how long a missing topic is waited for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sharegroup.errors import KafkaError, MessageTooLarge, RequestTimedOut, UnknownTopicOrPartition
from sharegroup.worker.ports import BufferedRecord
from sharegroup.worker.transport.transaction_writes import write_all


class FakeProducer:
    """Answers each record of a topic with an error, after `send` has waited for it."""

    def __init__(self, errors: dict[str, KafkaError]) -> None:
        self.errors = errors
        self.waited: list[str] = []

    def send_now(self, topic: str, _value: bytes | None, **_: Any) -> Any:
        return None if topic in self.errors else self._written(topic)

    async def send(self, topic: str, _value: bytes | None, **_: Any) -> Any:
        self.waited.append(topic)
        raise self.errors[topic]

    async def _written(self, topic: str) -> str:
        return topic


def outcomes(producer: Any, topics: list[str]) -> list[Any]:
    records = [BufferedRecord(topic, b"", {}) for topic in topics]
    return asyncio.run(write_all(producer, records))


@pytest.mark.parametrize("error", [RequestTimedOut("late"), UnknownTopicOrPartition("none")])
def test_a_missing_topic_is_waited_for_once(error: KafkaError) -> None:
    producer = FakeProducer({"gone": error})

    assert outcomes(producer, ["gone", "there", "gone", "gone"]) == [error, "there", error, error]
    assert producer.waited == ["gone"]


def test_an_error_of_one_record_is_not_that_of_the_next() -> None:
    producer = FakeProducer({"orders": MessageTooLarge("large")})

    outcomes(producer, ["orders", "orders"])
    assert producer.waited == ["orders", "orders"]
