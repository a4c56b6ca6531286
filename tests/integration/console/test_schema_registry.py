"""Values decoded by a schema registry: on the pages, in searches, behind masks, and without it.

offset   0      1      2          3                    4               5
value    Avro   JSON   Protobuf   an array of nulls    an unknown id   no schema
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sharegroup.client import Producer
from sharegroup.console.access.masks import Mask, Masks, parsed_path
from sharegroup.console.access.roles import Grant, Role, Roles, UserGrant
from sharegroup.testing import AsyncTestBroker, SchemaRegistry, broker, run_schema_registry
from tests.integration.console.access_scene import TOKENS, Browser, with_tokens

for library in ("confluent_kafka", "fastavro", "google.protobuf"):
    pytest.importorskip(library)

GRANTS = (
    UserGrant(users=("ada",), grant=Grant(role=Role.ADMIN, values=True)),
    UserGrant(users=("bob",), grant=Grant(role=Role.ADMIN)),
)
MASKS = Masks((Mask(topics=("orders",), values=(parsed_path("$.card"),)),))
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "card", "type": "string"},
        {"name": "raw", "type": ["null", "bytes"]},
    ],
}
PROTOBUF = 'syntax = "proto3"; message Order { int64 id = 1; string card = 2; }'
ID, CARD = b"\x08", b"\x084111"


async def fill(there: AsyncTestBroker, registry: SchemaRegistry) -> None:
    """Write the records of the table above."""
    await there.create_topic("orders")
    avro = registry.register("avro", AVRO)
    document = registry.register("json", {"type": "object"}, schema_type="JSON")
    protobuf = registry.register("protobuf", PROTOBUF, schema_type="PROTOBUF")
    bomb = registry.register("bomb", {"type": "array", "items": "null"})
    values = [
        (avro, b"\x02" + CARD + b"\x02\x02\xff"),
        (document, b'{"id": 2, "card": "4111"}'),
        (protobuf, b"\x00\x08\x03\x12\x044111"),
        (bomb, b"\xfe\xff\xff\xff\x0f\x00"),
        (9_999, b"x"),
    ]
    async with Producer(bootstrap_servers=there.bootstrap_servers) as producer:
        for schema_id, payload in values:
            await producer.send_and_wait("orders", b"\x00" + schema_id.to_bytes(4, "big") + payload)
        await producer.send_and_wait("orders", b"\x00\x01")


@asynccontextmanager
async def scene(masks: Masks = MASKS) -> AsyncIterator[tuple[Browser, Browser]]:
    """Programs of ada, who sees values, and of bob, who does not."""
    with run_schema_registry() as registry:
        async with broker() as there:
            await fill(there, registry)
            roles = Roles(grants=GRANTS, masks=masks)
            async with with_tokens(there, roles=roles, schema_registry=registry.url) as console:
                ada, bob = [await console.browser(token=TOKENS[name]) for name in ("ada", "bob")]
                yield ada, bob


async def record(browser: Browser, offset: int) -> Any:
    return await browser.data("/record", topic="orders", partition=0, offset=offset)


def test_values_are_documents_and_others_say_why_not() -> None:
    async def run() -> None:
        async with scene(Masks()) as (ada, bob):
            expected = [
                {"id": 1, "card": "4111", "raw": "/w=="},
                {"id": 2, "card": "4111"},
                {"id": 3, "card": "4111"},
            ]
            for offset, document in enumerate(expected):
                found = await record(ada, offset)
                assert json.loads(found["value"]) == document
                assert found["value_note"].startswith("Decoded by schema")
            for offset, text in ((3, "10000 values"), (4, "unknown to the schema registry")):
                found = await record(ada, offset)
                assert text in found["value_note"]
            assert (await record(ada, 5))["value_note"] == ""
            page = await ada.get("/record", topic="orders", partition=0, offset=0)
            assert "Decoded by schema 1 of the schema registry" in page.text
            for query, offsets in (
                ({"where": 'id >= 2 and card == "4111"'}, [2, 1]),
                ({"value": '"id": 1'}, [0]),
            ):
                rows = (await ada.data("/records", topic="orders", **query))["records"]
                assert [row["offset"] for row in rows] == offsets
            # A download has the bytes, which can be produced again.
            answer = await ada.get("/records/export", topic="orders", where="id == 1")
            assert json.loads(answer.text)["value_base64"] == "AAAAAAECCDQxMTECAv8="
            for offset in range(3):
                hidden = await record(bob, offset)
                assert (hidden["value"], hidden["value_note"]) == ("hidden", "")

    asyncio.run(run())


def test_masks_are_those_of_the_decoded_value() -> None:
    async def run() -> None:
        async with scene() as (ada, _):
            for offset in range(3):
                assert json.loads((await record(ada, offset))["value"])["card"] == "•••"
            for offset in (3, 4, 5):
                assert (await record(ada, offset))["value"] == "•••"
            for query in ({"where": 'card == "4111"'}, {"value": "4111"}):
                assert (await ada.data("/records", topic="orders", **query))["records"] == []
            for path in ("/records", "/api/v1/records", "/records/export"):
                assert "4111" not in (await ada.get(path, topic="orders")).text

    asyncio.run(run())


@pytest.mark.slow
def test_registry_that_does_not_answer_costs_a_page_little_and_no_value() -> None:
    """The port is open, and nobody answers: a request would last until its time is over."""

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://user:s3cret@127.0.0.1:{silent.getsockname()[1]}"
            async with broker() as there:
                with run_schema_registry() as registry:
                    await fill(there, registry)
                roles = Roles(grants=GRANTS)
                async with with_tokens(there, roles=roles, schema_registry=url) as console:
                    ada = await console.browser(token=TOKENS["ada"])
                    began = time.monotonic()
                    found = await record(ada, 0)
                    assert time.monotonic() - began < 8
                    assert found["value"].startswith("000000")
                    assert "has not answered yet" in found["value_note"]
                    page = await ada.until(
                        "/record", lambda data: "does not answer" in data["value_note"],
                        topic="orders", partition=0, offset=0,
                    )  # fmt: skip
                    assert "s3cret" not in page["value_note"]
                    shown = await ada.get("/records", topic="orders")
                    assert "Values are shown as they are: schema registry http://127" in shown.text

    asyncio.run(run())
