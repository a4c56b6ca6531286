"""A fetch that acknowledges takes what the sync of its acknowledgement made durable, too."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sharegroup.broker.handlers.share import share_requests
from tests.faults.in_process import Broker, ShareMember
from tests.integration.broker.test_share_fairness import fetch_and_accept
from tests.integration.broker.test_share_fetch import produce, records, request, run


def test_records_of_the_same_sync_are_in_the_response(tmp_path: Path) -> None:
    """Offset 1 is durable before the fetch, offset 2 is written in the same turn."""

    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker)
        assert records(await broker.ask(request(member))) == [(0, 0, 1)]
        await produce(broker)
        fetch = fetch_and_accept(member, member.session_epoch + 1, ((0, 0, 1),))
        answer, _ = await asyncio.gather(broker.ask(fetch), produce(broker))
        assert records(answer) == [(1, 2, 1)]

    run(scenario, tmp_path)


def test_no_record_is_locked_for_a_session_closed_before_the_sync(tmp_path: Path) -> None:
    async def scenario(broker: Broker, member: ShareMember) -> None:
        await produce(broker)
        assert records(await broker.ask(request(member))) == [(0, 0, 1)]
        await produce(broker)
        fetch = fetch_and_accept(member, member.session_epoch + 1, ((0, 0, 1),))
        asked = asyncio.create_task(broker.ask(fetch))
        await asyncio.sleep(0)  # The acknowledgement is decided, the sync has yet to begin.
        sessions = broker.running.parts.share_sessions
        for closed in sessions.release_connection("1"):
            share_requests.release(broker.running.parts, closed)
        assert records(await asked) == []
        assert list(broker.running.parts.share_partitions) == []

    run(scenario, tmp_path)
