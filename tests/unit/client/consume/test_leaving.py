"""A member of a consumer group leaves it also if the answer to its join was lost.

And it neither spins nor leaves because of what a coordinator answers.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.consumer_group_heartbeat.v1.response import ConsumerGroupHeartbeatResponse
from kio.schema.join_group.v9.response import JoinGroupResponse
from kio.schema.leave_group.v5.response import LeaveGroupResponse

from sharegroup.backoff import Backoff
from sharegroup.client.consume.classic_member import ClassicMember
from sharegroup.client.consume.consumer_protocol_member import ConsumerProtocolMember
from sharegroup.client.consume.coordinator_requests import MemberIdentity, MemberParts
from sharegroup.client.consume.handover import Handover
from sharegroup.client.metrics.client_metrics import ConsumerMetrics
from sharegroup.client.metrics.metric_types import Metrics
from sharegroup.client.net.cluster import ConnectionPurpose
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.plain_consumer_config import ConsumerConfig
from sharegroup.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    IllegalGeneration,
    KafkaError,
    MemberIdRequired,
    NetworkException,
    NoAnswer,
    RebalanceInProgress,
    UnknownMemberId,
    UnsupportedVersion,
)
from sharegroup.testing import virtual_time

Answer = int | KafkaError | None
"""An error code, an exception of the connection, or None for a request without an answer."""


class Coordinator:
    """A cluster of one broker that answers by a script; with an empty one it answers nothing."""

    principal = None

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[Any] = []
        self.is_found = True
        self.look_ups = 0
        self.member_epochs: list[int] = []
        """The member epochs of the next heartbeats; after them it is always 3."""
        self.interval_ms = 5_000
        self.backoff_ms = 60_000

    async def coordinator(self, group_id: str) -> int:
        self.look_ups += 1
        if not self.is_found:
            raise NetworkException("nobody listens")
        return 1

    def known_coordinator(self, group_id: str) -> int | None:
        return 1

    def doubt(self, node_id: int) -> None: ...

    def forget_coordinator(self, group_id: str) -> None: ...

    async def connection(self, node_id: int, purpose: ConnectionPurpose) -> Coordinator:
        return self

    def backoff(self) -> Backoff:
        return Backoff(self.backoff_ms, self.backoff_ms, chance=lambda: 0.5)

    async def request(self, message: Any, *, timeout_ms: int | None) -> Any:
        self.requests.append(message)
        answer = self.answers.pop(0) if self.answers else None
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, KafkaError):
            raise answer
        values: dict[str, Any] = {"throttle_time": timedelta(0), "error_code": answer}
        match type(message).__name__:
            case "JoinGroupRequest":
                return JoinGroupResponse(
                    **values, generation_id=-1, leader="", member_id="given", members=(),
                    protocol_name=None, protocol_type=None,
                )  # fmt: skip
            case "LeaveGroupRequest":
                return LeaveGroupResponse(**values, members=())
            case _:
                return ConsumerGroupHeartbeatResponse(
                    **values, error_message=None, member_id="m",
                    member_epoch=self.member_epochs.pop(0) if self.member_epochs else 3,
                    heartbeat_interval=timedelta(milliseconds=self.interval_ms), assignment=None,
                )  # fmt: skip


class Topics:
    is_listed = True
    subscribed = frozenset({"orders"})


def live(
    coordinator: Coordinator,
    protocol: str,
    leave_answer: Answer,
    instance_id: str | None = None,
    *,
    owns: bool = True,
) -> list[Any]:
    """Run a member until it has nothing more to do, and return the requests of its leaving."""
    config = ConsumerConfig(group_id="g", group_protocol=protocol, group_instance_id=instance_id)
    is_classic = protocol == "classic"
    identity = MemberIdentity("" if is_classic else "m", instance_id=instance_id)
    handover = Handover(lambda: None)
    cluster: Any = coordinator
    topics: Any = Topics()

    def parts() -> MemberParts:
        return MemberParts(
            cluster=cluster,
            config=config,
            identity=identity,
            handover=handover,
            topics=topics,
            broker_pattern=lambda: None,
            # A consumer's fenced member waits for a poll that gives these up.
            owned=lambda: frozenset(
                {TopicPartition("orders", 0)} if owns and not is_classic else ()
            ),
            changed=lambda: None,
            metrics=ConsumerMetrics(Metrics("test"), partitions=lambda: 0, lag_max=lambda: 0),
        )

    async def run() -> list[Any]:
        member = ClassicMember(parts()) if is_classic else ConsumerProtocolMember(parts())
        running = asyncio.create_task(member.run())
        await asyncio.sleep(10)  # Of virtual time: two heartbeats, and less than a backoff.
        running.cancel()
        await asyncio.wait([running])
        sent, coordinator.answers = len(coordinator.requests), [leave_answer]
        await member.leave()
        return coordinator.requests[sent:]

    return virtual_time.run(run())


@pytest.mark.parametrize(
    "answers",
    [
        (NetworkException("cut"),),
        (NoAnswer("silent"),),
        (15,),
        (None,),
        (0, FencedMemberEpoch.code),
    ],
    ids=["cut", "silent", "not replicated", "cancelled", "fenced"],
)
@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_a_member_leaves_if_it_may_have_joined(
    answers: tuple[Answer, ...], instance_id: str | None, epoch: int
) -> None:
    leaves = live(Coordinator(*answers), "consumer", 0, instance_id)
    assert [(leave.member_id, leave.member_epoch) for leave in leaves] == [("m", epoch)]


@pytest.mark.parametrize("refusal", [UnknownMemberId, GroupIdNotFound, FencedInstanceId])
def test_leaving_is_done_if_the_coordinator_does_not_know_the_member(
    refusal: type[KafkaError],
) -> None:
    assert len(live(Coordinator(NetworkException("cut")), "consumer", refusal.code)) == 1


@pytest.mark.parametrize(
    "answer",
    [UnknownMemberId.code, GroupMaxSizeReached.code, UnsupportedVersion("not served")],
    ids=["unknown", "full", "old"],
)
def test_a_join_that_was_refused_needs_no_leave(answer: Answer) -> None:
    assert live(Coordinator(answer), "consumer", 0) == []


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_join_that_was_never_sent_needs_no_leave(protocol: str) -> None:
    coordinator = Coordinator()
    coordinator.is_found = False
    assert live(coordinator, protocol, 0) == []
    assert coordinator.look_ups == 1  # A cluster that is away does not delay the close.


@pytest.mark.parametrize("lost", [NetworkException("cut"), None], ids=["cut", "cancelled"])
def test_a_classic_member_leaves_if_it_may_have_joined(lost: Answer) -> None:
    """KIP-394: the first answer gives the member its id, so a lost second one loses nothing."""
    leaves = live(Coordinator(MemberIdRequired.code, lost), "classic", 0)
    assert [member.member_id for leave in leaves for member in leave.members] == ["given"]


@pytest.mark.parametrize("lost", [NetworkException("cut"), None], ids=["cut", "cancelled"])
def test_a_static_classic_member_never_leaves(lost: Answer) -> None:
    assert live(Coordinator(lost), "classic", 0, "i") == []


def lived(coordinator: Coordinator, protocol: str) -> list[Any]:
    """The requests of a member without partitions in ten seconds, without those of its leaving."""
    leaves = live(coordinator, protocol, 0, owns=False)
    return coordinator.requests[: len(coordinator.requests) - len(leaves)]


@pytest.mark.parametrize(
    ("protocol", "refusal", "requests"),
    [
        ("consumer", UnknownMemberId, 4),
        ("consumer", FencedMemberEpoch, 4),
        ("classic", UnknownMemberId, 4),
        ("classic", IllegalGeneration, 4),
        ("classic", RebalanceInProgress, 4),
        ("classic", MemberIdRequired, 2),  # The second request has the member id of the first.
    ],
)
def test_a_member_that_is_refused_again_and_again_pauses(
    protocol: str, refusal: type[KafkaError], requests: int
) -> None:
    coordinator = Coordinator(*[refusal.code] * 1_000)
    assert len(lived(coordinator, protocol)) == requests


def test_heartbeat_after_a_lost_answer_says_everything_again() -> None:
    """Otherwise the coordinator does not repeat an assignment that the lost answer had."""
    coordinator = Coordinator(0, 0, NoAnswer("silent"), 0, 0)
    coordinator.interval_ms, coordinator.backoff_ms = 1_000, 100
    sent = [
        (
            request.member_epoch,
            request.rebalance_timeout >= timedelta(0),
            request.subscribed_topic_names,
            request.topic_partitions,
        )
        for request in lived(coordinator, "consumer")[:5]
    ]
    unchanged, everything = (3, False, None, None), (3, True, ("orders",), ())
    assert sent == [(0, *everything[1:]), unchanged, unchanged, everything, unchanged]


@pytest.mark.parametrize("epoch", [-1, -2, -(2**31)])
def test_a_negative_member_epoch_is_not_sent_back(epoch: int) -> None:
    """With -1 the next heartbeat would leave the group, and with -2 the static member would."""
    coordinator = Coordinator(*[0] * 10)
    coordinator.interval_ms, coordinator.member_epochs = 1_000, [3, epoch]
    assert [request.member_epoch for request in lived(coordinator, "consumer")] == [0, 3]


@pytest.mark.parametrize("interval_ms", [0, -1, -(2**31)])
def test_an_interval_that_is_none_is_the_default(interval_ms: int) -> None:
    coordinator = Coordinator(*[0] * 100)
    coordinator.interval_ms = interval_ms
    assert len(lived(coordinator, "consumer")) in (2, 3)  # At 0 s, 5 s and perhaps 10 s.


def test_a_negative_generation_is_not_used() -> None:
    requests = lived(Coordinator(0), "classic")
    assert [type(request).__name__ for request in requests] == ["JoinGroupRequest"]
