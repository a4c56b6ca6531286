"""A ledger in transactions: aborted ranges do not count, and open ones are waited for."""

from __future__ import annotations

import asyncio

import pytest

from sharegroup.client import Producer
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import ReadingConfig
from sharegroup.dead_letters.ledger import Ledger
from tests.integration.worker.collecting import on_a_loop
from tests.support.limits import HANGING_SECONDS


def writer(bootstrap: str, name: str) -> Producer:
    return Producer(bootstrap_servers=bootstrap, transactional_id=name)


@on_a_loop
async def test_ranges_of_aborted_transactions_do_not_count_as_redriven(
    bootstrap: str, group: str
) -> None:
    """Otherwise these letters would never be sent back: nobody has their copies."""
    cluster = Cluster(ReadingConfig(bootstrap_servers=bootstrap))
    ledger, other = Ledger(group, "id"), Ledger(group, "id")
    try:
        await ledger.create(cluster)
        async with writer(bootstrap, group) as producer:
            async with producer.transaction():
                await ledger.note(producer, 0, [1, 2], facts={})
            await producer.begin_transaction()
            await ledger.note(producer, 0, [3], facts={})
            await producer.abort_transaction()
            async with producer.transaction():
                await ledger.note(producer, 0, [5], facts={})
        await other.load(cluster)
        assert sorted(other.done(0, 0, 10)) == [1, 2, 5]
    finally:
        cluster.close()


@on_a_loop
async def test_ranges_behind_an_open_transaction_are_waited_for(bootstrap: str, group: str) -> None:
    """A redrive that skipped them would send their letters a second time."""
    cluster = Cluster(ReadingConfig(bootstrap_servers=bootstrap))
    ledger, other = Ledger(group, "id"), Ledger(group, "id")
    try:
        await ledger.create(cluster)
        async with writer(bootstrap, f"{group}.1") as slow, writer(bootstrap, f"{group}.2") as fast:
            await slow.begin_transaction()
            await ledger.note(slow, 0, [1], facts={})
            async with fast.transaction():
                await ledger.note(fast, 0, [2], facts={})
            loading = asyncio.ensure_future(other.load(cluster))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await asyncio.shield(loading)
            await slow.abort_transaction()
            async with asyncio.timeout(HANGING_SECONDS):
                await loading
        assert sorted(other.done(0, 0, 10)) == [2]
    finally:
        cluster.close()
