"""What an open page reads again for its live parts, and what it does not."""

from __future__ import annotations

import asyncio

import pytest

from sharegroup.client import AdminClient, TopicPartition
from sharegroup.client.settings.client_config import ClientOptions
from sharegroup.testing import broker
from tests.integration.console.access_scene import console
from tests.integration.console.live_pages import LivePage

ROUNDS = 3


@pytest.mark.parametrize(
    ("path", "query", "api"),
    [
        ("/group", {"id": "billing"}, "DescribeConfigs"),
        ("/topic", {"name": "orders"}, "DescribeConfigs"),
        ("/brokers", {"sort": "rack"}, "ApiVersions"),
    ],
)
def test_open_page_does_not_read_again_what_is_no_live_part(
    path: str, query: dict[str, str], api: str
) -> None:
    """Each reading of the whole page makes such a request; the rounds of its live parts make none.

    One more may come from the watcher, which makes it every 20 s.
    """

    async def run() -> None:
        async with broker() as there:
            await there.create_topic("orders")
            options = ClientOptions(bootstrap_servers=there.bootstrap_servers)
            async with AdminClient(**options) as admin:
                await admin.alter_share_group_offsets("billing", {TopicPartition("orders", 0): 0})
            async with console(options) as scene:
                browser = await scene.browser()
                await browser.until("/groups", lambda page: bool(page["groups"]))
                counted = there.delay(api, 0, times=None)
                for _ in range(ROUNDS):
                    assert (await browser.get(path, **query)).status_code == 200
                assert counted.count >= ROUNDS
                before = counted.count
                name, value = next(iter(query.items()))
                async with LivePage(scene.app, path, query=f"{name}={value}") as page:
                    await page.parts()
                    for _ in range(ROUNDS - 1):
                        await page.round()
                assert counted.count <= before + 1

    asyncio.run(run())
