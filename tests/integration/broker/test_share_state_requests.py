"""The share coordinator's requests, 83 to 87, as frames: checks, fencing, who hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import Any
from uuid import UUID

import pytest
from kio.schema.api_versions.v4 import request as api_versions
from kio.schema.find_coordinator.v5 import request as find_coordinator_v5
from kio.schema.find_coordinator.v6 import request as find_coordinator_v6

from sharegroup.broker.handler_contract import CloseConnection
from sharegroup.ids import GroupId, SharePartitionKey, TopicId, TopicName, topic_id_text
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.faults.in_process import ACCEPT, Broker, ShareMember

NONE, UNKNOWN_TOPIC, COORDINATOR_NOT_AVAILABLE, INVALID_REQUEST = 0, 3, 15, 42
FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH = 74, 124
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = range(5)

VERBS = {
    "initialize": ("initialize_share_group_state", "Initialize", "InitializeShareGroupState"),
    "read": ("read_share_group_state", "Read", "ReadShareGroupState"),
    "write": ("write_share_group_state", "Write", "WriteShareGroupState"),
    "delete": ("delete_share_group_state", "Delete", "DeleteShareGroupState"),
    "summary": ("read_share_group_state_summary", "ReadSummary", "ReadShareGroupStateSummary"),
}
TOPIC_CLASSES = {
    "initialize": "InitializeStateData",
    "read": "ReadStateData",
    "write": "WriteStateData",
    "delete": "DeleteStateData",
    "summary": "ReadStateSummaryData",
}
VERSIONS = [("initialize", 0), ("read", 0), ("write", 0), ("write", 1), ("delete", 0)]
VERSIONS += [("summary", 0), ("summary", 1)]

Batch = tuple[int, int, int, int]
"""First and last offset, delivery state and count."""


class Coordinator:
    """Asks a broker's share coordinator about partition 0 of a topic, as another broker would."""

    def __init__(self, broker: Broker, topic_id: UUID | None) -> None:
        self.broker = broker
        self.topic_id = topic_id

    async def initialize(self, *, epoch: int = 1, start: int = 0, **other: Any) -> Any:
        return await self.ask("initialize", state_epoch=epoch, start_offset=start, **other)

    async def read(self, *, leader: int = 0, **other: Any) -> Any:
        return await self.ask("read", leader_epoch=leader, **other)

    async def write(
        self,
        *batches: Batch,
        start: int = 0,
        complete: int = 0,
        epoch: int = 1,
        leader: int = 0,
        **other: Any,
    ) -> Any:
        module = messages("write", other.get("version", 1))
        return await self.ask(
            "write",
            state_epoch=epoch,
            leader_epoch=leader,
            start_offset=start,
            **({} if other.get("version") == 0 else {"delivery_complete_count": complete}),
            state_batches=tuple(
                module.StateBatch(
                    first_offset=first, last_offset=last, delivery_state=state, delivery_count=n
                )
                for first, last, state, n in batches
            ),
            **other,
        )

    async def delete(self, **other: Any) -> Any:
        return await self.ask("delete", **other)

    async def summary(self, **other: Any) -> tuple[int, int, int, int]:
        """State epoch, leader epoch, start offset and delivery complete count."""
        found = await self.ask("summary", leader_epoch=0, **other)
        assert found.error_code == NONE, found
        return (
            found.state_epoch,
            found.leader_epoch,
            found.start_offset,
            found.delivery_complete_count,
        )

    async def batches(self) -> list[Batch]:
        found = await self.read()
        assert found.error_code == NONE, found
        return [
            (batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
            for batch in found.state_batches
        ]

    async def ask(
        self,
        verb: str,
        *,
        version: int | None = None,
        group: str = "g",
        partition: int = 0,
        **fields: Any,
    ) -> Any:
        """The result of the one partition that is asked about."""
        newest = dict(VERSIONS)[verb] if version is None else version
        module = messages(verb, newest)
        partition_entry = module.PartitionData(partition=partition, **fields)
        topic = getattr(module, TOPIC_CLASSES[verb])(
            topic_id=self.topic_id, partitions=(partition_entry,)
        )
        request = getattr(module, f"{VERBS[verb][2]}Request")(group_id=group, topics=(topic,))
        answer = await self.broker.ask(request)
        [result] = answer.results
        assert result.topic_id == self.topic_id
        [found] = result.partitions
        assert found.partition == partition
        return found


def messages(verb: str, version: int) -> Any:
    return import_module(f"kio.schema.{VERBS[verb][0]}.v{version}.request")


Scenario = Callable[[Coordinator], Awaitable[None]]


def run(scenario: Scenario, disk: PowerLossDisk | None = None, **settings: str) -> None:
    async def whole() -> None:
        broker = await Broker.start(
            disk or PowerLossDisk(1), sharegroup_share_state_apis_enable="true", **settings
        )
        try:
            await broker.create_topic("orders", 1)
            await broker.produce("orders", 0, encode_batch([SimpleRecord(None, b"x", 1)] * 100))
            await scenario(Coordinator(broker, await broker.topic_id("orders")))
        finally:
            await broker.stop()

    asyncio.run(whole())


def test_written_state_is_read_back() -> None:
    async def scenario(asked: Coordinator) -> None:
        assert (await asked.initialize(epoch=3, start=10)).error_code == NONE
        assert await asked.summary() == (3, 0, 10, 0)
        written = await asked.write((12, 14, ACKNOWLEDGED, 1), start=10, complete=3, epoch=3)
        assert (written.error_code, written.error_message) == (NONE, None)
        found = await asked.read()
        assert (found.state_epoch, found.start_offset) == (3, 10)
        assert await asked.batches() == [(12, 14, ACKNOWLEDGED, 1)]
        assert await asked.summary() == (3, 0, 10, 3)
        assert (await asked.delete()).error_code == NONE
        assert await asked.summary() == (0, 0, -1, -1)

    run(scenario)


def test_batches_combine_by_count_and_state() -> None:
    async def scenario(asked: Coordinator) -> None:
        await asked.initialize()
        await asked.write((0, 9, AVAILABLE, 1))
        await asked.write((3, 4, ACKNOWLEDGED, 1), (8, 12, ARCHIVED, 2))
        await asked.write((3, 4, AVAILABLE, 1), (20, 20, ARCHIVING, 1))
        assert await asked.batches() == [
            (0, 2, AVAILABLE, 1),
            (3, 4, ACKNOWLEDGED, 1),
            (5, 7, AVAILABLE, 1),
            (8, 12, ARCHIVED, 2),
            (20, 20, ARCHIVING, 1),
        ]

    run(scenario)


def test_start_offset_and_complete_count_never_decrease() -> None:
    async def scenario(asked: Coordinator) -> None:
        await asked.initialize()
        await asked.write(start=20, complete=5)
        await asked.write(start=10, complete=9)
        assert await asked.summary() == (1, 0, 20, 5)
        await asked.write(start=20, complete=3)
        assert await asked.summary() == (1, 0, 20, 5)
        await asked.write(start=-1, complete=9)
        assert await asked.summary() == (1, 0, 20, 5)
        await asked.write(start=30, complete=1)
        assert await asked.summary() == (1, 0, 30, 1)

    run(scenario)


def test_a_start_offset_can_be_left_to_the_reset_policy() -> None:
    async def scenario(asked: Coordinator) -> None:
        await asked.initialize(start=-1)
        assert await asked.summary() == (1, 0, -1, -1)
        assert (await asked.read()).start_offset == -1

    run(scenario)


def test_identical_initialization_keeps_the_state() -> None:
    async def scenario(asked: Coordinator) -> None:
        await asked.initialize(start=5)
        await asked.write((6, 6, ACKNOWLEDGED, 1), start=5)
        await asked.initialize(start=5)
        assert await asked.batches() == [(6, 6, ACKNOWLEDGED, 1)]
        await asked.initialize(start=4)
        assert await asked.batches() == []

    run(scenario)


def test_write_version_0_keeps_the_complete_count() -> None:
    async def scenario(asked: Coordinator) -> None:
        await asked.initialize()
        await asked.write(complete=4)
        await asked.write((7, 7, ACKNOWLEDGED, 1), version=0)
        assert await asked.summary() == (1, 0, 0, 4)
        found = await asked.ask("summary", version=0, leader_epoch=0)
        assert (found.start_offset, found.error_code) == (0, NONE)

    run(scenario)


def test_leaders_of_lower_epochs_are_fenced() -> None:
    async def scenario(asked: Coordinator) -> None:
        await asked.initialize()
        assert (await asked.read(leader=3)).error_code == NONE
        assert await asked.summary() == (1, 3, 0, 0)
        assert (await asked.read(leader=2)).error_code == FENCED_LEADER_EPOCH
        refused = await asked.write(leader=2)
        assert refused.error_code == FENCED_LEADER_EPOCH
        assert (
            "leader epoch 2 is fenced: a leader of epoch 3 has been seen" in refused.error_message
        )
        assert (await asked.write(leader=4)).error_code == NONE
        assert await asked.summary() == (1, 3, 0, 0), "a write does not change epochs"

    run(scenario)


def test_reinitialized_state_fences_writes_of_the_former_one() -> None:
    async def scenario(asked: Coordinator) -> None:
        await asked.initialize(epoch=5)
        await asked.read(leader=2)
        assert (await asked.initialize(epoch=6, start=50)).error_code == NONE
        assert await asked.summary() == (6, 0, 50, 0)
        assert (await asked.write(epoch=5, leader=2)).error_code == FENCED_STATE_EPOCH
        assert (await asked.initialize(epoch=5)).error_code == FENCED_STATE_EPOCH
        assert (await asked.write(epoch=6, leader=1)).error_code == FENCED_LEADER_EPOCH
        assert (await asked.write(epoch=6, leader=2, start=50)).error_code == NONE

    run(scenario)


def test_uninitialized_state_can_only_be_summarized_and_deleted() -> None:
    async def scenario(asked: Coordinator) -> None:
        for refused in (await asked.read(), await asked.write()):
            assert refused.error_code == INVALID_REQUEST
            assert "group 'g'" in refused.error_message
            assert "never initialized" in refused.error_message
        assert await asked.summary() == (0, 0, -1, -1)
        assert (await asked.delete()).error_code == NONE

    run(scenario)


async def asked_with(asked: Coordinator, verb: str, **fields: Any) -> Any:
    """A request of this kind that is in order but for ``fields``."""
    in_order: dict[str, dict[str, Any]] = {
        "initialize": {"state_epoch": 1, "start_offset": 0},
        "read": {"leader_epoch": 0},
        "write": {"state_epoch": 1, "leader_epoch": 0, "start_offset": 0, "state_batches": ()},
        "delete": {},
        "summary": {"leader_epoch": 0},
    }
    return await asked.ask(verb, **{**in_order[verb], **fields})


@pytest.mark.parametrize(
    ("verb", "fields"),
    [
        *((verb, {"partition": -1}) for verb in VERBS),
        ("initialize", {"state_epoch": -1}),
        ("initialize", {"start_offset": -2}),
        ("read", {"leader_epoch": -1}),
        ("write", {"leader_epoch": -1}),
        ("write", {"state_epoch": -1}),
    ],
)
def test_negative_numbers_are_refused(verb: str, fields: dict[str, int]) -> None:
    async def scenario(asked: Coordinator) -> None:
        await asked.initialize()
        refused = await asked_with(asked, verb, **fields)
        assert refused.error_code == INVALID_REQUEST
        assert "-1" in refused.error_message or "-2" in refused.error_message

    run(scenario)


@pytest.mark.parametrize("batch", [(5, 4, 0, 1), (-1, 4, 0, 1), (5, 5, ACQUIRED, 1), (5, 5, 9, 1)])
def test_batches_that_no_share_partition_could_be_made_of_are_refused(batch: Batch) -> None:
    async def scenario(asked: Coordinator) -> None:
        await asked.initialize()
        refused = await asked.write(batch)
        assert refused.error_code == INVALID_REQUEST
        assert f"offsets {batch[0]} to {batch[1]}" in refused.error_message
        assert await asked.batches() == []

    run(scenario)


@pytest.mark.parametrize("verb", ["initialize", "delete", "summary"])
def test_missing_partitions_are_unknown(verb: str) -> None:
    async def scenario(asked: Coordinator) -> None:
        beyond = await asked_with(asked, verb, partition=1)
        assert beyond.error_code == UNKNOWN_TOPIC
        nowhere = Coordinator(asked.broker, UUID(int=77))
        assert (await asked_with(nowhere, verb)).error_code == UNKNOWN_TOPIC
        without = Coordinator(asked.broker, None)
        assert (await asked_with(without, verb)).error_code == UNKNOWN_TOPIC

    run(scenario)


@pytest.mark.parametrize(("verb", "version"), VERSIONS)
def test_a_request_that_names_nothing_is_answered_with_nothing(verb: str, version: int) -> None:
    async def scenario(asked: Coordinator) -> None:
        module = messages(verb, version)
        topic = getattr(module, TOPIC_CLASSES[verb])(topic_id=asked.topic_id, partitions=())
        request = getattr(module, f"{VERBS[verb][2]}Request")
        for group, topics in (("g", ()), ("g", (topic,)), ("", (topic,))):
            answer = await asked.broker.ask(request(group_id=group, topics=topics))
            assert answer.results == ()

    run(scenario)


def test_partitions_of_a_request_are_processed_independently() -> None:
    async def scenario(asked: Coordinator) -> None:
        module = messages("initialize", 0)
        partitions = tuple(
            module.PartitionData(partition=number, state_epoch=1, start_offset=0)
            for number in (0, 1, -1)
        )
        topic = module.InitializeStateData(topic_id=asked.topic_id, partitions=partitions)
        request = module.InitializeShareGroupStateRequest(group_id="g", topics=(topic,))
        [result] = (await asked.broker.ask(request)).results
        codes = [(partition.partition, partition.error_code) for partition in result.partitions]
        assert codes == [(0, NONE), (1, UNKNOWN_TOPIC), (-1, INVALID_REQUEST)]

    run(scenario)


def test_a_write_that_the_disk_loses_is_not_confirmed() -> None:
    disk = PowerLossDisk(1)

    async def scenario(asked: Coordinator) -> None:
        await asked.initialize()
        disk.fail_next_sync(20)
        refused = await asked.write((5, 5, ACKNOWLEDGED, 1))
        assert refused.error_code == COORDINATOR_NOT_AVAILABLE
        disk.fail_next_sync(0)
        assert await asked.batches() == []

    run(scenario, disk)


async def member_of(asked: Coordinator) -> ShareMember:
    """A member that has joined a group which begins at the first record."""
    member = ShareMember("g", "member", "orders", 1, connection_id=1)
    assert await member.heartbeat(asked.broker) == 0
    return member


def offsets(taken: Sequence[Any]) -> list[int]:
    return [record.offset for record in taken]


def test_loaded_share_partition_continues_from_an_external_write() -> None:
    async def scenario(asked: Coordinator) -> None:
        member = await member_of(asked)
        epoch, _, start, _ = await asked.summary()
        assert start == 100, "a new group begins at the end"
        await asked.initialize(epoch=epoch, start=0)
        taken, _ = await member.fetch(asked.broker, records_max=10)
        assert offsets(taken)[:10] == list(range(10))
        await asked.write((0, 49, ACKNOWLEDGED, 1), epoch=epoch)
        outcome = await member.acknowledge(asked.broker, {0: [(0, ACCEPT)]})
        assert outcome == {0: UNKNOWN_TOPIC}, "the lock went with the state before"
        taken, _ = await member.fetch(asked.broker, records_max=10)
        assert offsets(taken)[0] == 50
        assert await member.acknowledge(asked.broker, {0: [(50, ACCEPT)]}) == {0: 0}

    run(scenario)


def test_read_with_a_high_leader_epoch_does_not_fence_the_broker() -> None:
    async def scenario(asked: Coordinator) -> None:
        member = await member_of(asked)
        epoch, *_ = await asked.summary()
        await asked.initialize(epoch=epoch, start=0)
        await member.fetch(asked.broker, records_max=10)
        assert (await asked.read(leader=2_000_000)).error_code == NONE
        assert await member.acknowledge(asked.broker, {0: [(0, ACCEPT)]}) == {0: 0}
        parts = asked.broker.running.parts
        topic_id = parts.topics.catalog.topic(TopicName("orders")).topic_id
        key = SharePartitionKey(GroupId("g"), TopicId(topic_id), 0)
        parts.share_partitions.unload(key)
        taken, _ = await member.fetch(asked.broker, records_max=10)
        assert offsets(taken)[0] == 1

    run(scenario)


async def advertised(broker: Broker) -> set[int]:
    request = api_versions.ApiVersionsRequest(client_software_name="t", client_software_version="1")
    return {key.api_key for key in (await broker.ask(request)).api_keys}


def test_share_state_requests_are_advertised_when_enabled() -> None:
    async def scenario(asked: Coordinator) -> None:
        assert await advertised(asked.broker) >= {83, 84, 85, 86, 87}

    run(scenario)


def test_share_state_requests_are_disabled_by_default() -> None:
    async def whole() -> None:
        broker = await Broker.start(PowerLossDisk(1))
        asked = Coordinator(broker, UUID(int=7))
        try:
            assert not await advertised(broker) & {83, 84, 85, 86, 87}
            for verb in VERBS:
                with pytest.raises(CloseConnection, match="is not served"):
                    await asked_with(asked, verb)
        finally:
            await broker.stop()

    asyncio.run(whole())


async def found(broker: Broker, key: str, *, module: Any = find_coordinator_v6) -> tuple[int, int]:
    """Error code and node of the coordinator of a share partition."""
    request = module.FindCoordinatorRequest(key_type=2, coordinator_keys=(key,))
    [coordinator] = (await broker.ask(request)).coordinators
    return int(coordinator.error_code), coordinator.node_id


@pytest.mark.parametrize("group", ["g", "with:colons:", "two words", "ünicode"])
def test_this_broker_coordinates_every_share_partition(group: str) -> None:
    async def scenario(asked: Coordinator) -> None:
        assert asked.topic_id is not None
        key = f"{group}:{topic_id_text(TopicId(asked.topic_id))}:0"
        assert await found(asked.broker, key) == (NONE, 1)
        old = await found(asked.broker, key, module=find_coordinator_v5)
        assert old == (INVALID_REQUEST, -1), "key type 2 came with version 6"

    run(scenario)


@pytest.mark.parametrize(
    "key",
    ["", "g", "g:0", "g:no-topic-id:0", ":AAAAAAAAAAAAAAAAAAAAAA:0", "g:AAAAAAAAAAAAAAAAAAAAAA:x"],
)
def test_a_key_that_names_no_share_partition_is_refused(key: str) -> None:
    async def scenario(asked: Coordinator) -> None:
        assert await found(asked.broker, key) == (INVALID_REQUEST, -1)

    run(scenario)
