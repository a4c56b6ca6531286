"""What our broker has beyond KIP-932 (docs/spec.md, «beyond»), and what Apache Kafka answers.

Kafka refuses the settings of groups and skips the tagged fields, so what a setting does is asked of
our broker alone.
"""

from __future__ import annotations

import time
from dataclasses import fields
from typing import Any

import pytest
from kio.schema.api_versions.v4 import request as api_versions

from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from sharegroup.wire.messages import (
    describe_share_group_offsets_v1 as describe,
    share_acknowledge_v2 as share_acknowledge,
    share_fetch_v2 as share_fetch,
)
from tests.spec.member import Member
from tests.spec.messages import ACCEPT, REJECT, RELEASE, Topic
from tests.spec.scene import GROUP_RESOURCE, Scene
from tests.spec.waiting import wait_for

INVALID_CONFIG = 40
SETTINGS = {
    "sharegroup.assignment": "wide",
    "sharegroup.breaker.failure.percent": "50",
    "sharegroup.breaker.pause.ms": "1000",
    "sharegroup.breaker.window": "10",
    "sharegroup.order.by": "key",
    "sharegroup.paused": "true",
    "sharegroup.redelivery.delay.max.ms": "60000",
    "sharegroup.redelivery.delay.ms": "1000",
}
DELAY_MS = 700

refused_by_kafka = pytest.mark.ours_only("Kafka refuses the setting, as beyond-1 shows")


def reader(scene: Scene, *batches: int, **settings: str) -> tuple[Topic, Member]:
    """A topic with these log batches, and a member of a group with these settings."""
    topic = scene.topic()
    scene.produce(topic, *batches)
    values = {f"sharegroup_{key}": value for key, value in settings.items()}
    return topic, scene.member(scene.group(**values), topic)


def test_beyond_1_settings_of_groups_are_refused_by_kafka_and_nothing_changes(scene: Scene) -> None:
    group = scene.group()
    before = scene.configs(GROUP_RESOURCE, group)
    answers = {
        name: int(scene.alter_configs(GROUP_RESOURCE, group, {name: value}).error_code)
        for name, value in SETTINGS.items()
    }
    code = {"ours": 0, "kafka": INVALID_CONFIG}[scene.kind]
    assert answers == dict.fromkeys(SETTINGS, code)
    if scene.kind == "kafka":
        assert scene.configs(GROUP_RESOURCE, group) == before
    else:
        found = scene.configs(GROUP_RESOURCE, group)
        assert SETTINGS.items() <= found.items()
        ours = {name for name in found if name.startswith("sharegroup.")}
        assert ours == SETTINGS.keys(), "no setting is missing in this table"


@refused_by_kafka
def test_beyond_2_paused_group_gets_no_records_and_settles_what_it_holds(scene: Scene) -> None:
    topic, member = reader(scene, 2)
    assert member.take(1, max_records=1, strict=True) == [(0, 0, 1)]
    scene.alter_group(member.group, sharegroup_paused="true")
    assert member.fetch(wait_ms=100).acquired == []
    assert member.acknowledge([(0, 0, ACCEPT)]).outcome == 0
    assert scene.start_and_lag(member.group, topic) == (1, 1)
    request = member.begin_fetch(wait_ms=10_000)
    scene.alter_group(member.group, sharegroup_paused="false")
    assert member.finish_fetch(request).acquired == [(1, 1, 1)]


@refused_by_kafka
def test_beyond_3_breaker_delivers_one_record_at_a_time_while_records_fail(scene: Scene) -> None:
    _, member = reader(
        scene,
        *(1, 4),
        breaker_failure_percent="50",
        breaker_window="2",
        breaker_pause_ms="300",
    )
    assert member.take() == [(0, 0, 1)], "it begins with one record"
    assert member.acknowledge([(0, 0, REJECT)]).outcome == 0
    began = time.monotonic()
    assert member.take() == [(1, 1, 1)], "one of a batch of four"
    assert time.monotonic() - began > 0.2
    assert member.acknowledge([(1, 1, ACCEPT)]).outcome == 0
    assert member.take(3) == [(2, 4, 1)]


@refused_by_kafka
def test_beyond_4_records_of_a_key_come_one_at_a_time_over_all_members(scene: Scene) -> None:
    topic = scene.topic()
    now_ms = int(time.time() * 1000)
    records = [SimpleRecord(key, b"x", now_ms) for key in (b"a", b"a", b"b", None, b"a")]
    scene.produce_batch(topic, encode_batch(records))
    group = scene.group(sharegroup_order_by="key")
    member, other = scene.member(group, topic), scene.member(group, topic)
    assert member.take(3) == [(0, 0, 1), (2, 3, 1)]
    assert other.fetch(wait_ms=100).acquired == []
    assert member.acknowledge([(0, 0, RELEASE)]).outcome == 0
    assert other.take() == [(0, 0, 2)]
    request = member.begin_fetch(wait_ms=10_000)
    assert other.acknowledge([(0, 0, ACCEPT)]).outcome == 0
    assert member.finish_fetch(request).acquired == [(1, 1, 1)]


