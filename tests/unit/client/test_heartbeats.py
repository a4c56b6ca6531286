"""The heartbeat loop: it finds its coordinator again, and stops for what can't be helped."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.share_group_heartbeat.v1.response import ShareGroupHeartbeatResponse

from sharegroup.backoff import Backoff
from sharegroup.client.metrics.metric_types import Metrics
from sharegroup.client.share.member.membership import Heartbeats, Membership
from sharegroup.errors import (
    GroupMaxSizeReached,
    InvalidRequest,
    KafkaError,
    NetworkException,
    NoAnswer,
    TopicAuthorizationFailed,
    UnsupportedVersion,
)
from sharegroup.ids import GroupId, MemberId
from sharegroup.testing import virtual_time


class ScriptedCoordinator:
    """Answers heartbeats by the script, then ends the test by cancelling its loop."""

    principal = None

    def __init__(self, *answers: int | KafkaError) -> None:
        self.answers = list(answers)
        self.requests: list[Any] = []
        self.look_ups = 0
        self.doubted: list[int] = []
        self.known = False
        self.played = asyncio.Event()
        self.answering = asyncio.Event()
        self.answering.set()
        self.metrics = Metrics("test")
        self.member_epochs: list[int] = []
        """The member epochs of the next answers without error; after them it is always 3."""

    async def coordinator(self, group_id: str) -> int:
        self.look_ups += not self.known
        self.known = True
        return 1

    def known_coordinator(self, group_id: str) -> int | None:
        return 1 if self.known else None

    def doubt(self, node_id: int) -> None:
        self.doubted.append(node_id)

    def forget_coordinator(self, group_id: str) -> None:
        self.known = False

    async def connection(self, node_id: int) -> "ScriptedCoordinator":
        return self

    def backoff(self) -> Backoff:
        return Backoff(100, 1_000, chance=lambda: 0.5)

    async def request(self, message: Any) -> ShareGroupHeartbeatResponse:
        self.requests.append(message)
        await self.answering.wait()
        answer = self.answers.pop(0)
        if not self.answers:
            self.played.set()
        if isinstance(answer, KafkaError):
            raise answer
        values: dict[str, Any] = {
            "throttle_time": timedelta(0),
            "error_code": answer,
            "error_message": "says the broker",
            "member_epoch": self.member_epochs.pop(0) if self.member_epochs else 3,
            "heartbeat_interval": timedelta(seconds=5),
        }
        return ShareGroupHeartbeatResponse(**values)

    @property
    def epochs(self) -> list[int]:
        return [request.member_epoch for request in self.requests]


Scenario = Callable[[ScriptedCoordinator, Heartbeats], Coroutine[Any, Any, None]]


def play(*answers: int | KafkaError, then: Scenario) -> ScriptedCoordinator:
    async def run() -> ScriptedCoordinator:
        coordinator = ScriptedCoordinator(*answers)
        membership = Membership(GroupId("g"), MemberId("m"), None)
        membership.subscribe(("t",))
        beats = Heartbeats(coordinator, membership, changed=lambda: None)  # type: ignore[arg-type]
        running = asyncio.create_task(beats.run())
        await coordinator.played.wait()
        await asyncio.sleep(0)
        await then(coordinator, beats)
        running.cancel()
        await asyncio.wait([running])
        return coordinator

    return virtual_time.run(run())


async def nothing(coordinator: ScriptedCoordinator, beats: Heartbeats) -> None:
    assert beats.failure is None


def test_a_member_joins_and_stays_at_its_interval() -> None:
    async def scenario(coordinator: ScriptedCoordinator, beats: Heartbeats) -> None:
        assert asyncio.get_running_loop().time() == 10.0
        assert coordinator.epochs == [0, 3, 3]

    play(0, 0, 0, then=scenario)


def test_moved_coordinator_is_looked_up_again() -> None:
    coordinator = play(16, 15, 0, then=nothing)
    assert coordinator.look_ups == 3


def test_loading_coordinator_is_retried_without_a_look_up() -> None:
    coordinator = play(14, 0, then=nothing)
    assert coordinator.look_ups == 1


def test_a_lost_connection_is_no_failure() -> None:
    coordinator = play(0, NetworkException("cut"), 0, then=nothing)
    assert coordinator.epochs == [0, 3, 3]
    # Nobody knows whether the second arrived, so the third says everything again.
    told = [request.subscribed_topic_names for request in coordinator.requests]
    assert told == [("t",), None, ("t",)]


def test_after_an_error_the_coordinator_has_to_repeat_the_assignment() -> None:
    coordinator = play(0, 15, 0, 0, then=nothing)
    # This coordinator leaves it out, as Kafka 4.0 does, so the member joins again.
    assert coordinator.epochs == [0, 3, 3, 0]
    told = [request.subscribed_topic_names for request in coordinator.requests]
    assert told == [("t",), None, ("t",), ("t",)]


def test_coordinator_that_does_not_answer_is_in_doubt() -> None:
    assert play(0, NetworkException("cut"), NoAnswer("silent"), 0, then=nothing).doubted == [1]


def test_a_fenced_member_joins_again_at_once() -> None:
    async def scenario(coordinator: ScriptedCoordinator, beats: Heartbeats) -> None:
        assert coordinator.epochs == [0, 3, 0]
        assert asyncio.get_running_loop().time() < 6

    play(0, 110, 0, then=scenario)


@pytest.mark.parametrize("epoch", [-1, -2, -(2**31)])
def test_a_negative_member_epoch_is_an_error_that_passes(epoch: int) -> None:
    """The next heartbeat would leave the group with it."""

    async def run() -> None:
        coordinator = ScriptedCoordinator(0, 0, 0)
        coordinator.member_epochs = [3, epoch]
        membership = Membership(GroupId("g"), MemberId("m"), None)
        membership.subscribe(("t",))
        beats = Heartbeats(coordinator, membership, changed=lambda: None)  # type: ignore[arg-type]
        running = asyncio.create_task(beats.run())
        await asyncio.sleep(5.05)  # Of virtual time: before the third heartbeat.
        assert f"found {epoch}" in str(beats.last_error)
        await coordinator.played.wait()
        assert coordinator.epochs == [0, 3, 3]
        await asyncio.sleep(0)
        assert (beats.failure, beats.last_error) == (None, None)
        running.cancel()
        await asyncio.wait([running])

    virtual_time.run(run())


def test_a_full_group_stops_the_member() -> None:
    async def scenario(coordinator: ScriptedCoordinator, beats: Heartbeats) -> None:
        assert isinstance(beats.failure, GroupMaxSizeReached)
        assert "group 'g' member 'm': says the broker" in str(beats.failure)

    play(81, then=scenario)


def test_a_broker_without_share_groups_stops_the_member() -> None:
    async def scenario(coordinator: ScriptedCoordinator, beats: Heartbeats) -> None:
        assert isinstance(beats.failure, UnsupportedVersion)

    play(UnsupportedVersion("not served"), then=scenario)


def test_a_topic_that_may_not_be_read_is_reported_and_the_member_stays() -> None:
    async def scenario(coordinator: ScriptedCoordinator, beats: Heartbeats) -> None:
        assert isinstance(beats.report, TopicAuthorizationFailed)
        assert "needs READ on topic 't'" in str(beats.report)
        assert beats.failure is None

    play(0, 29, then=scenario)


def test_leaving_sends_epoch_minus_one_once() -> None:
    async def scenario(coordinator: ScriptedCoordinator, beats: Heartbeats) -> None:
        coordinator.answers = [0]
        await beats.leave()
        assert coordinator.epochs[-1] == -1
        await beats.leave()  # It is not a member any more, so nothing is sent.
        assert coordinator.epochs == [0, -1]

    play(0, then=scenario)


def test_member_that_left_joins_again_only_after_wake() -> None:
    async def scenario(coordinator: ScriptedCoordinator, beats: Heartbeats) -> None:
        coordinator.answers = [0, 0]
        await beats.leave()
        await asyncio.sleep(60)  # Of virtual time.
        assert coordinator.epochs == [0, -1]
        beats.wake()
        await asyncio.sleep(1)
        assert coordinator.epochs == [0, -1, 0]

    play(0, then=scenario)


def test_leaving_waits_for_the_join_that_is_under_way() -> None:
    """Otherwise the join would arrive, and its member would be left behind."""

    async def run() -> None:
        coordinator = ScriptedCoordinator(0, 0)
        membership = Membership(GroupId("g"), MemberId("m"), None)
        membership.subscribe(("t",))
        beats = Heartbeats(coordinator, membership, changed=lambda: None)  # type: ignore[arg-type]
        coordinator.answering.clear()
        running = asyncio.create_task(beats.run())
        leaving = asyncio.create_task(beats.leave())
        await asyncio.sleep(1)
        assert coordinator.epochs == [0]
        coordinator.answering.set()
        await leaving
        assert coordinator.epochs == [0, -1]
        running.cancel()
        await asyncio.wait([running])

    virtual_time.run(run())


class SlowToConnect(ScriptedCoordinator):
    """Refuses a join without topics, as a broker does; a connection waits for an event."""

    def __init__(self, *answers: int | KafkaError) -> None:
        super().__init__(*answers)
        self.connected = asyncio.Event()

    async def connection(self, node_id: int) -> ScriptedCoordinator:
        await self.connected.wait()
        return self

    async def request(self, message: Any) -> ShareGroupHeartbeatResponse:
        if message.member_epoch == 0 and not message.subscribed_topic_names:
            self.answers.insert(0, InvalidRequest.code)
        return await super().request(message)


def unsubscribe(membership: Membership) -> None:
    membership.subscribe(())


def become_quiet(membership: Membership) -> None:
    membership.quiet = True


def end_polls(membership: Membership) -> None:
    membership.active = False


@pytest.mark.parametrize("change", [unsubscribe, become_quiet, end_polls])
def test_member_that_leaves_before_its_join_is_sent_does_not_join(
    change: Callable[[Membership], None],
) -> None:
    """A join without topics is refused for good: the member could never join again."""

    async def run() -> None:
        coordinator = SlowToConnect(0)
        membership = Membership(GroupId("g"), MemberId("m"), None)
        membership.subscribe(("t",))
        beats = Heartbeats(coordinator, membership, changed=lambda: None)  # type: ignore[arg-type]
        running = asyncio.create_task(beats.run())
        await asyncio.sleep(1)
        change(membership)
        leaving = asyncio.create_task(beats.leave())
        await asyncio.sleep(1)
        coordinator.connected.set()
        await leaving
        await asyncio.sleep(60)
        assert (coordinator.requests, beats.failure) == ([], None)
        membership.subscribe(("t",))
        membership.quiet, membership.active = False, True
        beats.wake()
        await asyncio.sleep(1)
        assert (coordinator.epochs, beats.failure) == ([0], None)
        running.cancel()
        await asyncio.wait([running])

    virtual_time.run(run())


def test_a_member_leaves_after_a_join_without_an_answer() -> None:
    """The coordinator may have made it a member, which would keep its partitions for a session."""

    async def scenario(coordinator: ScriptedCoordinator, beats: Heartbeats) -> None:
        coordinator.answers = [25]
        await beats.leave()
        await beats.leave()
        assert coordinator.epochs == [0, -1]

    play(NetworkException("cut"), then=scenario)
    play(NoAnswer("silent"), then=scenario)
    play(15, then=scenario)  # COORDINATOR_NOT_AVAILABLE: applied, perhaps, but not replicated.


def test_a_member_leaves_after_a_join_that_was_cancelled() -> None:
    async def run() -> None:
        coordinator = ScriptedCoordinator(0)
        membership = Membership(GroupId("g"), MemberId("m"), None)
        membership.subscribe(("t",))
        beats = Heartbeats(coordinator, membership, changed=lambda: None)  # type: ignore[arg-type]
        coordinator.answering.clear()
        running = asyncio.create_task(beats.run())
        await asyncio.sleep(1)
        running.cancel()
        await asyncio.wait([running])
        coordinator.answering.set()
        await beats.leave()
        assert coordinator.epochs == [0, -1]

    virtual_time.run(run())


@pytest.mark.parametrize("answers", [(0, 15, 0), (0, 110)], ids=["before Kafka 4.1", "fenced"])
def test_a_member_that_is_to_join_again_leaves(answers: tuple[int, ...]) -> None:
    async def scenario(coordinator: ScriptedCoordinator, beats: Heartbeats) -> None:
        coordinator.answers = [0]
        await beats.leave()
        assert coordinator.epochs == [0, *[3] * (len(answers) - 1), -1]

    play(*answers, then=scenario)


@pytest.mark.parametrize(
    "answers", [(0, 25), (81,), (UnsupportedVersion("not served"),)], ids=["gone", "full", "old"]
)
def test_who_is_no_member_sends_no_leave(answers: tuple[int | KafkaError, ...]) -> None:
    async def scenario(coordinator: ScriptedCoordinator, beats: Heartbeats) -> None:
        sent = len(coordinator.requests)
        await beats.leave()
        assert len(coordinator.requests) == sent

    play(*answers, then=scenario)


def test_a_join_that_was_never_sent_needs_no_leave() -> None:
    class Unfound(ScriptedCoordinator):
        async def coordinator(self, group_id: str) -> int:
            self.look_ups += 1
            raise NetworkException("nobody listens")

    async def run() -> None:
        coordinator = Unfound()
        membership = Membership(GroupId("g"), MemberId("m"), None)
        membership.subscribe(("t",))
        beats = Heartbeats(coordinator, membership, changed=lambda: None)  # type: ignore[arg-type]
        running = asyncio.create_task(beats.run())
        await asyncio.sleep(1)
        running.cancel()
        await asyncio.wait([running])
        look_ups = coordinator.look_ups
        await beats.leave()
        assert (coordinator.look_ups, coordinator.requests) == (look_ups, [])

    virtual_time.run(run())


def test_only_a_long_outage_of_the_coordinator_is_logged_and_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def nothing(coordinator: ScriptedCoordinator, beats: Heartbeats) -> None:
        return

    away = NetworkException("nobody listens")
    short, long = [away] * 4, [away] * 20  # With the pauses between them, 0.7 s and 16 s.
    play(*short, 0, *short, 0, then=nothing)
    assert caplog.messages == []
    play(*long, 0, *long, 0, then=nothing)
    told = "event=heartbeat.failed group=g error=nobody listens action='the heartbeat is retried'"
    assert caplog.messages == [told, told]
