"""Fetches and positions behind a real `Cluster`, with brokers in memory that refuse and move."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from sharegroup.client.consume.consumer_tasks import ConsumerTasks
from sharegroup.client.consume.partition_states import PartitionState, take_records
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import LogTruncation, OffsetAndMetadata, TopicPartition
from sharegroup.client.settings.plain_consumer_config import ConsumerConfig
from sharegroup.errors import (
    NetworkException,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    TopicAuthorizationFailed,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from tests.unit.client.plain_brokers import Brokers, play

WHERE = TopicPartition("orders", 0)
TURNS = 1_000
"""Turns of the event loop in which a client without pauses sends hundreds of requests."""


class Reading:
    """A consumer's tasks, and what they bring."""

    def __init__(self, tasks: ConsumerTasks, changed: asyncio.Event) -> None:
        self.tasks = tasks
        self._changed = changed

    @property
    def state(self) -> PartitionState:
        state = self.tasks.states.get(WHERE)
        assert state is not None
        return state

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._changed.clear()
            if not holds():
                await self._changed.wait()

    async def read(self, wanted: int) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < wanted:
            self._changed.clear()
            records = take_records(self.tasks.states, self.tasks.config, 100)
            found += [record.value for record in records]
            self.tasks.fetcher.wake()
            if not records:
                await self._changed.wait()
        return found

    async def failure(self) -> Exception:
        while True:
            self._changed.clear()
            for error in self.tasks.states.failures():
                return error
            await self._changed.wait()


def run(
    brokers: Brokers, scene: Callable[[Reading], Awaitable[None]], reset: str, **options: bool
) -> None:
    """Run a scene with a consumer that is assigned the topic's first partition."""

    async def scenario(cluster: Cluster) -> None:
        config = ConsumerConfig(
            auto_offset_reset=reset, retry_backoff_ms=1, retry_backoff_max_ms=5, **options
        )
        changed = asyncio.Event()
        tasks = ConsumerTasks(config, changed.set, cluster=cluster)
        await tasks.start()
        tasks.assign([WHERE])
        try:
            await scene(Reading(tasks, changed))
        finally:
            await tasks.stop()

    play(brokers, scenario)


def test_records_go_on_at_a_new_leader() -> None:
    brokers = Brokers()
    log = brokers.logs[0]
    log.add(0, b"a", b"b")

    async def scene(reading: Reading) -> None:
        assert await reading.read(2) == [b"a", b"b"]
        log.leader, log.epoch = 2, 5
        log.add(2, b"c")
        assert await reading.read(1) == [b"c"]
        assert (reading.state.position, reading.state.epoch) == (3, 5)
        nodes = [node for node, _ in brokers.asked("Fetch")]
        assert (nodes[0], nodes[-1]) == (1, 2)

    run(brokers, scene, "earliest")


@pytest.mark.parametrize(
    "refusal",
    [NetworkException("cut"), NotLeaderOrFollower, UnknownTopicOrPartition],
    ids=["connection", "leader", "topic"],
)
def test_errors_that_may_pass_are_retried(refusal: NetworkException) -> None:
    brokers = Brokers()
    brokers.logs[0].add(0, b"a")
    brokers.refuse("Fetch", refusal, refusal)

    async def scene(reading: Reading) -> None:
        assert await reading.read(1) == [b"a"]

    run(brokers, scene, "earliest")


@pytest.mark.parametrize("allowed", [True, False])
def test_broker_is_asked_to_create_topics_if_allowed(allowed: bool) -> None:
    brokers = Brokers()
    brokers.logs[0].add(0, b"a")

    async def scene(reading: Reading) -> None:
        assert await reading.read(1) == [b"a"]
        asked = [
            request.allow_auto_topic_creation
            for _, request in brokers.asked("Metadata")
            if request.topics
        ]
        assert asked
        assert any(asked) == allowed

    run(brokers, scene, "earliest", allow_auto_create_topics=allowed)


