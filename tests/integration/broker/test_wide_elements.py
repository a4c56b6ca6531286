"""Requests of a thousand elements of any kind: what is done for each element is done in slices."""

from __future__ import annotations

import gc
from collections.abc import Awaitable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from kio.schema.alter_share_group_offsets.v0 import request as alter_offsets
from kio.schema.delete_records.v2 import request as delete_records
from kio.schema.delete_share_group_offsets.v0 import request as delete_offsets
from kio.schema.describe_configs.v4 import request as describe_configs
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12 import request as fetch
from kio.schema.initialize_share_group_state.v0 import request as initialize
from kio.schema.leave_group.v4 import request as leave_group
from kio.schema.offset_delete.v0 import request as offset_delete

from sharegroup.broker.groups.share_group_coordinator import ShareGroupCoordinator
from sharegroup.broker.handlers.groups import classic_groups
from sharegroup.broker.handlers.records import delete_records as delete_records_handler
from sharegroup.broker.share.share_coordinator import ShareCoordinator
from sharegroup.errors import NonEmptyGroup
from sharegroup.ids import GroupId, TopicName
from sharegroup.wire.codec import refusals
from tests.faults.in_process import SECOND, Broker
from tests.integration.broker.test_wide_requests import PARTITIONS, commit_request, run
from tests.support.observed_calls import most_calls_in_a_turn

ELEMENTS = 1_500
TURN_ELEMENTS_MAX = 64 * (8 + 5)
"""An attempt has eight steps of 64 elements, and a slice on the clock of these tests has five."""


def names(prefix: str) -> tuple[str, ...]:
    return tuple(f"{prefix}-{number}" for number in range(ELEMENTS))


