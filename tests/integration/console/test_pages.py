"""The pages of the console on our broker: records, their states, letters, what is around them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from sharegroup.client import AdminClient, Consumer, Producer, ShareConsumer, TopicPartition
from sharegroup.client.settings.client_config import ClientOptions
from sharegroup.console.application import application
from sharegroup.console.settings import ConsoleSettings
from sharegroup.testing import AsyncTestBroker, broker
from sharegroup.worker import App, Reject
from tests.support.limits import HANGING_SECONDS

Get = Callable[..., Awaitable[httpx.Response]]


@asynccontextmanager
async def console(there: AsyncTestBroker, **settings: Any) -> AsyncIterator[Get]:
    """A console of this broker, and a function that requests its pages."""
    options = ClientOptions(bootstrap_servers=there.bootstrap_servers)
    app = application(ConsoleSettings(client_options=options, **settings))
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):

        async def get(path: str, **query: Any) -> httpx.Response:
            return await client.get(path, params=query or None)

        yield get


async def until(get: Get, path: str, holds: Callable[[Any], bool], **query: Any) -> Any:
    """Request the data of a page until a condition holds, and return it."""
    async with asyncio.timeout(HANGING_SECONDS):
        while True:
            answer = await get(f"/api/v1{path}", **query)
            if answer.status_code == 200 and holds(answer.json()):
                return answer.json()
            await asyncio.sleep(0.05)


async def fill(
    there: AsyncTestBroker, count: int, *, topic: str = "orders", partitions: int = 1
) -> None:
    await there.create_topic(topic, partitions=partitions)
    async with Producer(bootstrap_servers=there.bootstrap_servers) as producer:
        for number in range(count):
            await producer.send_and_wait(
                topic,
                b'{"id": %d}' % number,
                key=b"k%d" % number,
                headers=[("kind", b"even" if number % 2 == 0 else b"odd")],
                partition=number % partitions,
            )


def ids(data: Any) -> list[tuple[int, int]]:
    return [(record["partition"], record["offset"]) for record in data["records"]]


def test_records_are_looked_through_without_a_trace_in_any_group() -> None:
    async def run() -> None:
        async with broker() as there:
            await fill(there, 130)
            async with console(there) as get:
                newest = (await get("/api/v1/records", topic="orders")).json()
                assert ids(newest) == [(0, offset) for offset in range(129, 79, -1)]
                older = (await get("/api/v1/records", topic="orders", at=newest["next"])).json()
                assert ids(older) == [(0, offset) for offset in range(79, 29, -1)]
                from_there = (await get("/api/v1/records", topic="orders", offset=100)).json()
                assert ids(from_there) == [(0, offset) for offset in range(100, 130)]
                assert from_there["next"] is None
                for query, expected in (
                    ({"key": "k12"}, [129, 128, 127, 126, 125, 124, 123, 122, 121, 120, 12]),
                    ({"value": '"id": 7}'}, [7]),
                    ({"header": "kind=odd", "where": "id < 4"}, [3, 1]),
                    ({"header": "other"}, []),
                ):
                    found = (await get("/api/v1/records", topic="orders", **query)).json()
                    assert [record["offset"] for record in found["records"]] == expected
                page = (await get("/records", topic="orders", value='"id": 7}')).text
                assert "offset=7" in page
            async with AdminClient(bootstrap_servers=there.bootstrap_servers) as admin:
                assert await admin.list_groups() == []

    asyncio.run(run())


def test_a_record_has_its_state_in_each_share_group() -> None:
    async def run() -> None:
        async with broker() as there:
            await fill(there, 3)
            async with (
                ShareConsumer(
                    "orders",
                    bootstrap_servers=there.bootstrap_servers,
                    group_id="billing",
                    start_from="earliest",
                    share_acknowledgement_mode="explicit",
                ) as consumer,
                console(there) as get,
            ):
                records = await consumer.poll(timeout=HANGING_SECONDS)
                consumer.acknowledge(records[0])
                await consumer.commit()
                where = {"topic": "orders", "partition": 0}
                data = await until(
                    get, "/record", lambda data: data["groups"] != [], **where, offset=0
                )
                assert [(group["group"], group["state"]) for group in data["groups"]] == [
                    ("billing", "settled")
                ]
                # Its lock is not persisted.
                data = (await get("/api/v1/record", **where, offset=1)).json()
                assert data["groups"][0]["state"] in ("available", "never delivered")
                assert data["headers"] == [["kind", "odd"]]
                page = (await get("/record", **where, offset=1)).text
                assert "persisted" in page
                missing = await get("/record", **where, offset=3)
                assert missing.status_code == 404
                assert "has no record at offset 3" in missing.text

    asyncio.run(run())


def test_letters_by_reason_and_one_with_its_history() -> None:
    async def run() -> None:
        async with broker() as there:
            await fill(there, 6)
            app, seen = App("shop", bootstrap_servers=there.bootstrap_servers), asyncio.Event()

            @app.share_group("billing", topics="orders")
            async def bill(order: dict[str, int]) -> None:
                if order["id"] == 2:
                    raise Reject("<b>no such</b> customer")
                if order["id"] == 5:
                    seen.set()

            async with app:
                await seen.wait()
                async with console(there) as get:
                    data = await until(
                        get, "/letters", lambda data: data["letters"], topic="billing.dead"
                    )
                    (letter,) = data["letters"]
                    assert (letter["reason"], letter["message"]) == (
                        "rejected", "<b>no such</b> customer",
                    )  # fmt: skip
                    page = await get("/letters", topic="billing.dead")
                    assert "&lt;b&gt;no such&lt;/b&gt; customer" in page.text
                    assert "<b>" not in page.text
                    shown = (await get(f"/api/v1/{letter['address']}")).json()
                    assert shown["origin"][:3] == ["orders", 0, 2]
                    assert shown["is_origin_claimed"] is True
                    assert "Traceback" in (await get(f"/{letter['address']}")).text
                    other = await get("/api/v1/letters", topic="billing.dead", group="mailing")
                    assert other.json()["letters"] == []
                    topics = await until(get, "/letters", lambda data: data["topics"])
                    assert [topic["name"] for topic in topics["topics"]] == ["billing.dead"]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("path", "query", "status", "text"),
    [
        ("/group", {}, 400, "the address needs ?id="),
        ("/group", {"id": "nobody"}, 404, "There is no group"),
        ("/records", {"topic": "nobody"}, 404, "does not exist"),
        ("/records", {"topic": "orders", "partition": "7"}, 404, "has no partition 7"),
        ("/records", {"topic": "orders", "partition": "-1"}, 400, "a whole number"),
        ("/records", {"topic": "orders", "at": "0:x"}, 400, "PARTITION:OFFSET"),
        ("/records", {"topic": "orders", "time": "soon"}, 400, "in UTC"),
        ("/records", {"topic": "orders", "where": "a("}, 400, "was never closed"),
        ("/records", {"topic": "orders", "order": "best"}, 400, "newest, oldest"),
        ("/records", {"topic": "orders", "value": "x" * 2_000}, 400, "at most 1000 bytes"),
        ("/letters", {"topic": "nobody"}, 404, "does not exist"),
        ("/letters", {"topic": "orders", "reason": "bad"}, 400, "attempts-exhausted"),
        ("/topics", {"topics-sort": "weight"}, 400, "there is no column"),
    ],
)
def test_what_is_wrong_with_an_address_is_said(
    path: str, query: dict[str, str], status: int, text: str
) -> None:
    async def run() -> None:
        async with broker() as there:
            await fill(there, 1)
            async with console(there) as get:
                page = await get(path, **query)
                assert (page.status_code, text in page.text) == (status, True), page.text
                answer = await get(f"/api/v1{path}", **query)
                assert answer.status_code == status
                assert text in answer.json()["error"]

    asyncio.run(run())


def test_values_can_be_hidden() -> None:
    async def run() -> None:
        async with broker() as there:
            await fill(there, 1)
            async with console(there, show_values=False) as get:
                for path, query in (
                    ("/records", {"topic": "orders"}),
                    ("/record", {"topic": "orders", "partition": 0, "offset": 0}),
                ):
                    for page in (path, f"/api/v1{path}"):
                        text = (await get(page, **query)).text
                        assert "k0" not in text
                        assert "even" not in text
                        assert "hidden" in text or "You may not see it" in text

    asyncio.run(run())


def test_pages_around_the_queue() -> None:
    async def run() -> None:
        async with broker() as there:
            await fill(there, 4, partitions=2)
            async with (
                Consumer(
                    "orders",
                    bootstrap_servers=there.bootstrap_servers,
                    group_id="audit",
                    auto_offset_reset="earliest",
                ) as consumer,
                Producer(
                    bootstrap_servers=there.bootstrap_servers, transactional_id="open"
                ) as producer,
                console(there) as get,
            ):
                await consumer.poll(timeout=HANGING_SECONDS)
                await consumer.commit()
                await producer.begin_transaction()
                await producer.send_and_wait("orders", b"in a transaction", partition=0)
                groups = await until(
                    get, "/consumer-groups",
                    lambda data: data["groups"] and data["groups"][0]["members"],
                )  # fmt: skip
                assert groups["groups"][0]["group"] == "audit"
                found = (await get("/api/v1/transactions")).json()["transactions"]
                assert [(each["transactional_id"], each["partitions"]) for each in found] == [
                    ("open", ["orders 0"])
                ]
                topic = (await get("/api/v1/topic", name="orders")).json()
                assert [part["partition"] for part in topic["partitions"]] == [0, 1]
                topics = await until(get, "/topics", lambda data: data["topics"])
                assert "orders" in {each["name"] for each in topics["topics"]}
                rights = (await get("/api/v1/access")).json()
                assert rights["quotas"] == []
                brokers = (await get("/api/v1/brokers")).json()
                assert [each["state"] for each in brokers["brokers"]] == ["answers"]
                levels = {each["name"]: each["level"] for each in brokers["features"]}
                assert levels["share.version"] >= 1
                newest = {each["name"]: each["by_broker"]["1"][1] for each in brokers["requests"]}
                assert newest["ShareFetch"] >= 1
                assert (brokers["versions_unknown"], brokers["versions_not_asked"]) == ({}, 0)
                page = (await get("/brokers")).text
                assert "share.version" in page
                assert "<details open>" not in page
                found = (await get("/brokers", **{"requests-find": "ShareFetch"})).text
                assert "<details open>" in found
                for path in ("/", "/groups", "/letters", "/records", "/topics", "/access"):
                    assert (await get(path)).status_code == 200
                await producer.abort_transaction()

    asyncio.run(run())


def test_each_described_page_answers_and_misses_what_it_needs() -> None:
    """Each GET of the description answers with JSON, given what it needs; without one of these it
    answers 400 or 404 with an error, as the description says."""
    given = {"id": "billing", "group": "billing", "name": "orders", "topic": "orders",
             "kind": "purge"}  # fmt: skip

    async def body() -> None:
        async with broker() as there, console(there) as get:
            await there.create_topic("orders")
            await there.produce("orders", "a")
            async with AdminClient(bootstrap_servers=there.bootstrap_servers) as admin:
                await admin.alter_share_group_offsets("billing", {TopicPartition("orders", 0): 0})
            await until(get, "/groups", lambda page: bool(page["groups"]))
            document = (await get("/api/v1/openapi.json")).json()
            for path, operations in document["paths"].items():
                if "get" not in operations:
                    continue
                named = operations["get"]["parameters"]
                needs = [entry["name"] for entry in named if entry.get("required")]
                answer = await get(f"/api/v1{path}", **{name: given[name] for name in needs})
                assert str(answer.status_code) in operations["get"]["responses"]
                assert isinstance(answer.json(), dict)
                if path not in ("/job", "/plan", "/letter"):  # There are no jobs and letters.
                    assert answer.status_code == 200, (path, answer.text)
                if needs:
                    missing = await get(f"/api/v1{path}")
                    assert missing.status_code in (400, 404), path
                    assert missing.json().keys() == {"error"}

    asyncio.run(body())
