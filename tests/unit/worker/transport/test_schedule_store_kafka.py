"""The errors of a transaction of an owner of schedules: which of them are those of a topic."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sharegroup.client import TopicPartition
from sharegroup.errors import KafkaError, RequestTimedOut, UnknownTopicOrPartition
from sharegroup.worker.retrying.tier_moves import MovedRecord
from sharegroup.worker.scheduling.schedule_store import RunRefused
from sharegroup.worker.transport.schedule_store_kafka import KafkaScheduleStore


class FakeProducer:
    """A producer whose wait for the topics of ``gone`` has ended, because of ``cause``."""

    def __init__(self, gone: set[str], cause: KafkaError | None) -> None:
        self._gone = gone
        self._cause = cause

    async def begin_transaction(self) -> None: ...

    def send_now(self, topic: str, _value: bytes | None, **_: Any) -> Any:
        return None if topic in self._gone else self._aborted()

    async def send(self, topic: str, _value: bytes | None, **_: Any) -> Any:
        raise RequestTimedOut(f"metadata of topic {topic!r}: gave up") from self._cause

    async def _aborted(self) -> None:
        return None


def failure(gone: set[str], cause: KafkaError | None) -> Exception:
    store = KafkaScheduleStore.__new__(KafkaScheduleStore)
    store._producer = FakeProducer(gone, cause)  # type: ignore[assignment]
    store._where = TopicPartition("shop.schedules", 0)
    topics = ["gone", "reports", "lost"]
    runs = [MovedRecord(topic, b"a", b"") for topic in topics]
    state = MovedRecord("shop.schedules", b"schedule/a", b"{}", partition=0)
    with pytest.raises((KafkaError, RunRefused)) as raised:
        asyncio.run(store.write([*runs, state]))
    return raised.value


def test_a_topic_that_does_not_exist_refuses_its_runs() -> None:
    refused = failure({"gone"}, UnknownTopicOrPartition("none"))

    assert isinstance(refused, RunRefused)
    assert "gone" in str(refused)


def test_all_topics_that_refuse_runs_are_named() -> None:
    refused = failure({"gone", "lost"}, UnknownTopicOrPartition("none"))

    assert isinstance(refused, RunRefused)
    assert refused.topics == ("gone", "lost")


def test_a_broker_that_is_away_is_not_the_fault_of_a_topic() -> None:
    assert isinstance(failure({"gone"}, None), RequestTimedOut)