@refused_by_kafka
def test_beyond_5_released_record_comes_again_after_the_delay_of_its_group(scene: Scene) -> None:
    _, member = reader(scene, 1, redelivery_delay_ms=str(DELAY_MS))
    assert member.take() == [(0, 0, 1)]
    released = time.monotonic()
    assert member.acknowledge([(0, 0, RELEASE)]).outcome == 0
    assert member.take() == [(0, 0, 2)]
    assert time.monotonic() - released >= DELAY_MS / 1000


@refused_by_kafka
def test_beyond_6_wide_assignment_lets_members_read_the_same_partitions(scene: Scene) -> None:
    topic = scene.topic(4)
    group = scene.group(sharegroup_assignment="wide")
    members = [scene.member(group, topic) for _ in range(3)]
    for member in members:
        member.until_assigned(4)
    assert scene.describe(group).assignor_name == "wide"


def released(member: Member, delay_ms: int) -> share_acknowledge.ShareAcknowledgeRequest:
    """The release of offset 0 that names a delay."""
    topic_id, number = member.partitions()[0]
    batch = share_acknowledge.AcknowledgementBatch(
        first_offset=0, last_offset=0, acknowledge_types=(RELEASE,), redelivery_delay_ms=delay_ms
    )
    partition = share_acknowledge.AcknowledgePartition(
        partition_index=number, acknowledgement_batches=(batch,)
    )
    return share_acknowledge.ShareAcknowledgeRequest(
        group_id=member.group,
        member_id=member.member_id,
        share_session_epoch=member.session_epoch,
        is_renew_ack=False,
        topics=(share_acknowledge.AcknowledgeTopic(topic_id=topic_id, partitions=(partition,)),),
    )


def test_beyond_7_member_names_the_delay_of_a_record(scene: Scene) -> None:
    """Kafka skips the tagged field, and delivers the record at once."""
    _, member = reader(scene, 1)
    assert member.take() == [(0, 0, 1)]
    began = time.monotonic()
    answer = member.connection.ask(released(member, 60_000))
    assert (int(answer.error_code), int(answer.responses[0].partitions[0].error_code)) == (0, 0)
    member.session_epoch += 1
    if scene.kind == "kafka":
        assert member.take() == [(0, 0, 2)]
    else:
        assert member.fetch(wait_ms=100).acquired == []
        assert member.close().error == 0
    assert time.monotonic() - began < 30


def test_beyond_8_only_a_broker_that_reads_delays_has_the_feature(scene: Scene) -> None:
    answer = scene.ask(
        api_versions.ApiVersionsRequest(client_software_name="spec", client_software_version="1")
    )
    names = {feature.name for feature in answer.supported_features}
    assert ("sharegroup.redelivery" in names) is (scene.kind == "ours")


def test_beyond_9_member_acquires_records_without_their_bytes(scene: Scene) -> None:
    """Kafka skips the tagged field, and sends the records."""
    _, member = reader(scene, 2, 1)
    request = member.fetch_request(wait_ms=5_000)
    ours = share_fetch.ShareFetchRequest(
        without_records=True,
        **{field.name: getattr(request, field.name) for field in fields(request)},
    )

    def answered() -> Any:
        member.connection.begin(ours if member.session_epoch == 0 else request)
        return member.finish_fetch(request)

    answer = wait_for(lambda: (found := answered()).acquired and found, "the records")
    partition = answer.partitions[0]
    assert answer.count == 3
    if scene.kind == "kafka":
        assert partition.batches is None
        assert len(answer.values()) == 3
    else:
        assert partition.records == b""
        batches = [(batch.first_offset, batch.end_offset) for batch in partition.batches]
        assert batches == [(0, 2), (2, 3)]


def test_beyond_10_coordinator_lists_the_runs_of_a_share_partition(scene: Scene) -> None:
    """Kafka skips the tagged field, and answers without runs."""
    topic, member = reader(scene, 3)
    assert member.take(3) == [(0, 2, 1)]
    assert member.acknowledge([(0, 0, ACCEPT), (1, 1, RELEASE)]).outcome == 0
    asked = describe.DescribeShareGroupOffsetsRequestTopic(topic_name=topic.name, partitions=(0,))
    group = describe.DescribeShareGroupOffsetsRequestGroup(group_id=member.group, topics=(asked,))
    answer = scene.ask(describe.DescribeShareGroupOffsetsRequest(groups=(group,), runs_max=10))
    [partition] = answer.groups[0].topics[0].partitions
    assert int(partition.error_code) == 0
    if scene.kind == "kafka":
        assert partition.runs == describe.NO_RUNS
    else:
        runs = [(run.first_offset, run.last_offset, run.state) for run in partition.runs.runs]
        assert runs == [(1, 1, 0), (2, 2, 1)]
        assert [run.member_id for run in partition.runs.runs] == [None, member.member_id]
