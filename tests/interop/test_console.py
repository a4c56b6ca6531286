"""The console on our broker and on Apache Kafka: what it shows of share groups, and from where."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from sharegroup.client import Producer, ShareConsumer
from sharegroup.client.settings.client_config import ClientOptions
from sharegroup.console.application import application
from sharegroup.console.settings import ConsoleSettings
from tests.support.chosen_broker import KAFKA, chosen
from tests.support.limits import HANGING_SECONDS

RECORDS = 20


@pytest.mark.slow
def test_pages_of_a_share_group_and_its_records(bootstrap: str, topic: str, group: str) -> None:
    async def run() -> None:
        async with Producer(bootstrap_servers=bootstrap) as producer:
            for number in range(RECORDS):
                await producer.send_and_wait(topic, b'{"id": %d}' % number, partition=0)
        app = application(
            ConsoleSettings(client_options=ClientOptions(bootstrap_servers=bootstrap))
        )
        async with (
            ShareConsumer(
                topic,
                bootstrap_servers=bootstrap,
                group_id=group,
                start_from="earliest",
                share_acknowledgement_mode="explicit",
                client_id="reader",
            ) as consumer,
            app.router.lifespan_context(app),
            httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://localhost"
            ) as client,
        ):

            async def until(path: str, holds: Callable[[Any], bool], **query: Any) -> Any:
                async with asyncio.timeout(HANGING_SECONDS):
                    while True:
                        answer = await client.get(f"/api/v1{path}", params=query or None)
                        if answer.status_code == 200 and holds(answer.json()):
                            return answer.json()
                        await asyncio.sleep(0.1)

            records = []
            while len(records) < RECORDS:
                records += await consumer.poll(timeout=HANGING_SECONDS)
            # Of four records the second is still to be settled, so the start offset is 1.
            for number, outcome in enumerate(("accept", "release", "accept", "reject")):
                getattr(records[number], outcome)()
            await consumer.commit()
            data = await until(
                "/group", lambda data: data["runs"] and data["runs"][0]["start_offset"] == 1,
                id=group,
            )  # fmt: skip
            is_live = chosen() != KAFKA
            assert data["runs_source"] == ("live" if is_live else "durable")
            assert [member["client_id"] for member in data["group"]["members"]] == ["reader"]
            states = [
                (run["first_offset"], run["last_offset"], run["state"], run["delivery_count"])
                for run in data["runs"][0]["runs"]
            ]
            assert (1, 1, "available", 1) in states
            assert (2, 2, "acknowledged") in [state[:3] for state in states]
            assert (3, 3, "archived") in [state[:3] for state in states]
            page = await client.get("/group", params={"id": group})
            assert ("Live, from the broker's memory" if is_live else "Persisted state") in page.text
            record = await until("/record", lambda data: data["groups"], topic=topic, offset=3)
            assert record["groups"][0]["state"] == "archived"
            overview = await until(
                "/", lambda data: [row for row in data["groups"] if row["group"] == group]
            )
            (row,) = [row for row in overview["groups"] if row["group"] == group]
            # Kafka counts what is not settled: the records between the start and the end.
            assert row["lag"] is not None
            assert row["oldest_age_ms"] is not None
            for path in ("/topics", "/consumer-groups", "/transactions", "/brokers", "/access"):
                assert (await client.get(path)).status_code == 200, path
            (topic_row,) = [
                each
                for each in (await client.get("/api/v1/topics")).json()["topics"]
                if each["name"] == topic
            ]
            assert topic_row["leaderless"] == 0

    asyncio.run(run())
