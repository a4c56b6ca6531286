"""ListOffsets: every special offset, in every version that has it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.list_offsets.v11 import request as messages

from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from sharegroup.wire.codec.apis import request_class
from sharegroup.wire.codec.convert import upgrade
from tests.faults.in_process import Broker

LIST_OFFSETS = 2
UNKNOWN_TOPIC_OR_PARTITION, UNSUPPORTED_VERSION, UNKNOWN_LEADER_EPOCH = 3, 35, 75
OLDEST, NEWEST = 1, 11
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = range(-1, -7, -1)
SINCE = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    PENDING_UPLOAD: 11,
}
SECOND = timedelta(seconds=1)
NO_OFFSET = (0, -1, -1)

Scenario = Callable[[Broker], Awaitable[None]]


def run(scenario: Scenario, path: Path) -> None:
    async def main() -> None:
        broker = await Broker.start(None, str(path / "data"))
        await broker.create_topic("orders", 1)
        await scenario(broker)
        await broker.stop()

    asyncio.run(main())


async def listed(
    broker: Broker, timestamp: int, version: int = NEWEST, **partition_fields: int
) -> tuple[int, int, int]:
    """Error code, timestamp and offset."""
    partition = messages.ListOffsetsPartition(
        **{"partition_index": 0, "timestamp": timestamp, **partition_fields}
    )
    newest: Any = messages.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        timeout=SECOND,
        topics=(messages.ListOffsetsTopic(name="orders", partitions=(partition,)),),
    )
    request = upgrade(newest, request_class(LIST_OFFSETS, version))
    found = (await broker.ask(request)).topics[0].partitions[0]
    return int(found.error_code), found.timestamp, found.offset


async def produce(broker: Broker, *timestamps: int) -> None:
    for timestamp in timestamps:
        batch = encode_batch([SimpleRecord(None, b"x", timestamp)])
        await broker.produce("orders", 0, batch)


@pytest.mark.parametrize("version", range(OLDEST, NEWEST + 1))
def test_special_offsets_belong_to_versions(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Broker) -> None:
        await produce(broker, 1_000, 3_000, 2_000)
        expected = {
            LATEST: (0, -1, 3),
            EARLIEST: (0, -1, 0),
            MAX_TIMESTAMP: (0, 3_000, 1),
            EARLIEST_LOCAL: (0, -1, 0),
            LATEST_TIERED: NO_OFFSET,
            PENDING_UPLOAD: NO_OFFSET,
        }
        for special, since in SINCE.items():
            answer = await listed(broker, special, version)
            assert answer == (
                expected[special] if version >= since else (UNSUPPORTED_VERSION, -1, -1)
            )
        for unknown in (-7, -(2**63)):
            assert await listed(broker, unknown, version) == (UNSUPPORTED_VERSION, -1, -1)
        assert await listed(broker, 1_001, version) == (0, 3_000, 1)
        assert await listed(broker, 3_001, version) == NO_OFFSET

    run(scenario, tmp_path)


def test_special_offsets_of_a_log_without_records(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        assert await listed(broker, LATEST) == (0, -1, 0)
        assert await listed(broker, EARLIEST) == (0, -1, 0)
        assert await listed(broker, MAX_TIMESTAMP) == NO_OFFSET
        assert await listed(broker, 0) == NO_OFFSET

    run(scenario, tmp_path)


def test_partition_and_leader_epoch_are_checked(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        unknown = await listed(broker, LATEST, partition_index=1)
        assert unknown == (UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
        assert await listed(broker, LATEST, current_leader_epoch=0) == (0, -1, 0)
        later = await listed(broker, LATEST, current_leader_epoch=1)
        assert later == (UNKNOWN_LEADER_EPOCH, -1, -1)

    run(scenario, tmp_path)