def test_fetch_that_failed_as_a_whole_is_followed_by_one_that_names_all_partitions() -> None:
    """The broker may not have noted what the failed request named in its session."""
    brokers = Brokers()
    brokers.session_id = 7
    brokers.failed_fetches.extend((0, UnknownServerError.code))
    brokers.logs[0].add(0, b"a")
    brokers.logs[0].add(1, b"b")
    brokers.logs[0].lie = brokers.logs[0].batches[0]

    async def scene(reading: Reading) -> None:
        assert await reading.read(1) == [b"a"]
        brokers.logs[0].lie = None
        await reading.failure()
        reading.tasks.positions_moved()
        assert await reading.read(1) == [b"b"]
        sessions = [
            (request.session_id, request.session_epoch) for _, request in brokers.asked("Fetch")
        ]
        assert sessions[:3] == [(0, 0), (7, 1), (7, 0)]

    run(brokers, scene, "earliest")


def test_broker_that_answers_empty_fetches_at_once_is_asked_with_pauses() -> None:
    brokers = Brokers()
    brokers.logs[0].add(0, b"a")

    async def scene(reading: Reading) -> None:
        assert await reading.read(1) == [b"a"]
        before = len(brokers.asked("Fetch"))
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert len(brokers.asked("Fetch")) - before < TURNS // 20
        brokers.logs[0].add(1, b"b")
        assert await reading.read(1) == [b"b"]

    run(brokers, scene, "earliest")


def test_missing_right_is_the_applications_to_know() -> None:
    brokers = Brokers()
    brokers.refuse("Fetch", TopicAuthorizationFailed)
    brokers.logs[0].add(0, b"a")

    async def scene(reading: Reading) -> None:
        error = await reading.failure()
        assert isinstance(error, TopicAuthorizationFailed)
        assert "User:ann needs READ on topic 'orders'" in str(error)
        assert await reading.read(1) == [b"a"]

    run(brokers, scene, "earliest")


@pytest.mark.parametrize(("reset", "position"), [("earliest", 5), ("latest", 7)])
def test_deleted_records_reset_the_position(reset: str, position: int) -> None:
    brokers = Brokers()
    log = brokers.logs[0]
    log.add(5, b"f", b"g")
    log.start = 5

    async def scene(reading: Reading) -> None:
        reading.state.seek(2)
        reading.tasks.positions_moved()
        await reading.until(lambda: reading.state.position == position)

    run(brokers, scene, reset)


def test_deleted_records_are_an_error_without_a_policy() -> None:
    brokers = Brokers()
    brokers.logs[0].add(5, b"f")
    brokers.logs[0].start = 5

    async def scene(reading: Reading) -> None:
        reading.state.seek(2)
        reading.tasks.positions_moved()
        error = await reading.failure()
        assert isinstance(error, OffsetOutOfRange)
        assert reading.state.position == 2

    run(brokers, scene, "none")


def test_truncated_log_sets_the_position_back_to_where_it_diverges(
    caplog: pytest.LogCaptureFixture,
) -> None:
    brokers = Brokers()
    log = brokers.logs[0]
    log.add(0, b"a", b"b", b"c")

    async def scene(reading: Reading) -> None:
        assert await reading.read(3) == [b"a", b"b", b"c"]
        log.batches.clear()
        log.add(0, b"a")
        log.epoch, log.leader = 6, 2
        log.add(1, b"B")
        assert await reading.read(1) == [b"B"]
        assert (reading.state.position, reading.state.epoch) == (2, 6)
        assert any("event=position.truncated" in text for text in caplog.messages)

    run(brokers, scene, "earliest")


