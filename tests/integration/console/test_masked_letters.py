"""Dead letters of a topic with masks: neither their content nor what a handler said about it."""

from __future__ import annotations

import asyncio

from sharegroup.client import Producer
from sharegroup.console.access.masks import Mask, Masks, parsed_path
from sharegroup.console.access.roles import Grant, Role, Roles, UserGrant
from sharegroup.testing import AsyncTestBroker, broker
from sharegroup.worker import App, Reject
from tests.integration.console.access_scene import TOKENS, with_tokens
from tests.support.limits import HANGING_SECONDS

DEAD = "billing.dead"
EVERYTHING = (UserGrant(users=("ada",), grant=Grant(role=Role.ADMIN, values=True)),
              UserGrant(users=("bob",), grant=Grant(role=Role.ADMIN)))  # fmt: skip
MASKS = Masks((Mask(topics=("orders",), values=(parsed_path("$.card"),), headers=("x-*",)),))


async def with_a_letter(there: AsyncTestBroker) -> None:
    """Let a handler reject a record with a message that quotes it."""
    await there.create_topic("orders")
    app, seen = App("shop", bootstrap_servers=there.bootstrap_servers), asyncio.Event()

    @app.share_group("billing", topics="orders")
    async def bill(order: dict[str, str]) -> None:
        seen.set()
        raise Reject(f"no card {order['card']}")

    async with Producer(bootstrap_servers=there.bootstrap_servers) as producer:
        await producer.send_and_wait(
            "orders", b'{"card": "4111", "id": "seven"}', headers=[("X-Card", b"4111")]
        )
    async with app, asyncio.timeout(HANGING_SECONDS):
        await seen.wait()
    await there.wait_until(records=1, topic=DEAD)


def test_masks_of_the_original_topic_apply_to_its_letters() -> None:
    async def run() -> None:
        async with broker() as there:
            await with_a_letter(there)
            where = {"topic": DEAD, "partition": 0, "offset": 0}
            pages = (
                ("/letters", {"topic": DEAD}), ("/letter", where),
                ("/records", {"topic": DEAD}), ("/record", where),
            )  # fmt: skip
            for masks, names, is_seen in (
                (Masks(), ["ada"], True), (MASKS, ["ada"], False), (Masks(), ["bob"], False),
            ):  # fmt: skip
                roles = Roles(grants=EVERYTHING, masks=masks)
                async with with_tokens(there, roles=roles) as scene:
                    for name in names:
                        program = await scene.browser(token=TOKENS[name])
                        for path, query in pages:
                            for prefix in ("", "/api/v1"):
                                answer = await program.get(prefix + path, **query)
                                assert answer.status_code == 200, answer.text
                                assert ("4111" in answer.text) == is_seen, (name, path, prefix)
            # What is not masked is seen, and what is masked finds nothing.
            async with with_tokens(there, roles=Roles(grants=EVERYTHING, masks=MASKS)) as scene:
                ada = await scene.browser(token=TOKENS["ada"])
                letter = await ada.data("/letter", **where)
                assert "seven" in letter["value"]
                assert letter["death"]["error_class"] != ""
                found = await ada.data("/letters", topic=DEAD, where='card == "4111"')
                assert found["letters"] == found["kinds"] == []

    asyncio.run(run())
