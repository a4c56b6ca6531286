"""Share sessions: epochs, what they hold, how they end (docs/spec.md, «session»)."""

from __future__ import annotations

import pytest

from tests.spec.member import Member
from tests.spec.messages import ACCEPT, CLOSE, OPEN, Topic
from tests.spec.peer import SESSIONS_MAX
from tests.spec.scene import Scene

NO_SESSION, WRONG_EPOCH, FULL, INVALID = 122, 123, 133, 42


def reader(scene: Scene, partitions: int = 1, records: int = 0) -> tuple[Topic, Member]:
    """A topic with a batch of records in each partition, and the member that reads it."""
    topic = scene.topic(partitions)
    member = scene.member(scene.group(), topic).until_assigned(partitions)
    for partition in range(partitions if records else 0):
        scene.produce(topic, records, partition=partition)
    return topic, member


def test_session_1_answer_that_opens_names_partitions_without_records_too(scene: Scene) -> None:
    topic, member = reader(scene, 3)
    member.load()
    scene.produce(topic, 1, partition=1)
    answer = member.fetch(epoch=OPEN, wait_ms=5000)
    assert (answer.error, answer.errors) == (0, {0: 0, 1: 0, 2: 0})
    assert answer.by_partition == {1: [(0, 0, 1)]}


def test_session_2_wrong_epoch_is_refused_and_the_session_continues(scene: Scene) -> None:
    _, member = reader(scene)
    member.open()
    assert member.fetch(epoch=2).error == WRONG_EPOCH
    assert member.fetch(epoch=1).error == 0


def test_session_3_epoch_that_is_sent_again_is_refused(scene: Scene) -> None:
    """The answer was lost; the client opens a new session."""
    _, member = reader(scene)
    member.open()
    assert member.fetch(epoch=1).error == 0
    assert member.fetch(epoch=1).error == WRONG_EPOCH
    assert member.fetch(epoch=2).error == 0


def test_session_4_fetches_and_acknowledgements_count_together(scene: Scene) -> None:
    _, member = reader(scene, records=2)
    assert member.take(2) == [(0, 1, 1)]
    epoch = member.session_epoch
    assert member.acknowledge([(0, 0, ACCEPT)], epoch=epoch).outcome == 0
    assert member.fetch(epoch=epoch).error == WRONG_EPOCH
    assert member.fetch(epoch=epoch + 1).error == 0


def test_session_5_request_without_a_session_is_an_error(scene: Scene) -> None:
    _, member = reader(scene)
    assert member.fetch(epoch=1, partitions=[]).error == NO_SESSION
    assert member.fetch(epoch=CLOSE, partitions=[]).error == NO_SESSION
    assert member.acknowledge([(0, 0, ACCEPT)], epoch=1).error == NO_SESSION
    assert member.acknowledge([(0, 0, ACCEPT)], epoch=CLOSE).error == NO_SESSION


def test_session_6_opening_cannot_acknowledge_and_leaves_the_old_session(scene: Scene) -> None:
    _, member = reader(scene, records=1)
    member.take()
    epoch = member.session_epoch
    assert member.fetch([(0, 0, ACCEPT)], epoch=OPEN).error == INVALID
    assert member.fetch([(0, 0, ACCEPT)], epoch=epoch).ack_errors == {0: 0}


def test_session_7_acknowledgement_cannot_open(scene: Scene) -> None:
    _, member = reader(scene, records=1)
    member.take()
    epoch = member.session_epoch
    assert member.acknowledge([(0, 0, ACCEPT)], epoch=OPEN).error == WRONG_EPOCH
    assert member.acknowledge([(0, 0, ACCEPT)], epoch=epoch).outcome == 0


@pytest.mark.parametrize("how", ["fetch", "acknowledge"])
def test_session_8_close_releases_held_records(scene: Scene, how: str) -> None:
    topic, member = reader(scene, records=2)
    assert member.take(2) == [(0, 1, 1)]
    closing = member.fetch(epoch=CLOSE) if how == "fetch" else member.close()
    assert closing.error == 0
    assert scene.member(member.group, topic).take(2) == [(0, 1, 2)]


@pytest.mark.parametrize("how", ["fetch", "acknowledge"])
def test_session_9_closing_acknowledges_first(scene: Scene, how: str) -> None:
    topic, member = reader(scene, records=3)
    member.take(3)
    acks = [(0, 1, ACCEPT)]
    if how == "fetch":
        answer = member.fetch(acks, epoch=CLOSE)
        assert (answer.error, answer.ack_errors) == (0, {0: 0})
        assert answer.acquired == []
    else:
        assert member.close(acks).outcome == 0
    assert scene.member(member.group, topic).take() == [(2, 2, 2)]


def test_session_10_closing_takes_no_records(scene: Scene) -> None:
    _, member = reader(scene)
    member.open()
    scene.produce(member.topics[0], 1)
    answer = member.fetch(epoch=CLOSE, wait_ms=2000)
    assert (answer.error, answer.partitions) == (0, {})


def test_session_11_lost_connection_releases_held_records(scene: Scene) -> None:
    topic, member = reader(scene, records=2)
    other = scene.member(member.group, topic).open()
    assert member.take(2) == [(0, 1, 1)]
    member.connection.socket.close()
    assert other.take(2) == [(0, 1, 2)]