def test_truncated_log_is_an_error_without_a_policy() -> None:
    brokers = Brokers()
    log = brokers.logs[0]
    log.add(0, b"a", b"b")

    async def scene(reading: Reading) -> None:
        reading.state.seek(0)
        reading.tasks.positions_moved()
        assert await reading.read(2) == [b"a", b"b"]
        log.batches.clear()
        log.add(0, b"a")
        log.epoch = 6
        log.add(1, b"B")
        error = await reading.failure()
        assert isinstance(error, LogTruncation)
        assert "differs from offset 1 on" in str(error)
        assert (error.partition, error.diverging) == (WHERE, OffsetAndMetadata(1, leader_epoch=4))
        assert reading.state.position == 2
        before = len(brokers.asked("Fetch"))
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert len(brokers.asked("Fetch")) - before < TURNS // 20, "it does not ask all the time"
        reading.state.seek(error.diverging.offset)
        assert await reading.read(1) == [b"B"]

    run(brokers, scene, "none")


def test_leader_without_the_epoch_of_the_position_goes_on_from_there() -> None:
    """As in Kafka's consumer: a position below the end of the last common epoch is valid."""
    brokers = Brokers()
    log = brokers.logs[0]
    log.add(0, b"a")
    log.epoch = 5
    log.add(1, b"b")

    async def scene(reading: Reading) -> None:
        reading.state.seek(0)
        reading.tasks.positions_moved()
        assert await reading.read(2) == [b"a", b"b"]
        log.batches.clear()
        log.epoch = 4
        log.add(0, b"a", b"B", b"C")
        log.epoch, log.leader = 7, 2
        log.add(3, b"D")
        assert await reading.read(2) == [b"C", b"D"]

    run(brokers, scene, "none")


def test_end_of_the_log_that_was_looked_up_is_checked_after_a_truncation() -> None:
    brokers = Brokers()
    log = brokers.logs[0]
    log.add(0, b"a", b"b")

    async def scene(reading: Reading) -> None:
        await reading.until(lambda: reading.state.position == 2)
        log.batches.clear()
        log.add(0, b"a")
        log.epoch, log.leader = 6, 2
        log.add(1, b"B", b"C")
        assert await reading.read(2) == [b"B", b"C"]

    run(brokers, scene, "latest")


def test_follower_that_lags_behind_is_no_truncation() -> None:
    """A follower that has not taken over the last leader epoch yet: the leader is asked."""
    brokers = Brokers()
    log = brokers.logs[0]
    log.add(0, b"a")
    log.epoch = 5
    log.add(1, b"b")

    async def scene(reading: Reading) -> None:
        assert await reading.read(2) == [b"a", b"b"]
        log.follower, log.follower_batches = 2, 1
        await reading.until(lambda: brokers.asked("Fetch")[-1][0] == 2)
        log.follower = None
        log.add(2, b"c")
        assert await reading.read(1) == [b"c"]

    run(brokers, scene, "earliest")


def test_truncation_of_records_that_nobody_has_got_is_no_loss() -> None:
    brokers = Brokers()
    log = brokers.logs[0]
    log.add(0, b"a")
    log.add(1, b"b")

    async def scene(reading: Reading) -> None:
        await reading.until(lambda: reading.state.fetch_offset == 2)
        log.batches.pop()
        log.epoch = 6
        log.add(1, b"B")
        await reading.until(lambda: reading.state.fetch_epoch == 6)
        assert await reading.read(2) == [b"a", b"B"]

    run(brokers, scene, "earliest")


def test_follower_in_the_rack_is_read_and_the_leader_if_it_fails() -> None:
    brokers = Brokers()
    log = brokers.logs[0]
    log.follower = 2
    log.add(0, b"a")

    async def scene(reading: Reading) -> None:
        assert await reading.read(1) == [b"a"]
        assert [node for node, _ in brokers.asked("Fetch")][:2] == [1, 2]
        log.follower = None  # It is a follower still, but answers that it does not lead.
        log.add(1, b"b")
        assert await reading.read(1) == [b"b"]
        assert [node for node, _ in brokers.asked("Fetch")][-1] == 1

    run(brokers, scene, "earliest")
