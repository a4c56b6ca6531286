"""Downloads of letters and records on our broker: who gets what, and in which form."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import logging
import re
from typing import Any

import pytest
from starlette.types import Message

from sharegroup.client import Producer
from sharegroup.console.access.masks import Masks
from sharegroup.console.access.roles import Roles
from sharegroup.console.web.downloads import EXPORTS_MAX
from sharegroup.testing import AsyncTestBroker, broker
from tests.integration.console.access_scene import TOKENS, Scene, with_tokens
from tests.integration.console.test_masked_letters import DEAD, EVERYTHING, MASKS, with_a_letter
from tests.support.limits import HANGING_SECONDS

EXPORTS = (("/letters/export", DEAD), ("/records/export", DEAD), ("/records/export", "orders"))


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_letters_and_records_as_files_with_masks_and_rights(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whoever sees values gets them; what is masked, or nobody may see, is in no file."""
    caplog.set_level(logging.INFO, "sharegroup.console")

    async def run() -> None:
        async with broker() as there:
            await with_a_letter(there)
            for masks, name, is_seen in (
                (Masks(), "ada", True), (MASKS, "ada", False), (Masks(), "bob", False),
            ):  # fmt: skip
                roles = Roles(grants=EVERYTHING, masks=masks)
                async with with_tokens(there, roles=roles) as scene:
                    program = await scene.browser(token=TOKENS[name])
                    for path, topic in EXPORTS:
                        for base in ("", "/api/v1"):
                            for form in ("csv", "jsonl"):
                                answer = await program.get(base + path, topic=topic, format=form)
                                assert answer.status_code == 200, answer.text
                                assert ("4111" in answer.text) == is_seen, (name, path, topic, form)
                    refused = await program.get("/letters/export", topic=DEAD, where="id == 1")
                    assert refused.status_code == (400 if name == "bob" else 200)

    asyncio.run(run())
    logged = [line for line in caplog.messages if "console.exported" in line]
    assert logged[0] == (
        f"event=console.exported user='ada' topic='{DEAD}' values=yes rows=1 outcome=complete"
    )
    assert (
        f"event=console.exported user='bob' topic='{DEAD}' values=no rows=1 outcome=complete"
        in logged
    )
    assert any("console.values_seen user='ada'" in line for line in caplog.messages)


def test_file_of_letters_is_that_of_dlq_export() -> None:
    async def run() -> None:
        async with broker() as there:
            await with_a_letter(there)
            async with with_tokens(there, roles=Roles(grants=EVERYTHING)) as scene:
                ada = await scene.browser(token=TOKENS["ada"])
                answer = await ada.get("/letters/export", topic=DEAD, error_class="Reject")
                assert answer.headers["content-disposition"] == (
                    f'attachment; filename="{DEAD}.letters.jsonl"'
                )
                (letter,) = lines(answer.text)
                assert json.loads(letter["value"]) == {"card": "4111", "id": "seven"}
                assert letter["dead"]["error_message"] == "no card 4111"
                assert {header["name"] for header in letter["headers"]} >= {
                    "X-Card", "__sharegroup.dead.error.class",
                }  # fmt: skip
                assert await exported_by_command(there) == answer.content
                none = await ada.get("/letters/export", topic=DEAD, error_class="Nothing")
                assert (none.status_code, none.text) == (200, "")
                page = (await ada.get("/letters", topic=DEAD, handler="bill")).text
                links = re.findall(r'href="(/letters/export\?[^"]*)"', page)
                assert [link.replace("&amp;", "&") for link in links] == [
                    f"/letters/export?topic={DEAD}&handler=bill&format={form}"
                    for form in ("csv", "jsonl")
                ]

    asyncio.run(run())


async def exported_by_command(there: AsyncTestBroker) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *("python", "-m", "sharegroup", "dlq", "export", DEAD),
        *("--bootstrap-server", there.bootstrap_servers),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    return output


