"""Topics that are made because a Metadata request names them: not too many at once, nor in all."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from kio.schema.alter_client_quotas.v1 import request as alter_client_quotas
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.static.primitive import f64

from sharegroup.broker.handlers.topics.metadata import AUTO_CREATED_MAX
from tests.faults.in_process import Broker

NONE, UNKNOWN_TOPIC, INVALID_TOPIC, POLICY_VIOLATION = 0, 3, 17, 44


def naming(*names: str) -> MetadataRequest:
    return MetadataRequest(
        topics=tuple(MetadataRequestTopic(topic_id=None, name=name) for name in names),
        allow_auto_topic_creation=True,
        include_topic_authorized_operations=False,
    )


async def ask(broker: Broker, *names: str) -> dict[int, int]:
    """How many of the topics got each error code."""
    answer = await broker.ask(naming(*names))
    return dict(Counter(int(topic.error_code) for topic in answer.topics))


def test_request_makes_some_of_many_topics_and_the_next_request_the_next(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = await Broker.start(None, str(tmp_path))
        names = ["no topic", *(f"t{number}" for number in range(2 * AUTO_CREATED_MAX + 1))]
        told = [await ask(broker, *names) for _ in range(3)]
        await broker.stop()
        assert told == [
            {INVALID_TOPIC: 1, NONE: 100, UNKNOWN_TOPIC: 101},
            {INVALID_TOPIC: 1, NONE: 200, UNKNOWN_TOPIC: 1},
            {INVALID_TOPIC: 1, NONE: 201},
        ]

    asyncio.run(scenario())


def test_half_of_the_partition_limit_is_reserved_for_explicit_topics(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = await Broker.start(None, str(tmp_path))
        have = broker.running.parts.topics.catalog.partition_count
        await broker.stop()
        settings = {"sharegroup_partitions_max": str(2 * have + 4)}
        broker = await Broker.start(None, str(tmp_path), **settings)
        told = await ask(broker, *(f"t{number}" for number in range(5)))
        made = await broker.create_topic("on-purpose", have + 2)
        await broker.stop()
        assert (told, made) == ({NONE: 2, POLICY_VIOLATION: 3}, NONE)

    asyncio.run(scenario())


def test_topics_that_are_made_for_a_client_count_for_its_quota(tmp_path: Path) -> None:
    """Eleven partitions may be made at once with a quota of one a second; each topic has six."""

    async def scenario() -> None:
        broker = await Broker.start(None, str(tmp_path), num_partitions="6")
        entity = alter_client_quotas.EntityData(entity_type="client-id", entity_name="greedy")
        limit = alter_client_quotas.OpData(
            key="controller_mutation_rate", value=f64(1.0), remove=False
        )
        entry = alter_client_quotas.EntryData(entity=(entity,), ops=(limit,))
        await broker.ask(
            alter_client_quotas.AlterClientQuotasRequest(entries=(entry,), validate_only=False)
        )
        greedy = await broker.ask(naming("a", "b", "c"), client_id="greedy")
        assert [int(topic.error_code) for topic in greedy.topics] == [NONE, NONE, UNKNOWN_TOPIC]
        assert 0 < greedy.throttle_time.total_seconds() <= 2
        other = await broker.ask(naming("c"), client_id="other")
        assert (int(other.topics[0].error_code), other.throttle_time.total_seconds()) == (NONE, 0)
        await broker.stop()

    asyncio.run(scenario())
