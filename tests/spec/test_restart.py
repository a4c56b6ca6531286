"""What is there after the broker was started again (docs/spec.md, «restart»).

One restart for all of these tests: what they look at is made before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.spec.member import Member
from tests.spec.messages import ACCEPT, REJECT, RELEASE, Topic
from tests.spec.peer import Peer
from tests.spec.scene import GROUP_RESOURCE, Scene
from tests.spec.test_consumer import commit, committed
from tests.spec.test_feature import features, set_level
from tests.spec.waiting import wait_for

NO_SESSION = 122
CONSUMERS = "consumers-before-restart"


class Before(NamedTuple):
    """What was there when the broker stopped."""

    topic: Topic
    member: Member
    session_epoch: int
    group_epoch: int
    assigned: set[tuple[object, int]]


@pytest.fixture(scope="module")
def before(peer: Peer) -> Iterator[Before]:
    """Six records: accepted, rejected, released, held, held again, never fetched."""
    with Scene(peer, "before-restart") as scene:
        topic = scene.topic()
        member = scene.member(scene.group(share_delivery_count_limit="7"), topic)
        scene.produce(topic, *[1] * 5)
        assert member.take(5, batch_size=1) == [(offset, offset, 1) for offset in range(5)]
        acks = [(0, 0, ACCEPT), (1, 1, REJECT), (2, 2, RELEASE), (4, 4, RELEASE)]
        assert member.acknowledge(acks).outcome == 0
        assert sorted(member.take(2)) == [(2, 2, 2), (4, 4, 2)]
        assert member.acknowledge([(2, 2, RELEASE)]).outcome == 0
        scene.produce(topic, 1)
        assert commit(scene, CONSUMERS, topic, 100) == 0
        set_level(scene, 1)
        epoch = scene.describe(member.group).group_epoch
        found = Before(topic, member, member.session_epoch, epoch, set(member.assigned))
        peer.restart()
        yield found
    with Scene(peer, "after-restart") as scene:
        set_level(scene, 2)


def again(scene: Scene, before: Before) -> Member:
    """The same member on a new connection."""
    member = Member(scene.connect(), before.member.group, before.member.member_id)
    member.epoch, member.topics = before.member.epoch, (before.topic,)
    wait_for(lambda: member.heartbeat().error_code not in {14, 15, 16}, "the coordinator")
    return member


def test_restart_1_member_continues_with_its_epoch(scene: Scene, before: Before) -> None:
    member = again(scene, before)
    answer = member.heartbeat(epoch=before.member.epoch, topics=[before.topic.name])
    assert (answer.error_code, answer.member_epoch) == (0, before.member.epoch)
    assert member.assigned == before.assigned
    assert scene.describe(member.group).group_epoch == before.group_epoch


def test_restart_2_share_sessions_are_lost(scene: Scene, before: Before) -> None:
    member = again(scene, before)
    assert member.fetch(epoch=before.session_epoch).error == NO_SESSION


def test_restart_3_settled_records_stay_settled_and_others_are_redelivered(
    scene: Scene, before: Before
) -> None:
    """Ours releases held records at a clean stop, so their deliveries still count."""
    member = again(scene, before)
    taken = member.take(4, batch_size=1)
    assert (
        taken
        == {
            "ours": [(2, 2, 3), (3, 3, 2), (4, 4, 3), (5, 5, 1)],
            "kafka": [(2, 2, 3), (3, 3, 1), (4, 4, 2), (5, 5, 1)],
        }[scene.kind]
    )
    member.close()


def test_restart_4_settings_are_kept(scene: Scene, before: Before) -> None:
    shown = scene.configs(GROUP_RESOURCE, before.member.group)
    assert shown["share.delivery.count.limit"] == "7"


def test_restart_5_topics_are_kept(scene: Scene, before: Before) -> None:
    assert scene.known_topic(before.topic.name, 1).id == before.topic.id
    wait_for(lambda: scene.offset(before.topic) == 6, "its partition to be led, with its records")


def test_restart_6_levels_of_features_are_kept(scene: Scene, before: Before) -> None:
    assert features(scene)[1] == 1


def test_restart_7_committed_offset_beyond_the_end_of_its_log(scene: Scene, before: Before) -> None:
    """Ours takes it back: what is written there some day must not count as read."""
    found = wait_for(lambda: told(scene, before), "the coordinator")
    assert found == (0, {"ours": 6, "kafka": 100}[scene.kind], "note")


def told(scene: Scene, before: Before) -> tuple[int, int, str] | None:
    """What was committed, when the coordinator has loaded it."""
    found = committed(scene, CONSUMERS, before.topic)
    return None if found[0] in {14, 15, 16} else found
