"""A value that would end the process of a worker becomes a dead letter; the next one is handled."""

from __future__ import annotations

from typing import Any

import pytest

from sharegroup.client import Producer
from sharegroup.dead_letters.letter import letter_of
from sharegroup.testing import SchemaRegistry
from sharegroup.worker import App, DeadLetter, Registry
from tests.integration.worker.collecting import Collected, on_a_loop
from tests.integration.worker.dead import make_topics, until_there
from tests.unit.schema_registry.test_avro_values import LIST, array

pytest.importorskip("confluent_kafka.schema_registry")


@on_a_loop
async def test_value_that_would_end_the_worker_is_a_dead_letter(
    bootstrap: str, group: str, topic: str, sharegroup_schema_registry: SchemaRegistry
) -> None:
    registry = sharegroup_schema_registry
    nodes = registry.register("nodes", LIST).to_bytes(4, "big")
    nulls = registry.register("nulls", array("null")).to_bytes(4, "big")
    app, runs = App("hostile", bootstrap_servers=bootstrap, grace="5s"), Collected()

    @app.share_group(group, topics=topic, dead_letter=DeadLetter(), payload=Registry(registry.url))
    async def follow(node: Any) -> None:
        runs.add("run", node)

    await make_topics(bootstrap, topic)
    values = [
        b"\0" + nodes + b"\x02" * 65_000 + b"\0",
        b"\0" + nulls + b"\xfe\xff\xff\xff\xff\x0f\0",
        b"\0" + nodes + b"\x02" * 20 + b"\0",
    ]
    async with app:
        async with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
            for value in values:
                await producer.send_and_wait(topic, value)
        await runs.wait_for(1)
        letters = await until_there(bootstrap, f"{group}.dead", 2)
    deaths = [letter_of(f"{group}.dead", 0, letter).death for letter in letters]
    assert {death.reason for death in deaths} == {"unreadable"}
    texts = sorted(death.error_message for death in deaths)
    assert "up to 10000 values" in texts[0] or "up to 10000 values" in texts[1]
    assert "300 deep" in texts[0] or "300 deep" in texts[1]