def test_refusal_of_a_wide_request_is_made_in_slices(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        wanted = tuple(
            describe_configs.DescribeConfigsResource(resource_type=2, resource_name=name)
            for name in names("topic")
        )
        request = describe_configs.DescribeConfigsRequest(resources=wanted)
        with most_calls_in_a_turn(refusals._item) as most:
            answer: Any = await broker.ask(request)
        assert {result.error_code for result in answer.results} == {ErrorCode.invalid_request}
        assert tuple(result.resource_name for result in answer.results) == names("topic")
        assert 0 < most() <= TURN_ELEMENTS_MAX
        counters = broker.running.parts.requests.of(32)
        assert counters.errors == {"INVALID_REQUEST": 1}
        # A millisecond passes at each look at the clock: the slices are a part of its local time.
        assert counters.local_seconds > ELEMENTS / 64 * 0.001

    run(scenario, tmp_path)


def test_members_of_a_wide_request_leave_in_slices(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        leave = broker.running.parts.classic_group_coordinator.leave
        members = tuple(leave_group.MemberIdentity(member_id=name) for name in names("member"))
        request = leave_group.LeaveGroupRequest(group_id="g", members=members)
        with (
            most_calls_in_a_turn(leave) as pieces,
            most_calls_in_a_turn(classic_groups._member) as most,
        ):
            answer = await broker.ask(request)
        assert tuple(member.member_id for member in answer.members) == names("member")
        assert {member.error_code for member in answer.members} == {ErrorCode.unknown_member_id}
        assert 0 < most() <= TURN_ELEMENTS_MAX
        assert 0 < pieces() <= TURN_ELEMENTS_MAX / 64

    run(scenario, tmp_path)


def alter_request(*partitions: int) -> alter_offsets.AlterShareGroupOffsetsRequest:
    return alter_offsets.AlterShareGroupOffsetsRequest(
        group_id="g",
        topics=(
            alter_offsets.AlterShareGroupOffsetsRequestTopic(
                topic_name="wide",
                partitions=tuple(
                    alter_offsets.AlterShareGroupOffsetsRequestPartition(
                        partition_index=index, start_offset=0
                    )
                    for index in partitions
                ),
            ),
        ),
    )


def test_many_offsets_are_altered_in_pieces_and_deleted_with_few_writes(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        coordinator = broker.running.parts.share_coordinator
        with most_calls_in_a_turn(ShareCoordinator.initialize) as most:
            answer = await broker.ask(alter_request(*range(600), PARTITIONS))
        [topic] = answer.responses
        codes = [partition.error_code for partition in topic.partitions]
        assert codes == [ErrorCode.none] * 600 + [ErrorCode.unknown_topic_or_partition]
        assert 0 < most() <= 256 + 64
        assert len(coordinator.known()) == 600

        before = coordinator.write_count
        wanted = delete_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name="wide")
        answer = await broker.ask(
            delete_offsets.DeleteShareGroupOffsetsRequest(group_id="g", topics=(wanted,))
        )
        assert [response.error_code for response in answer.responses] == [ErrorCode.none]
        assert coordinator.known() == ()
        # At most one for each of the 50 partitions of the topic of states.
        assert 0 < coordinator.write_count - before <= 50

    run(scenario, tmp_path)


class RefusesSecondPiece:
    """A coordinator whose group has got a member when the second piece comes."""

    def __init__(self, groups: ShareGroupCoordinator) -> None:
        self._groups = groups
        self._pieces = 0

    def alter_offsets(self, *arguments: Any, **named: Any) -> Awaitable[None]:
        self._pieces += 1
        if self._pieces == 2:
            raise NonEmptyGroup("a member joined")
        return self._groups.alter_offsets(*arguments, **named)

    def stop(self) -> None:
        self._groups.stop()


def test_failed_alter_keeps_the_offsets_altered_before(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        groups = broker.running.parts.share_group_coordinator
        broker.running.parts.share_group_coordinator = cast(
            "ShareGroupCoordinator", RefusesSecondPiece(groups)
        )
        answer = await broker.ask(alter_request(*range(520)))
        codes = [partition.error_code for partition in answer.responses[0].partitions]
        assert codes[:256] == [ErrorCode.none] * 256
        assert codes[256:512] == [ErrorCode.non_empty_group] * 256
        assert codes[512:] == [ErrorCode.none] * 8

    run(scenario, tmp_path)


def test_records_of_many_partitions_are_deleted_in_slices(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        partitions = tuple(
            delete_records.DeleteRecordsPartition(partition_index=PARTITIONS + index, offset=0)
            for index in range(ELEMENTS)
        )
        topic = delete_records.DeleteRecordsTopic(name="wide", partitions=partitions)
        request = delete_records.DeleteRecordsRequest(topics=(topic,), timeout=SECOND)
        with most_calls_in_a_turn(delete_records_handler._failed) as most:
            answer = await broker.ask(request)
        codes = {partition.error_code for partition in answer.topics[0].partitions}
        assert codes == {ErrorCode.unknown_topic_or_partition}
        assert 0 < most() <= TURN_ELEMENTS_MAX

    run(scenario, tmp_path)


def test_many_offsets_of_a_consumer_group_are_deleted_in_pieces(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        coordinator = broker.running.parts.classic_group_coordinator
        await broker.ask(commit_request(*range(PARTITIONS), offset=5))
        indexes = (*range(PARTITIONS - 1), *range(PARTITIONS, PARTITIONS + ELEMENTS))
        partitions = tuple(
            offset_delete.OffsetDeleteRequestPartition(partition_index=index) for index in indexes
        )
        topic = offset_delete.OffsetDeleteRequestTopic(name="wide", partitions=partitions)
        request = offset_delete.OffsetDeleteRequest(group_id="g", topics=(topic,))
        with most_calls_in_a_turn(coordinator.delete_offsets) as pieces:
            answer = await broker.ask(request)
        codes = [partition.error_code for partition in answer.topics[0].partitions]
        unknown = [ErrorCode.unknown_topic_or_partition] * ELEMENTS
        assert codes == [ErrorCode.none] * (PARTITIONS - 1) + unknown
        assert list(coordinator.offsets(GroupId("g"))[TopicName("wide")]) == [PARTITIONS - 1]
        assert 0 < pieces() <= 2 * 5

    run(scenario, tmp_path)


def _wide_fetch() -> Any:
    partitions = tuple(
        fetch.FetchPartition(partition=index, fetch_offset=7, partition_max_bytes=1)
        for index in range(ELEMENTS)
    )
    return fetch.FetchRequest(
        max_wait=timedelta(),
        min_bytes=0,
        topics=(fetch.FetchTopic(topic="wide", partitions=partitions),),
        forgotten_topics_data=(),
    )


@pytest.mark.slow
def test_errors_of_many_elements_leave_no_cycles(tmp_path: Path) -> None:
    """Cycles stay in memory until the collector looks for them, and take its time."""

    async def scenario(broker: Broker) -> None:
        requests = [
            _wide_fetch(),
            commit_request(*range(PARTITIONS, PARTITIONS + ELEMENTS), offset=0, generation=3),
            alter_request(*range(PARTITIONS, PARTITIONS + ELEMENTS)),
        ]
        for wanted in requests:
            gc.collect()
            gc.freeze()
            try:
                await broker.ask(wanted)
                found = gc.collect()
            finally:
                gc.unfreeze()
            assert found < ELEMENTS, type(wanted)

    run(scenario, tmp_path)


def test_states_of_many_share_partitions_are_initialized_in_slices(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        partitions = tuple(
            initialize.PartitionData(partition=index, state_epoch=1, start_offset=0)
            for index in range(ELEMENTS)
        )
        wanted = initialize.InitializeStateData(
            topic_id=await broker.topic_id("wide"), partitions=partitions
        )
        request = initialize.InitializeShareGroupStateRequest(group_id="g", topics=(wanted,))
        with most_calls_in_a_turn(ShareCoordinator.initialize) as most:
            answer = await broker.ask(request)
        codes = [partition.error_code for partition in answer.results[0].partitions]
        unknown = [ErrorCode.unknown_topic_or_partition] * (ELEMENTS - PARTITIONS)
        assert codes == [ErrorCode.none] * PARTITIONS + unknown
        assert 0 < most() <= 2 * 5 * 16

    run(scenario, tmp_path, sharegroup_share_state_apis_enable="true")
