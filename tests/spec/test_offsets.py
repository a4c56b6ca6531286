"""A group's offsets seen, set and deleted by an administrator (docs/spec.md, «offsets»)."""

from __future__ import annotations

from kio.schema.describe_share_group_offsets.v0 import request as describe_offsets_v0

from tests.spec.administration import alter_offsets, altered, delete_offsets
from tests.spec.member import Member
from tests.spec.messages import ACCEPT, Topic
from tests.spec.scene import Scene

NON_EMPTY, NO_GROUP, INVALID_GROUP, UNKNOWN_PARTITION, OUT_OF_RANGE = 68, 69, 24, 3, 1
UNKNOWN_SERVER_ERROR = -1


def idle(scene: Scene, *batches: int, partitions: int = 1) -> tuple[Topic, Member]:
    """A group that has accepted the first record of each partition; its member is gone."""
    topic = scene.topic(partitions)
    member = scene.member(scene.group(), topic).until_assigned(partitions)
    for partition in range(partitions):
        scene.produce(topic, *batches, partition=partition)
        member.take(sum(batches))
    acks = {partition: [(0, 0, ACCEPT)] for partition in topic.partitions()}
    assert set(member.close(acks).errors.values()) == {0}
    member.leave()
    scene.drop(member)
    return topic, member


def listed(scene: Scene, group: str, topic: str, *partitions: int) -> list[tuple[int, int, int]]:
    """(partition, start offset, lag) of each, without an error."""
    [described] = scene.group_offsets(group, [(topic, partitions)]).topics
    assert all(partition.error_code == 0 for partition in described.partitions)
    return [
        (partition.partition_index, partition.start_offset, partition.lag)
        for partition in described.partitions
    ]


def test_offsets_1_of_all_topics_are_listed(scene: Scene) -> None:
    topic, member = idle(scene, 3, partitions=2)
    answer = scene.group_offsets(member.group)
    [described] = answer.topics
    assert (answer.error_code, described.topic_name, described.topic_id) == (
        0,
        topic.name,
        topic.id,
    )
    lags = {partition.partition_index: partition.lag for partition in described.partitions}
    assert lags == {0: 2, 1: 2}


def test_offsets_2_uninitialized_partition_has_no_offset(scene: Scene) -> None:
    topic = scene.topic()
    _, member = idle(scene, 1)
    assert listed(scene, member.group, topic.name, 0) == [(0, -1, -1)]


def test_offsets_3_of_an_unknown_topic(scene: Scene) -> None:
    _, member = idle(scene, 1)
    name = scene.new_name("topic")
    assert listed(scene, member.group, name, 0) == [(0, -1, -1)]


def test_offsets_4_of_an_unknown_group_are_none(scene: Scene) -> None:
    answer = scene.group_offsets(scene.new_name("group"))
    assert (answer.error_code, answer.topics) == (0, ())


def test_offsets_5_new_group_before_its_first_acknowledgement(scene: Scene) -> None:
    """Ours knows the start offset of a group from its first heartbeat on."""
    topic = scene.topic()
    scene.produce(topic, 4)
    member = scene.member(scene.group(), topic)
    expected = {"ours": [(0, 0, 4)], "kafka": [(0, -1, -1)]}[scene.kind]
    assert listed(scene, member.group, topic.name, 0) == expected


def test_offsets_6_version_0_has_no_lag(scene: Scene) -> None:
    topic, member = idle(scene, 1)
    wanted = describe_offsets_v0.DescribeShareGroupOffsetsRequestTopic(
        topic_name=topic.name, partitions=(0,)
    )
    group = describe_offsets_v0.DescribeShareGroupOffsetsRequestGroup(
        group_id=member.group, topics=(wanted,)
    )
    request = describe_offsets_v0.DescribeShareGroupOffsetsRequest(groups=(group,))
    [partition] = scene.ask(request).groups[0].topics[0].partitions
    assert partition.error_code == 0
    assert not hasattr(partition, "lag")


def test_offsets_7_are_set_for_an_empty_group(scene: Scene) -> None:
    topic, member = idle(scene, 2, 2)
    assert altered(alter_offsets(scene, member.group, topic.name, 2)) == [0]
    assert listed(scene, member.group, topic.name, 0) == [(0, 2, 2)]
    assert scene.member(member.group, topic).take(2) == [(2, 3, 1)]


def test_offsets_8_back_to_the_beginning_delivers_all_again(scene: Scene) -> None:
    topic, member = idle(scene, 3)
    assert altered(alter_offsets(scene, member.group, topic.name, 0)) == [0]
    assert scene.member(member.group, topic).take(3) == [(0, 2, 1)]


def test_offsets_9_of_a_group_with_members_stay(scene: Scene) -> None:
    topic = scene.topic()
    member = scene.member(scene.group(), topic)
    answer = alter_offsets(scene, member.group, topic.name, 0)
    assert (answer.error_code, answer.responses) == (NON_EMPTY, ())
    answer = delete_offsets(scene, member.group, topic.name)
    assert (answer.error_code, answer.responses) == (NON_EMPTY, ())


