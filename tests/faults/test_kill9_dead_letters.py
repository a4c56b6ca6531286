"""``kill -9`` of a broker that writes dead letters, eight times, and what is there at the end.

A member rejects two thirds of what it gets and accepts the rest.  Whenever so many were
confirmed the broker is killed, while letters are on their way, and comes back on its data.  At
the end each record whose reject was confirmed has its letter and none has one that was accepted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    NewTopic,
    Producer,
    ResourceType,
    ShareConsumer,
    TopicPartition,
)
from tests.support.confluent_calls import admin, end_offset, read_partition
from tests.support.processes import ServeProcess

RECORDS = 4_000
KILLS = 8
SECONDS_MAX = 60.0
WHERE = TopicPartition("orders", 0)
SETTINGS = {
    "errors.deadletterqueue.auto.create.topics.enable": "true",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "1000",
}
GROUP_SETTINGS = {
    "share.auto.offset.reset": "earliest",
    "errors.deadletterqueue.topic.name": "dlq.billing",
    "errors.deadletterqueue.copy.record.enable": "true",
}


async def set_up(bootstrap: str) -> None:
    async with AdminClient(bootstrap_servers=bootstrap) as setting_up:
        await setting_up.create_topics([NewTopic(WHERE.topic, 1)])
        changes = [AlterConfig(name, value) for name, value in GROUP_SETTINGS.items()]
        group = ConfigResource(ResourceType.GROUP, "billing")
        assert await setting_up.incremental_alter_configs({group: changes}) == {group: None}
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(RECORDS):
            await producer.send(WHERE.topic, b"%d" % number)


async def work(broker: ServeProcess) -> dict[int, bool]:
    """Settle everything, through all the kills; whether it was a reject, where confirmed."""
    confirmed: dict[int, bool] = {}
    kills = 0
    async with ShareConsumer(
        WHERE.topic,
        bootstrap_servers=broker.bootstrap_servers,
        group_id="billing",
        share_acknowledgement_mode="explicit",
        max_poll_records=100,
    ) as consumer:
        while await lag(broker.bootstrap_servers) != 0:
            records = await consumer.poll(0.5)
            for record in records:
                assert record.offset not in confirmed, f"{record.offset} comes again"
                (record.accept if record.offset % 3 == 0 else record.reject)()
            if (await consumer.commit(SECONDS_MAX)).get(WHERE, WHERE) is None:
                confirmed |= {record.offset: record.offset % 3 != 0 for record in records}
            if kills < KILLS and len(confirmed) > (kills + 1) * RECORDS / (KILLS + 1):
                kills += 1
                broker.kill9()
                await asyncio.to_thread(broker.start)
    assert kills == KILLS
    return confirmed


async def lag(bootstrap: str) -> int | None:
    async with AdminClient(bootstrap_servers=bootstrap) as asking:
        listed = await asking.list_share_group_offsets({"billing": [WHERE]})
        found = listed["billing"]
        return found[WHERE].lag


@pytest.mark.slow
def test_repeated_kills_of_the_broker_lose_no_letter(tmp_path: Path) -> None:
    async def scenario(broker: ServeProcess) -> dict[int, bool]:
        async with asyncio.timeout(SECONDS_MAX):
            await set_up(broker.bootstrap_servers)
            return await work(broker)

    with ServeProcess(tmp_path / "data", settings=SETTINGS) as broker:
        confirmed = asyncio.run(scenario(broker))
        count = end_offset(broker.bootstrap_servers, "dlq.billing")
        letters = read_partition(broker.bootstrap_servers, "dlq.billing", count=count)
        admin.cache_clear()
    found = Counter(int(dict(letter.headers())["__dlq.errors.offset"]) for letter in letters)
    for letter in letters:
        assert letter.value() == dict(letter.headers())["__dlq.errors.offset"]
    missing = [offset for offset, is_reject in confirmed.items() if is_reject and not found[offset]]
    assert missing == []
    assert [offset for offset in found if offset % 3 == 0] == []
    assert max(found.values()) <= 1 + KILLS
    assert sorted(found) == [offset for offset in range(RECORDS) if offset % 3]
