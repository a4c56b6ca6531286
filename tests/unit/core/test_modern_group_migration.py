"""Migration between the classic protocol and that of KIP-848, as core decides it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kio.schema.consumer_protocol_assignment.v0 import data as assignments
from kio.schema.consumer_protocol_subscription.v0.data import ConsumerProtocolSubscription

from sharegroup.broker.groups.modern_group_coordinator import CODEC
from sharegroup.core.deadlines import Now
from sharegroup.core.groups.classic.classic_group import ClassicGroup
from sharegroup.core.groups.classic.classic_groups import ClassicGroups
from sharegroup.core.groups.classic.member import ClassicGroupLimits, JoinRequest, State
from sharegroup.core.groups.classic.records import GroupMetadata, StoredMember
from sharegroup.core.groups.modern.advance import ModernGroupLimits
from sharegroup.core.groups.modern.migration import (
    can_downgrade,
    check_upgrade,
    downgraded,
    upgraded,
)
from sharegroup.core.groups.modern.records import MemberState
from sharegroup.errors import (
    GroupIdNotFound,
    IllegalGeneration,
    InconsistentGroupProtocol,
    RebalanceInProgress,
    UnknownMemberId,
)
from sharegroup.ids import MemberId
from sharegroup.wire.codec.encoder import encode
from sharegroup.wire.internal_topics.consumer_protocol import subscribed_topics
from tests.unit.core.modern_group_scene import GROUP, GroupScene, partitions, topic_id

OLD = MemberId("old")
NAMES = {topic_id(name): name for name in "ab"}
SUBSCRIPTION = b"\0\0" + encode(ConsumerProtocolSubscription(topics=("a",), user_data=None))


def assignment(*numbers: int, user_data: bytes | None = None) -> bytes:
    part = assignments.TopicPartition(topic="a", partitions=numbers)
    return b"\0\0" + encode(
        assignments.ConsumerProtocolAssignment(assigned_partitions=(part,), user_data=user_data)
    )


def classic_group(
    *,
    kind: str = "consumer",
    given: bytes | None = None,
    subscription: bytes = SUBSCRIPTION,
    members: int = 1,
) -> ClassicGroup:
    """A stable classic group of generation 4; its first member has both partitions of a."""
    stored = tuple(
        StoredMember(
            MemberId("old" if not number else f"old{number}"),
            None,
            "client",
            "/h",
            10_000,
            30_000,
            subscription,
            assignment(0, 1) if given is None and not number else given or b"",
        )
        for number in range(members)
    )
    groups = ClassicGroups(subscribed_topics)
    groups.replay(GroupMetadata(GROUP, kind, 4, "range", stored[0].member_id, 1, stored))
    group = groups.find(GROUP)
    assert group is not None
    return group


def upgraded_scene() -> GroupScene:
    """A group that was upgraded, with its classic member and a new one."""
    scene = GroupScene(a=2)
    records, _ = scene.groups.heartbeat(
        scene.request("new", 0, "a"),
        scene.cluster(),
        limits=scene.limits,
        now=Now(0, 0),
        upgraded=upgraded(classic_group(), scene.topics, CODEC),
    )
    scene.append(records)
    return scene


def join_request(scene: GroupScene, **fields: object) -> JoinRequest:
    request = JoinRequest(
        GROUP,
        OLD,
        None,
        "consumer",
        {"range": SUBSCRIPTION},
        10_000,
        30_000,
        "client",
        "/h",
        new_member_id=MemberId("given"),
    )
    return replace(request, **fields)  # type: ignore[arg-type]


def join(scene: GroupScene, *owned: int, **fields: object) -> int:
    """Join with the classic protocol; return the generation."""
    subscription = CODEC.subscription(SUBSCRIPTION)
    assert subscription is not None
    records, joined = scene.groups.join_classic(
        join_request(scene, **fields),
        subscription._replace(owned={"a": owned}),
        scene.cluster(),
        limits=scene.limits,
        now=Now(scene.now_ms, scene.now_ms),
    )
    scene.append(records)
    return -1 if joined is None else joined.generation


# Upgrades


def test_classic_members_keep_their_partitions_in_an_upgrade() -> None:
    scene = upgraded_scene()
    old, new = scene.member("old"), scene.member("new")
    assert old.assigned == dict.fromkeys(partitions("a", 0, 1), 4)
    assert (old.member_epoch, old.state) == (4, MemberState.STABLE)
    assert old.classic is not None
    assert (new.member_epoch, new.assigned, new.classic) == (5, {}, None)


@pytest.mark.parametrize(
    ("group", "limits", "text"),
    [
        (classic_group(), ModernGroupLimits(upgrades=False), "migration.policy"),
        (classic_group(kind="connect"), ModernGroupLimits(), "protocol type 'connect'"),
        (classic_group(members=2), ModernGroupLimits(members_max=1), "2 members; 1 are allowed"),
    ],
)
def test_some_groups_are_not_upgraded(
    group: ClassicGroup, limits: ModernGroupLimits, text: str
) -> None:
    with pytest.raises(GroupIdNotFound, match=text):
        check_upgrade(group, limits)


@pytest.mark.parametrize(
    ("group", "text"),
    [
        (classic_group(given=assignment(0, user_data=b"x")), "stores its own data"),
        (classic_group(given=b"\0"), "assignment of member 'old' cannot be decoded"),
        (classic_group(subscription=b"?"), "subscription of member 'old' cannot be decoded"),
    ],
)
def test_group_that_cannot_be_decoded_is_not_upgraded(group: ClassicGroup, text: str) -> None:
    with pytest.raises(GroupIdNotFound, match=text):
        upgraded(group, GroupScene(a=2).topics, CODEC)


def test_waiting_requests_of_an_upgraded_group_are_answered() -> None:
    groups = ClassicGroups(subscribed_topics)
    now, limits = Now(0, 0), ClassicGroupLimits(session_timeout_ms_min=0)
    request = join_request(GroupScene(a=1), member_id=MemberId(""), must_return=False)
    groups.join(request, 1, now=now, limits=limits)
    second = replace(request, new_member_id=MemberId("n"))
    groups.join(second, 2, now=now, limits=limits)
    decision = groups.hand_over(GROUP)
    assert [call for call, _ in decision.answers] == [1, 2]
    assert all(isinstance(reply, RebalanceInProgress) for _, reply in decision.answers)


# Classic members of an upgraded group


def test_classic_member_joins_again_to_revoke_and_to_sync() -> None:
    scene = upgraded_scene()
    with pytest.raises(RebalanceInProgress):
        scene.groups.heartbeat_classic(
            GROUP, OLD, instance_id=None, generation=4, now_ms=scene.now_ms
        )
    assert join(scene, 0, 1) == 4, "it has to revoke a partition first"
    assert scene.member("old").state is MemberState.UNREVOKED_PARTITIONS
    kept = scene.assigned("old")
    assert join(scene, *(partition.partition for partition in kept)) == 5
    assert scene.heartbeat("new", 5).assignment == partitions("a", 0, 1) - kept
    scene.groups.heartbeat_classic(GROUP, OLD, instance_id=None, generation=5, now_ms=0)


def test_classic_member_that_does_not_join_again_is_removed() -> None:
    scene = upgraded_scene()
    for ms in (0, 9_000, 9_000, 9_000):
        scene.now_ms += ms
        with pytest.raises(RebalanceInProgress):
            scene.groups.heartbeat_classic(
                GROUP, OLD, instance_id=None, generation=4, now_ms=scene.now_ms
            )
    assert scene.pass_time(3_000) == {"old": "join"}


def test_classic_member_that_does_not_sync_is_removed() -> None:
    scene = upgraded_scene()
    join(scene, 0, 1, rebalance_timeout_ms=5_000)
    assert scene.pass_time(5_000) == {"old": "sync"}


def test_member_that_changes_to_the_new_protocol_need_not_join_or_sync() -> None:
    scene = upgraded_scene()
    join(scene, 0, 1)
    with pytest.raises(RebalanceInProgress):
        scene.groups.heartbeat_classic(GROUP, OLD, instance_id=None, generation=4, now_ms=0)
    scene.join("old", "a")
    scene.settle("old", "new")
    assert scene.pass_time(30_000) == {}


def test_static_member_that_changes_to_the_new_protocol_need_not_join_or_sync() -> None:
    scene = upgraded_scene()
    given = MemberId("given")
    join(scene, member_id=MemberId(""), instance_id="i")
    scene.join("new", "a", "b")
    epoch = scene.epoch("given")
    with pytest.raises(RebalanceInProgress):
        scene.groups.heartbeat_classic(GROUP, given, instance_id="i", generation=epoch, now_ms=0)
    scene.join("given", "a", instance_id="i")
    scene.settle("given", "new")
    assert scene.pass_time(30_000) == {}


def test_member_that_changes_to_the_classic_protocol_revokes_by_joining() -> None:
    scene = GroupScene(a=2)
    scene.join("old", "a", rebalance_timeout_ms=10_000)
    scene.join("new", "a")
    scene.heartbeat("old", 2)
    assert scene.member("old").state is MemberState.UNREVOKED_PARTITIONS
    join(scene, 0, 1, session_timeout_ms=45_000)
    assert scene.member("old").state is MemberState.UNREVOKED_PARTITIONS
    assert scene.pass_time(10_000) == {}


def test_session_of_a_classic_member_is_its_own() -> None:
    scene = upgraded_scene()
    scene.groups.start((GROUP,), 0, {GROUP: 45_000})
    assert scene.pass_time(10_000) == {"old": "session"}


def test_new_classic_member_gets_an_id_first() -> None:
    scene = upgraded_scene()
    assert join(scene, member_id=MemberId("")) == -1
    assert list(scene.group.members) == ["old", "new"]
    assert join(scene, member_id=MemberId("given")) == 6


def test_classic_requests_are_fenced() -> None:
    scene = upgraded_scene()
    with pytest.raises(IllegalGeneration, match="expected generation 4"):
        scene.groups.heartbeat_classic(GROUP, OLD, instance_id=None, generation=3, now_ms=0)
    with pytest.raises(UnknownMemberId, match="does not use the classic protocol"):
        scene.groups.heartbeat_classic(
            GROUP, MemberId("new"), instance_id=None, generation=5, now_ms=0
        )
    with pytest.raises(InconsistentGroupProtocol, match="all 1 classic members support"):
        join(scene, protocols={"sticky": SUBSCRIPTION})


# Downgrades


@pytest.mark.parametrize(
    ("leaving", "limits", "expected"),
    [
        (["new"], ModernGroupLimits(), True),
        (["old"], ModernGroupLimits(), False),
        (["old", "new"], ModernGroupLimits(), False),
        (["new"], ModernGroupLimits(downgrades=False), False),
        (["new"], ModernGroupLimits(classic_members_max=0), False),
    ],
)
def test_group_is_downgraded_when_only_classic_members_stay(
    leaving: list[str], limits: ModernGroupLimits, expected: bool
) -> None:
    group = upgraded_scene().group
    assert can_downgrade(group, [MemberId(name) for name in leaving], limits) is expected


def test_classic_members_form_a_classic_group_again() -> None:
    scene = upgraded_scene()
    metadata = downgraded(
        scene.group,
        {MemberId("new"): None},
        name_of=NAMES.get,  # type: ignore[arg-type]
        codec=CODEC,
        wall_ms=9,
    )
    assert (metadata.generation, metadata.protocol, metadata.leader) == (5, "range", "old")
    [member] = metadata.members
    assert (member.member_id, member.session_timeout_ms) == ("old", 10_000)
    [target] = scene.group.target[OLD]
    assert member.assignment == assignment(target.partition)

    groups = ClassicGroups(subscribed_topics)
    groups.take_over(metadata, rebalances=True, now=Now(0, 0), limits=ClassicGroupLimits())
    group = groups.find(GROUP)
    assert group is not None
    assert group.state is State.PREPARING_REBALANCE
