"""Heartbeats of large groups of KIP-848, worked out in steps and used if nothing changed."""

from __future__ import annotations

import pytest

from sharegroup.core.deadlines import Now
from sharegroup.core.groups.modern.heartbeat import HeartbeatPlan, ModernHeartbeat
from sharegroup.core.groups.modern.records import Records
from sharegroup.core.groups.share.share_group import HeartbeatReply
from sharegroup.steps import Steps, run_to_end
from tests.unit.core.group_under_test import WALL_MS
from tests.unit.core.modern_group_scene import GroupScene, partitions

COUNT = 1_500


def plan(scene: GroupScene, request: ModernHeartbeat) -> Steps[HeartbeatPlan | None]:
    return scene.groups.plan(request, scene.cluster(), scene.limits, WALL_MS)


def decide(
    scene: GroupScene, request: ModernHeartbeat, planned: HeartbeatPlan | None
) -> tuple[Records, HeartbeatReply]:
    return scene.groups.heartbeat(
        request, scene.cluster(), limits=scene.limits, now=Now(0, WALL_MS), plan=planned
    )


def test_planned_heartbeat_has_the_same_effect() -> None:
    scene = GroupScene(a=COUNT)
    scene.join("m", "a")
    request = scene.request("n", 0, "a")
    planned = run_to_end(plan(scene, request))
    assert planned is not None
    records, reply = decide(scene, request, planned)
    assert records == planned.result[0]
    assert all(ours is theirs for ours, theirs in zip(records, planned.result[0], strict=True))
    assert (records, reply) == decide(scene, request, None)


def test_plan_ends_without_a_result_when_the_group_changes_meanwhile() -> None:
    scene = GroupScene(a=COUNT)
    steps = plan(scene, scene.request("m", 0, "a"))
    next(steps)
    scene.join("n", "a")
    assert run_to_end(steps) is None


@pytest.mark.parametrize("change", ["member", "topics", "limits", "another member"])
def test_outdated_plan_is_not_used(change: str) -> None:
    """The decision is that without a plan, for the group as it is."""
    scene = GroupScene(a=COUNT)
    request = scene.request("m", 0, "a")
    planned = run_to_end(plan(scene, request))
    assert planned is not None
    match change:
        case "member":
            request = scene.request("m", 0, "a", rack_id="r")
        case "topics":
            scene.change_topics(a=COUNT + 1)
        case "limits":
            scene.limits = type(scene.limits)(assignors=("range",))
        case _:
            scene.join("n", "a")
    records, reply = decide(scene, request, planned)
    assert not any(record is planned.result[0][-1] for record in records)
    assert (records, reply) == decide(scene, request, None)


def test_heartbeat_that_changes_nothing_is_not_long() -> None:
    """In a large group, too; so is no heartbeat of a small one."""
    scene = GroupScene(a=COUNT, b=1)
    assert scene.groups.is_long(scene.request("m", 0, "a"), scene.cluster())
    assert not scene.groups.is_long(scene.request("m", 0, "b"), scene.cluster())
    scene.join("m", "a")
    assert not scene.groups.is_long(scene.request("m", 2), scene.cluster())
    assert scene.groups.is_long(scene.request("n", 0, "b"), scene.cluster())
    assert scene.groups.is_long(scene.request("m", 2, "b"), scene.cluster())


def test_partitions_beyond_the_end_of_a_smaller_topic_are_assigned_no_more() -> None:
    scene = GroupScene(a=4, b=2)
    scene.join("m", "a", "b")
    scene.change_topics(a=2, b=2)
    scene.heartbeat("m", 2)
    target = scene.group.target[scene.member("m").member_id]
    assert target == partitions("a", 0, 1) | partitions("b", 0, 1)
