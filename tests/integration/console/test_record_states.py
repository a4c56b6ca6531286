"""The state of one record in each share group: read once for all of them, or from memory."""

from __future__ import annotations

import asyncio
from typing import Any

from sharegroup.client import AdminClient, ShareConsumer, TopicPartition
from sharegroup.client.settings.client_config import ClientOptions
from sharegroup.console.pages.record_states import GROUPS_MAX
from sharegroup.testing import AsyncTestBroker, broker
from tests.integration.console.access_scene import console
from tests.support.kafka_peer import free_ports
from tests.support.limits import HANGING_SECONDS

PLACE = {"topic": "orders", "partition": 0}
STATE_TOPIC = "__share_group_state"


async def set_starts(there: AsyncTestBroker, starts: dict[str, int]) -> None:
    """Let share groups begin at these offsets, after three records."""
    await there.create_topic("orders")
    await there.produce("orders", *("a" for _ in range(3)))
    async with AdminClient(bootstrap_servers=there.bootstrap_servers) as admin:
        for group, start in starts.items():
            await admin.alter_share_group_offsets(group, {TopicPartition("orders", 0): start})


def test_states_in_many_groups_are_read_in_one_pass_and_the_others_are_a_number() -> None:
    names = [f"group-{number:02}" for number in range(GROUPS_MAX + 2)]

    async def run() -> None:
        async with broker() as there:
            await set_starts(there, {name: number % 3 for number, name in enumerate(names)})
            options = ClientOptions(bootstrap_servers=there.bootstrap_servers)
            async with console(options) as scene:
                browser = await scene.browser()

                def is_known(data: Any) -> bool:
                    return len(data["groups"]) == GROUPS_MAX and data["groups_left_out"] == 2

                await browser.until("/record", is_known, **PLACE, offset=1)
                looked = there.delay("ListOffsets", 0, times=None, topic=STATE_TOPIC)
                data = await browser.data("/record", **PLACE, offset=1)
                assert looked.count == 2, "where the log begins, and where it ends"
                page = (await browser.get("/record", **PLACE, offset=1)).text
        states = {each["group"]: each["state"] for each in data["groups"]}
        assert states == {
            name: "settled" if number % 3 == 2 else "never delivered"
            for number, name in enumerate(names[:GROUPS_MAX])
        }
        assert "… and 2 more share groups" in page

    asyncio.run(run())


def test_state_in_memory_has_the_lock_and_other_groups_have_the_persisted_one() -> None:
    async def run() -> None:
        (port,) = free_ports(1)
        async with broker({"sharegroup.metrics.port": str(port)}) as there:
            await set_starts(there, {"audit": 1, "billing": 0})
            options = ClientOptions(bootstrap_servers=there.bootstrap_servers)
            member = ShareConsumer(
                "orders", group_id="billing", share_acknowledgement_mode="explicit", **options
            )
            async with (
                member as consumer,
                console(options, metrics_url=f"http://127.0.0.1:{port}") as scene,
            ):
                assert len(await consumer.poll(timeout=HANGING_SECONDS)) == 3
                browser = await scene.browser()

                def is_held(data: Any) -> bool:
                    states = {each["group"]: each for each in data["groups"]}
                    return len(states) == 2 and states["billing"]["state"] == "acquired"

                data = await browser.until("/record", is_held, **PLACE, offset=2)
                audit, billing = data["groups"]
        assert (audit["is_live"], audit["state"]) == (False, "never delivered")
        assert (billing["is_live"], billing["delivery_count"]) == (True, 1)
        assert billing["member_id"]
        assert billing["lock_ms_left"] > 0

    asyncio.run(run())
