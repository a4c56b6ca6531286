"""A refused batch: the producer tells each record's sender what was wrong with it (KIP-467)."""

from __future__ import annotations

import asyncio

import pytest

from sharegroup.client import AdminClient, NewTopic, Producer
from sharegroup.errors import BatchRefused, InvalidRecord


def test_a_record_without_key_in_a_compacted_topic_and_those_of_its_batch(
    bootstrap: str, topic: str
) -> None:
    async def run() -> None:
        async with (
            AdminClient(bootstrap_servers=bootstrap) as admin,
            Producer(bootstrap_servers=bootstrap, linger_ms=60_000) as producer,
        ):
            compacted = NewTopic(topic, 1, configs={"cleanup.policy": "compact"})
            assert await admin.create_topics([compacted]) == {topic: None}
            futures = [
                await producer.send(topic, b"v", key=key) for key in (b"a", None, b"b", None)
            ]
            await producer.flush()
            errors = [future.exception() for future in futures]
            assert [type(error) for error in errors] == [
                BatchRefused, InvalidRecord, BatchRefused, InvalidRecord,
            ]  # fmt: skip
            assert "refused the batch for 2 other records" in str(errors[0])
            with pytest.raises(BatchRefused):
                await futures[0]
            with pytest.raises(InvalidRecord, match="key"):
                await futures[1]
            # Without the others they are written, and so is what follows.
            again = await producer.send(topic, b"v", key=b"a")
            await producer.flush()
            assert again.result().offset == 0

    asyncio.run(run())