def test_offsets_10_altering_offsets_creates_the_group(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    scene.produce(topic, 2, 2)
    assert altered(alter_offsets(scene, group, topic.name, 2)) == [0]
    assert scene.describe(group).group_state == "Empty"
    assert scene.member(group, topic).take(2) == [(2, 3, 1)]


def test_offsets_11_offsets_of_missing_partitions_cannot_be_set(scene: Scene) -> None:
    topic, member = idle(scene, 1)
    assert altered(alter_offsets(scene, member.group, topic.name, 0, 0)) == [0, UNKNOWN_PARTITION]
    name = scene.new_name("topic")
    assert altered(alter_offsets(scene, member.group, name, 0)) == [UNKNOWN_PARTITION]


def test_offsets_12_group_id_must_not_be_empty(scene: Scene) -> None:
    assert alter_offsets(scene, "", scene.topic().name, 0).error_code == INVALID_GROUP


def test_offsets_13_outside_the_log(scene: Scene) -> None:
    """Kafka takes any offset; ours one in the log or at its end."""
    topic, member = idle(scene, 2)
    for offset in (-5, 3, 1000):
        expected = {"ours": [OUT_OF_RANGE], "kafka": [0]}[scene.kind]
        assert altered(alter_offsets(scene, member.group, topic.name, offset)) == expected
    assert altered(alter_offsets(scene, member.group, topic.name, 2)) == [0]


def test_offsets_14_set_again_fence_an_acknowledgement_of_before(scene: Scene) -> None:
    """Two resets: Kafka 4.4 fences with the first one only, as its epoch stays (4.5 as ours)."""
    topic, member = idle(scene, 2)
    assert altered(alter_offsets(scene, member.group, topic.name, 0)) == [0]
    late = scene.member(member.group)
    late.topics = (topic,)
    assert late.take(2) == [(0, 1, 1)]
    assert altered(alter_offsets(scene, member.group, topic.name, 0)) == [0]
    outcome = late.acknowledge([(0, 1, ACCEPT)]).outcome
    assert outcome == {"ours": UNKNOWN_PARTITION, "kafka": 0}[scene.kind]
    lag = {"ours": 2, "kafka": 0}[scene.kind]
    assert scene.start_and_lag(member.group, topic)[1] == lag


def test_offsets_15_of_a_topic_are_deleted(scene: Scene) -> None:
    topic, member = idle(scene, 2)
    answer = delete_offsets(scene, member.group, topic.name)
    [response] = answer.responses
    assert (answer.error_code, response.error_code) == (0, 0)
    assert (response.topic_name, response.topic_id) == (topic.name, topic.id)
    assert scene.group_offsets(member.group).topics == ()
    assert scene.member(member.group, topic).take(2) == [(0, 1, 1)]


def test_offsets_16_deleting_missing_offsets_is_an_error(scene: Scene) -> None:
    known, (_, member) = scene.topic(), idle(scene, 1)
    for name in (known.name, scene.new_name("topic")):
        [response] = delete_offsets(scene, member.group, name).responses
        assert response.error_code == UNKNOWN_PARTITION
        assert response.error_message
    assert delete_offsets(scene, scene.new_name("group"), known.name).error_code == NO_GROUP


def test_offsets_20_deleting_of_no_group_and_of_a_topic_named_twice(scene: Scene) -> None:
    topic, member = idle(scene, 1)
    assert delete_offsets(scene, "", topic.name).error_code == INVALID_GROUP
    [response] = delete_offsets(scene, member.group, topic.name, topic.name).responses
    assert (response.topic_name, response.error_code) == (topic.name, 0)


def test_offsets_17_minus_one_is_out_of_range(scene: Scene) -> None:
    topic, member = idle(scene, 2)
    expected = {"ours": [OUT_OF_RANGE], "kafka": [0]}[scene.kind]
    assert altered(alter_offsets(scene, member.group, topic.name, -1)) == expected


def test_offsets_18_late_acknowledgement_of_deleted_offsets_is_refused(scene: Scene) -> None:
    topic, member = idle(scene, 2)
    late = scene.member(member.group)
    late.topics = (topic,)
    assert late.take() == [(1, 1, 2)]
    [response] = delete_offsets(scene, member.group, topic.name).responses
    assert response.error_code == 0
    outcome = late.acknowledge([(1, 1, ACCEPT)]).outcome
    assert outcome == {"ours": UNKNOWN_PARTITION, "kafka": UNKNOWN_SERVER_ERROR}[scene.kind]


def test_offsets_19_may_be_set_within_a_log_batch(scene: Scene) -> None:
    topic, member = idle(scene, 4)
    assert altered(alter_offsets(scene, member.group, topic.name, 2)) == [0]
    assert scene.member(member.group, topic).take(2) == [(2, 3, 1)]