def test_records_of_a_search_are_all_there_however_many_pages_they_fill() -> None:
    async def run() -> None:
        async with broker() as there:
            await there.create_topic("orders", partitions=2)
            async with Producer(bootstrap_servers=there.bootstrap_servers) as producer:
                for number in range(1_300):
                    await producer.send(
                        "orders", b'{"id": %d}' % number, partition=number % 2,
                        headers=[("=cmd|' /C calc'!A0", b"@x")],
                    )  # fmt: skip
                await producer.send("orders", b"\xff\x00", key=b"=1+1", partition=0)
            async with with_tokens(there, roles=Roles(grants=EVERYTHING)) as scene:
                ada = await scene.browser(token=TOKENS["ada"])
                for order in ("newest", "oldest"):
                    answer = await ada.get("/records/export", topic="orders", order=order)
                    found = lines(answer.text)
                    assert len(found) == len({(row["partition"], row["offset"]) for row in found})
                    assert len(found) == 1_301
                some = lines(
                    (await ada.get("/records/export", topic="orders", where="id >= 1290")).text
                )
                assert sorted(json.loads(row["value"])["id"] for row in some) == list(
                    range(1290, 1300)
                )
                later = await ada.get("/records/export", topic="orders", offset=649, format="csv")
                rows = list(csv.DictReader(io.StringIO(later.text, newline="")))
                assert [(row["partition"], row["offset"]) for row in rows] == [
                    ("0", "649"), ("0", "650"), ("1", "649"),
                ]  # fmt: skip
                assert (rows[1]["key"], rows[1]["value"], rows[1]["value_base64"]) == (
                    "'=1+1",
                    "",
                    "/wA=",
                )
                assert json.loads(rows[0]["headers"]) == [
                    {"name": "=cmd|' /C calc'!A0", "value": "@x"}
                ]
                head = await ada.http.head("/records/export", params={"topic": "orders"})
                assert (head.status_code, head.content) == (200, b"")
                for query, status, text in (
                    ({"topic": "nowhere"}, 404, "nowhere"),
                    ({"topic": "orders", "format": "xls"}, 400, "expected csv or jsonl"),
                    ({"topic": "orders", "partition": "9"}, 404, "no partition 9"),
                ):
                    for base in ("", "/api/v1"):
                        answer = await ada.get(f"{base}/records/export", **query)
                        assert (answer.status_code, text in answer.text) == (status, True)

    asyncio.run(run())


def test_number_of_downloads_at_once_is_bounded_and_one_that_ends_gives_its_place_back() -> None:
    """Browsers that take nothing hold a place until they go away."""

    async def run() -> None:
        async with broker() as there:
            await there.create_topic("orders")
            await there.produce("orders", "x" * 300_000)
            async with with_tokens(there, roles=Roles(grants=EVERYTHING)) as scene:
                ada = await scene.browser(token=TOKENS["ada"])
                slow = [
                    asyncio.create_task(stalled(scene, TOKENS["ada"])) for _ in range(EXPORTS_MAX)
                ]
                async with asyncio.timeout(HANGING_SECONDS):
                    # The condition: all places are taken.
                    while (await ada.get("/records/export", topic="orders")).status_code != 503:
                        await asyncio.sleep(0.05)
                    for task in slow:
                        task.cancel()
                    await asyncio.gather(*slow, return_exceptions=True)
                    answer = await ada.get("/records/export", topic="orders")
                assert answer.status_code == 200

    asyncio.run(run())


async def stalled(scene: Scene, token: str) -> None:
    """Request a file, and take no part of it."""

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    await scene.app(
        {
            "type": "http", "method": "GET", "path": "/records/export", "root_path": "",
            "query_string": b"topic=orders", "http_version": "1.1", "scheme": "http",
            "headers": [(b"authorization", f"Bearer {token}".encode()), (b"host", b"localhost")],
            "client": ("127.0.0.1", 5), "server": ("localhost", 80),
        },
        receive,
        send,
    )  # fmt: skip
