"""A regular expression of a consumer group means only topics that its sender may describe."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from sharegroup.protocol_enums import AclOperation, AclPatternType, AclPermission, AclResourceType
from tests.authorization.data_probes import SECOND
from tests.authorization.group_probes import MINUTE
from tests.authorization.in_process import AUTHORIZER, in_process
from tests.authorization.matrix import Acl
from tests.authorization.messages import message, outcome_of
from tests.authorization.run import Ask

MEMBER = "00000000-0000-0000-0000-000000000001"
READ_GROUP = Acl(
    AclResourceType.GROUP,
    "billing",
    AclPatternType.LITERAL,
    "User:ann",
    "*",
    AclOperation.READ,
    AclPermission.ALLOW,
)
DESCRIBE_ORDERS = READ_GROUP._replace(
    resource_type=AclResourceType.TOPIC, name="orders", operation=AclOperation.DESCRIBE
)


async def create(ask: Ask, *names: str) -> dict[str, UUID]:
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
    created = await ask(message(19, topics=topics, timeout=SECOND))
    assert not outcome_of(created).errors
    return {topic.name: topic.topic_id for topic in created.topics}


def heartbeat(pattern: str | None, epoch: int = 0) -> Any:
    return message(
        68,
        group_id="billing",
        member_id=MEMBER,
        member_epoch=epoch,
        rebalance_timeout=MINUTE,
        subscribed_topic_names=None,
        subscribed_topic_regex=pattern,
        server_assignor=None,
        topic_partitions=None if epoch else [],
    )


def assigned(response: Any) -> set[UUID]:
    assert int(response.error_code) == 0, response
    return {topic.topic_id for topic in response.assignment.topic_partitions}


def test_hidden_topics_do_not_match(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with in_process(tmp_path / "data") as door:
            await door.create_acls([READ_GROUP, DESCRIBE_ORDERS])
            async with door.connect(None) as ask:
                ids = await create(ask, "orders", "secret")
            async with door.connect("ann") as ask:
                joined = await ask(heartbeat(".*"))
                assert assigned(joined) == {ids["orders"]}
                # New topics are matched again; they are as hidden.
                async with door.connect(None) as admin:
                    await create(admin, "secret.2")
                later = await ask(replace(heartbeat(None), member_epoch=joined.member_epoch))
                assert later.assignment is None
            async with door.connect(None) as admin:
                described = await admin(message(69, group_ids=["billing"]))
            [member] = described.groups[0].members
            names = {topic.topic_name for topic in member.target_assignment.topic_partitions}
            assert names == {"orders"}

    asyncio.run(scenario())


def test_topics_match_as_soon_as_an_acl_shows_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with in_process(tmp_path / "data", **AUTHORIZER) as door:
            await door.create_acls([READ_GROUP, DESCRIBE_ORDERS])
            async with door.connect(None) as ask:
                ids = await create(ask, "orders", "secret")
            async with door.connect("ann") as ask:
                joined = await ask(heartbeat(".*"))
                assert assigned(joined) == {ids["orders"]}
                await door.create_acls([DESCRIBE_ORDERS._replace(name="secret")])
                later = await ask(replace(heartbeat(None), member_epoch=joined.member_epoch))
                assert assigned(later) == {ids["orders"], ids["secret"]}

    asyncio.run(scenario())