def test_session_12_opening_in_place_keeps_held_records(scene: Scene) -> None:
    topic, member = reader(scene, records=1)
    assert member.take() == [(0, 0, 1)]
    other = scene.member(member.group, topic)
    member.open()
    assert other.fetch().acquired == []
    assert member.acknowledge([(0, 0, ACCEPT)]).outcome == 0


def test_session_13_later_responses_include_only_partitions_with_news(scene: Scene) -> None:
    topic, member = reader(scene, 3)
    member.load()
    scene.produce(topic, 1, partition=1)
    assert member.fetch(wait_ms=5000).by_partition == {1: [(0, 0, 1)]}
    assert member.fetch().partitions == {}


def test_session_14_forgotten_partition_is_fetched_no_more(scene: Scene) -> None:
    topic, member = reader(scene, 2)
    member.open()
    member.fetch(forget=[(topic.id, 0)])
    for partition in (0, 1):
        scene.produce(topic, 1, partition=partition)
    assert member.take() == [(0, 0, 1)]
    assert member.fetch().by_partition == {}
    assert member.fetch(partitions=[(topic.id, 0)], wait_ms=5000).by_partition == {0: [(0, 0, 1)]}


def test_session_15_partition_is_acknowledged_and_forgotten_in_one_request(scene: Scene) -> None:
    topic, member = reader(scene, records=1)
    member.take()
    scene.produce(topic, 1)
    answer = member.fetch([(0, 0, ACCEPT)], forget=[(topic.id, 0)])
    assert (answer.ack_errors, answer.acquired) == ({0: 0}, [])
    assert member.fetch().acquired == []


def test_session_16_close_does_not_release_records_of_forgotten_partitions(scene: Scene) -> None:
    topic, member = reader(scene, records=1)
    other = scene.member(member.group, topic).open()
    member.take()
    assert member.fetch(forget=[(topic.id, 0)]).error == 0
    assert member.close().error == 0
    assert other.fetch().acquired == []


def test_session_17_full_broker_refuses_when_the_wait_is_over(scene: Scene) -> None:
    topic, member = reader(scene)
    members = [member.open()]
    while members[-1].fetch(epoch=OPEN).error == 0:
        assert len(members) <= SESSIONS_MAX
        members.append(scene.member(member.group))
        members[-1].topics = (topic,)
    refused = members.pop()
    request = refused.begin_fetch(epoch=OPEN, wait_ms=400)
    assert refused.connection.is_silent(0.3)
    assert refused.finish_fetch(request).error == FULL
    assert member.fetch(epoch=OPEN).error == 0, "a session that is there may be opened in place"
    for opened in members:
        assert opened.close().error == 0


def test_session_18_refused_request_uses_up_its_epoch(scene: Scene) -> None:
    _, member = reader(scene, records=1)
    member.take()
    epoch = member.session_epoch
    assert member.acknowledge([(5, 3, ACCEPT)], epoch=epoch).outcome == INVALID
    assert member.acknowledge([(0, 0, ACCEPT)], epoch=epoch).error == WRONG_EPOCH
    assert member.acknowledge([(0, 0, ACCEPT)], epoch=epoch + 1).outcome == 0


def test_session_19_two_groups_of_one_member_id_are_strangers(scene: Scene) -> None:
    topic, member = reader(scene, records=1)
    twin = Member(scene.connect(), scene.group(), member.member_id).join(topic)
    assert member.take() == [(0, 0, 1)]
    assert twin.take() == [(0, 0, 1)]
    assert member.close().error == 0
    assert twin.acknowledge([(0, 0, ACCEPT)]).outcome == 0


def test_session_20_named_partition_is_added(scene: Scene) -> None:
    topic, member = reader(scene, 2, records=1)
    member.fetch(epoch=OPEN, partitions=[(topic.id, 0)], max_records=0)
    assert member.take() == [(0, 0, 1)]
    assert member.fetch().by_partition == {}
    assert member.fetch(partitions=[(topic.id, 1)], wait_ms=5000).by_partition == {1: [(0, 0, 1)]}


def test_session_21_lost_connection_ends_all_its_sessions(scene: Scene) -> None:
    """Kafka remembers only the last session of a connection."""
    topic, first = reader(scene)
    second = Member(first.connection, first.group)
    second.topics = (topic,)
    first.load()
    scene.produce(topic, 1, 1)
    assert first.take(max_records=1) == [(0, 0, 1)]
    assert second.take(max_records=1) == [(1, 1, 1)]
    other = scene.member(first.group, topic).open()
    first.connection.socket.close()
    released = {"ours": [(0, 1, 2)], "kafka": [(1, 1, 2)]}[scene.kind]
    assert other.take() == released


def test_session_22_acknowledging_on_a_fetch_names_a_partition(scene: Scene) -> None:
    """Who does not want to fetch from it forgets it in the same request (session-15)."""
    topic, member = reader(scene, records=1)
    member.take()
    assert member.fetch(forget=[(topic.id, 0)]).error == 0
    scene.produce(topic, 1)
    assert member.fetch().acquired == []
    assert member.fetch([(0, 0, ACCEPT)], wait_ms=5000).acquired == [(1, 1, 1)]


def test_session_23_nothing_is_locked_for_a_connection_that_dropped(scene: Scene) -> None:
    """Its fetch was waiting when it dropped."""
    topic, gone = reader(scene)
    other = scene.member(gone.group, topic).open()
    gone.load()
    gone.begin_fetch(wait_ms=2_000)
    assert gone.connection.is_silent(0.1)
    scene.drop(gone)
    scene.produce(topic, 1)
    assert other.take() == [(0, 0, 1)]
