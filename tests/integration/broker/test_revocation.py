"""A poll that waits while its user loses a permission is answered once more, within five minutes.

Kafka checks the permissions of Fetch and ShareFetch before the wait, and so does this broker.  The
next request of the same session is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.fetch.v12 import request as fetch
from kio.schema.share_fetch.v2 import request as share_fetch
from kio.static.primitive import i8, i32Timedelta

from sharegroup.broker.access.peer import Peer
from sharegroup.broker.configuration.authorizer_settings import STANDARD_AUTHORIZER
from sharegroup.broker.load.waiting import WAIT_MS_MAX
from sharegroup.core.security.principal import USER, Principal
from tests.attacks.batches import honest_batch
from tests.faults.in_process import Broker
from tests.integration.broker.test_acl_requests import (
    ALLOW,
    GROUP,
    LITERAL,
    NONE,
    READ,
    TOPIC,
    Row,
    create,
    delete,
    filter_of,
)
from tests.integration.broker.test_user_parts import share_group
from tests.support.limits import HANGING_SECONDS

TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED = 29, 30

READ_TOPIC: Row = (TOPIC, LITERAL, "orders", "User:alice", "*", READ, ALLOW)
READ_GROUP: Row = (GROUP, LITERAL, "g", "User:alice", "*", READ, ALLOW)
WHOLE_DAY = i32Timedelta.parse(timedelta(days=1))

Ask = Callable[[int], Awaitable[Any]]
"""A request with the epoch of its session."""


def fetch_of(broker: Broker, peer: Peer) -> Ask:
    async def ask(epoch: int) -> Any:
        partition = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
        request = fetch.FetchRequest(
            max_wait=WHOLE_DAY,
            min_bytes=1,
            isolation_level=i8(0),
            session_id=0,
            session_epoch=-1,
            topics=(fetch.FetchTopic(topic="orders", partitions=(partition,)),),
            forgotten_topics_data=(),
            rack_id="",
        )
        answer = await broker.ask(request, peer=peer)
        found = answer.responses[0].partitions[0]
        return int(found.error_code), bool(found.records)

    return ask


def share_fetch_of(broker: Broker, peer: Peer) -> Ask:
    async def ask(epoch: int) -> Any:
        partition = share_fetch.FetchPartition(partition_index=0, acknowledgement_batches=())
        topic_id = await broker.topic_id("orders")
        topic = share_fetch.FetchTopic(topic_id=topic_id, partitions=(partition,))
        request = share_fetch.ShareFetchRequest(
            group_id="g",
            member_id="m",
            share_session_epoch=epoch,
            max_wait=WHOLE_DAY,
            min_bytes=1,
            max_bytes=1_000,
            max_records=10,
            batch_size=10,
            topics=(topic,) if epoch == 0 else (),
            forgotten_topics_data=(),
        )
        answer = await broker.ask(request, peer=peer)
        if answer.error_code or not answer.responses:
            return int(answer.error_code), False
        found = answer.responses[0].partitions[0]
        return int(found.error_code), bool(found.acquired_records)

    return ask


def run(scenario: Callable[[Broker, Peer], Awaitable[None]], path: Path) -> None:
    async def main() -> None:
        broker = await Broker.start(
            None,
            str(path / "data"),
            authorizer_class_name=STANDARD_AUTHORIZER,
            super_users="User:ANONYMOUS",
        )
        await broker.create_topic("orders", 1)
        assert await create(broker, READ_TOPIC, READ_GROUP) == [NONE] * 2
        alice = Peer("127.0.0.1", principal=Principal(USER, "alice"))
        alice.rights = broker.running.parts.rights_of(alice)
        assert await share_group(broker, alice, "g") == NONE
        async with asyncio.timeout(HANGING_SECONDS):
            await scenario(broker, alice)
        await broker.stop()

    asyncio.run(main())


async def parked(broker: Broker, asked: Awaitable[Any]) -> asyncio.Task[Any]:
    """Return the task of a request that waits in the broker."""
    task = asyncio.ensure_future(asked)
    while not len(broker.running.parts.waiting):
        await asyncio.sleep(0)
    return task


@pytest.mark.parametrize(
    ("request_of", "removed", "refusal"),
    [
        (fetch_of, READ_TOPIC, TOPIC_AUTHORIZATION_FAILED),
        (share_fetch_of, READ_TOPIC, TOPIC_AUTHORIZATION_FAILED),
        (share_fetch_of, READ_GROUP, GROUP_AUTHORIZATION_FAILED),
    ],
)
def test_waiting_poll_is_answered_once_after_its_permission_is_removed(
    tmp_path: Path, request_of: Callable[[Broker, Peer], Ask], removed: Row, refusal: int
) -> None:
    async def scenario(broker: Broker, alice: Peer) -> None:
        ask = request_of(broker, alice)
        waiting = await parked(broker, ask(0))
        await delete(broker, filter_of(removed[0], LITERAL, removed[2]))
        assert await broker.produce("orders", 0, bytearray(honest_batch(1, b"x"))) == (NONE, 0)
        assert await waiting == (NONE, True)
        assert await ask(1) == (refusal, False)

    run(scenario, tmp_path)


@pytest.mark.parametrize("request_of", [fetch_of, share_fetch_of])
def test_poll_that_would_wait_for_a_day_is_answered_after_five_minutes(
    tmp_path: Path, request_of: Callable[[Broker, Peer], Ask]
) -> None:
    async def scenario(broker: Broker, alice: Peer) -> None:
        waiting = await parked(broker, request_of(broker, alice)(0))
        broker.clock.advance(WAIT_MS_MAX - 1)
        await asyncio.sleep(0)
        assert not waiting.done()
        broker.clock.advance(1)
        assert await waiting == (NONE, False)
        assert WAIT_MS_MAX == 300_000

    run(scenario, tmp_path)
