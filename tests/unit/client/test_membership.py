"""What a member tells its coordinator, and what it does about each answer."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.share_group_heartbeat.v1.response import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

from sharegroup.client.share.member.membership import Membership, Reaction
from sharegroup.ids import GroupId, MemberId, TopicId, TopicIdPartition

TOPIC = UUID(int=7)


def member(*topics: str) -> Membership:
    made = Membership(GroupId("g"), MemberId("m"), "rack-1")
    made.subscribe(topics or ("orders",))
    return made


def answer(
    *, epoch: int = 3, error: int = 0, partitions: tuple[int, ...] | None = None
) -> ShareGroupHeartbeatResponse:
    assigned: Any = None
    if partitions is not None:
        part: Any = TopicPartitions(topic_id=TOPIC, partitions=partitions)  # type: ignore[arg-type]
        assigned = Assignment(topic_partitions=(part,))
    values: dict[str, Any] = {
        "throttle_time": timedelta(0),
        "error_code": error,
        "member_id": "m",
        "member_epoch": epoch,
        "heartbeat_interval": timedelta(milliseconds=5_000),
        "assignment": assigned,
    }
    return ShareGroupHeartbeatResponse(**values)


def exchange(membership: Membership, response: ShareGroupHeartbeatResponse) -> Reaction:
    return membership.answered(membership.request(), response)


def said(membership: Membership) -> tuple[int, Any, Any]:
    request = membership.request()
    return request.member_epoch, request.rack_id, request.subscribed_topic_names


def test_join_sends_epoch_rack_and_subscription() -> None:
    assert said(member("a", "b")) == (0, "rack-1", ("a", "b"))


def test_regular_heartbeat_sends_only_the_epoch() -> None:
    membership = member()
    assert exchange(membership, answer(epoch=3, partitions=(0, 1))) is Reaction.CONTINUE
    assert said(membership) == (3, None, None)
    assert membership.interval_ms == 5_000
    assert membership.assignment == {
        TopicIdPartition(TopicId(TOPIC), 0),
        TopicIdPartition(TopicId(TOPIC), 1),
    }


def test_response_without_assignment_keeps_the_assignment() -> None:
    membership = member()
    exchange(membership, answer(partitions=(0,)))
    exchange(membership, answer(epoch=4))
    assert membership.epoch == 4
    assert len(membership.assignment) == 1


def test_changed_subscription_is_sent_until_it_is_answered() -> None:
    membership = member("a")
    exchange(membership, answer())
    membership.subscribe(("a", "b"))
    assert said(membership) == (3, None, ("a", "b"))
    membership.unanswered()
    assert said(membership) == (3, None, ("a", "b"))
    exchange(membership, answer(partitions=(0,)))
    assert said(membership) == (3, None, None)


def test_after_a_lost_response_the_subscription_is_sent_again() -> None:
    membership = member("a")
    exchange(membership, answer())
    membership.unanswered()
    assert said(membership) == (3, None, ("a",))


@pytest.mark.parametrize("code", [14, 15, 16, 29])
def test_after_an_error_the_subscription_is_sent_again(code: int) -> None:
    """The coordinator may have applied the heartbeat; a full request gets the whole assignment."""
    membership = member("a")
    exchange(membership, answer())
    exchange(membership, answer(error=code))
    assert said(membership) == (3, None, ("a",))
    assert exchange(membership, answer(partitions=(0,))) is Reaction.CONTINUE
    assert len(membership.assignment) == 1
    assert said(membership) == (3, None, None)


@pytest.mark.parametrize(
    "loses", [Membership.unanswered, lambda membership: exchange(membership, answer(error=15))]
)
def test_an_old_coordinator_repeats_the_assignment_for_a_join(
    loses: Callable[[Membership], object],
) -> None:
    """Kafka 4.0 answers a full request of a member without its assignment."""
    membership = member("a")
    exchange(membership, answer(partitions=(0,)))
    loses(membership)
    assert exchange(membership, answer()) is Reaction.REJOIN
    assert len(membership.assignment) == 1  # Nothing says that it is not ours any more.
    assert said(membership) == (0, "rack-1", ("a",))
    # One join is enough, also when it brings no assignment.
    assert exchange(membership, answer()) is Reaction.CONTINUE
    assert said(membership) == (3, None, None)


@pytest.mark.parametrize("code", [110, 25], ids=["FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID"])
def test_a_fenced_member_drops_its_assignment_and_joins_as_itself(code: int) -> None:
    membership = member("a")
    exchange(membership, answer(partitions=(0,)))
    assert exchange(membership, answer(error=code)) is Reaction.REJOIN
    assert membership.assignment == frozenset()
    assert said(membership) == (0, "rack-1", ("a",))
    assert membership.request().member_id == "m"


@pytest.mark.parametrize(
    ("code", "reaction"),
    [
        (16, Reaction.FIND_COORDINATOR),  # NOT_COORDINATOR
        (15, Reaction.FIND_COORDINATOR),  # COORDINATOR_NOT_AVAILABLE
        (14, Reaction.WAIT),  # COORDINATOR_LOAD_IN_PROGRESS
        (29, Reaction.REPORT),  # TOPIC_AUTHORIZATION_FAILED
        (30, Reaction.FAIL),  # GROUP_AUTHORIZATION_FAILED
        (42, Reaction.FAIL),  # INVALID_REQUEST
        (81, Reaction.FAIL),  # GROUP_MAX_SIZE_REACHED
        (35, Reaction.FAIL),  # UNSUPPORTED_VERSION
        (69, Reaction.FAIL),  # GROUP_ID_NOT_FOUND
        (9999, Reaction.FAIL),
    ],
)
def test_each_error_has_its_reaction_and_keeps_the_assignment(
    code: int, reaction: Reaction
) -> None:
    membership = member()
    exchange(membership, answer(partitions=(0,)))
    assert exchange(membership, answer(error=code)) is reaction
    assert (membership.epoch, len(membership.assignment)) == (3, 1)


def test_leave_request_has_epoch_minus_one() -> None:
    membership = member()
    exchange(membership, answer())
    assert membership.leave_request().member_epoch == -1


@pytest.mark.parametrize(
    ("named_ms", "interval_ms"),
    [
        (1, 10),
        (50, 50),
        (60_001, 60_000),
        (2**31 - 1, 60_000),
        (0, 5_000),
        (-1, 5_000),
        (-(2**31), 5_000),
    ],
)
def test_heartbeat_interval_of_the_broker_has_bounds(named_ms: int, interval_ms: int) -> None:
    membership = member()
    exchange(membership, answer())
    values = answer()
    object.__setattr__(values, "heartbeat_interval", timedelta(milliseconds=named_ms))
    exchange(membership, values)
    assert membership.interval_ms == interval_ms
