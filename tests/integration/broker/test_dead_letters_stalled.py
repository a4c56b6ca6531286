"""A dead-letter queue that cannot be written: nothing is lost, nobody waits, and it says so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from sharegroup.broker.handlers.share import share_requests
from sharegroup.broker.load.record_jobs import RecordJobs
from sharegroup.broker.share import dead_letters
from sharegroup.core.delivery.delivery import Delta, RecordState, StateBatch
from sharegroup.core.security.principal import Principal
from sharegroup.errors import KafkaStorageError
from sharegroup.ids import GroupId, TopicName
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.storage.sync.tickets import Ticket
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.wire.batches.record_walk import Walk
from tests.faults.in_process import Broker, ShareMember
from tests.integration.broker.dead_letter_scene import (
    BROKER_KIND,
    GROUP_KIND,
    TOPIC_KIND,
    Scene,
    played,
)

T = TypeVar("T")

REJECT = AcknowledgeType.REJECT


async def rejects(scene: Scene, count: int = 1) -> None:
    """Some records are rejected, and the broker found that their letters cannot be written."""
    await scene.produce_values(count)
    await scene.take()
    await scene.reject(*range(count))
    await scene.until(lambda: scene.dead_letters.stalled_count == 1, "stalled")


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged of dead letters; a busy machine makes the broker log other things."""
    return [
        record.getMessage() for record in caplog.records if record.name == dead_letters.__name__
    ]


async def turns() -> None:
    """Let the broker do what it can do at once."""
    for _ in range(20):
        await asyncio.sleep(0)


async def goes_on(scene: Scene, count: int = 1) -> None:
    """A second later the letters are written and their records settled."""
    scene.broker.clock.advance(1)
    await scene.settles_up_to(count)
    assert scene.origins() == list(range(count))
    await scene.until(lambda: scene.dead_letters.is_idle, "nothing is left to do")
    assert scene.dead_letters.stalled_count == 0


async def no_topic(scene: Scene) -> None:
    await scene.set_up(auto_create=False)


async def topic_takes_none(scene: Scene) -> None:
    await scene.set_up()
    await scene.broker.create_topic("dlq.g", 1)


async def other_prefix(scene: Scene) -> None:
    await scene.alter(BROKER_KIND, "", errors_deadletterqueue_topic_name_prefix="letters.")
    await scene.set_up()


async def own_topic(scene: Scene) -> None:
    await scene.set_up()
    await scene.alter(BROKER_KIND, "", errors_deadletterqueue_topic_name_prefix="orders")
    await scene.alter(TOPIC_KIND, "orders", errors_deadletterqueue_group_enable="true")
    await scene.alter(GROUP_KIND, "g", errors_deadletterqueue_topic_name="orders")


async def compacted_topic(scene: Scene) -> None:
    await scene.set_up()
    await scene.make_queue(cleanup_policy="compact")


async def make_topic(scene: Scene) -> None:
    await scene.make_queue()


async def enable_topic(scene: Scene) -> None:
    await scene.alter(TOPIC_KIND, "dlq.g", errors_deadletterqueue_group_enable="true")


async def compact_no_more(scene: Scene) -> None:
    await scene.alter(TOPIC_KIND, "dlq.g", cleanup_policy="")


async def mend_prefix(scene: Scene) -> None:
    await scene.alter(BROKER_KIND, "", errors_deadletterqueue_topic_name_prefix="dlq.")


async def name_another(scene: Scene) -> None:
    await mend_prefix(scene)
    await scene.alter(GROUP_KIND, "g", errors_deadletterqueue_topic_name="dlq.g")


Change = Callable[[Scene], Awaitable[None]]
REFUSALS = [
    (no_topic, make_topic, "its dead-letter topic 'dlq.g' does not exist; create it with errors"),
    (
        topic_takes_none,
        enable_topic,
        "topic 'dlq.g' does not accept dead letters; set errors.deadletter",
    ),
    (other_prefix, mend_prefix, "its dead-letter topic, 'dlq.g', must begin with 'letters.'"),
    (compacted_topic, compact_no_more, "'dlq.g' cannot accept dead letters while it is compacted"),
    (own_topic, name_another, "'orders' cannot accept the dead letters of its own records"),
]


@pytest.mark.parametrize(("refused", "mended", "message"), REFUSALS)
def test_record_waits_for_its_letter_until_the_configuration_is_corrected(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    refused: Change,
    mended: Change,
    message: str,
) -> None:
    async def scenario(scene: Scene) -> None:
        await refused(scene)
        await rejects(scene)
        for _ in range(5):
            await scene.seconds(1)
        assert await scene.start_offset() == 0
        assert scene.counts().failure_count == 6
        await mended(scene)
        await goes_on(scene)

    with caplog.at_level(logging.INFO, logger="sharegroup.broker.share.dead_letters"):
        played(scenario, tmp_path)
    stalled, going_on = said(caplog)
    assert stalled.startswith("event=dead_letters_stalled group='g' error=")
    assert message in stalled
    assert going_on == "event=dead_letters_go_on group='g'"


def test_number_of_groups_with_counters_is_limited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, logger=dead_letters.__name__)  # Each group would be logged.

    async def scenario(scene: Scene) -> None:
        await scene.set_up(auto_create=False)
        await rejects(scene)
        [key] = scene.dead_letters._stalls
        new = [GroupId(f"new-{number}") for number in range(dead_letters.GROUPS_COUNTED_MAX)]
        for group_id in new:
            scene.dead_letters._stall(key._replace(group_id=group_id), KafkaStorageError("full"))
        assert list(scene.dead_letters.counts) == new

    played(scenario, tmp_path)


def test_reasons_of_one_stall_are_logged_up_to_a_number(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up(auto_create=False)
        await rejects(scene)
        for number in range(2 * dead_letters.REASONS_MAX):
            await scene.alter(GROUP_KIND, "g", errors_deadletterqueue_topic_name=f"dlq.{number}")
            await scene.seconds(1)

    with caplog.at_level(logging.WARNING, logger="sharegroup.broker.share.dead_letters"):
        played(scenario, tmp_path)
    assert len(said(caplog)) == dead_letters.REASONS_MAX


def test_waiting_records_are_archived_when_the_topic_name_is_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up(auto_create=False)
        await rejects(scene, 3)
        await scene.alter(GROUP_KIND, "g", errors_deadletterqueue_topic_name="")
        scene.broker.clock.advance(1)
        await scene.settles_up_to(3)
        assert scene.letters() == []
        assert scene.counts().given_up_count == 3

    with caplog.at_level(logging.WARNING, logger="sharegroup.broker.share.dead_letters"):
        played(scenario, tmp_path)
    assert "event=dead_letters_given_up group='g' topic='orders' partition=0 records=3" in (
        caplog.text
    )


def test_without_a_topic_name_records_are_archived_at_once(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up(errors_deadletterqueue_topic_name="")
        await scene.produce_values(1)
        await scene.take()
        await scene.reject(0)
        assert await scene.start_offset() == 1
        assert scene.dead_letters.counts == {}

    played(scenario, tmp_path)


def test_broker_without_dead_letter_manager_archives_immediately(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up()
        await scene.produce_values(1)
        await scene.take()
        await scene.reject(0)
        assert await scene.start_offset() == 1
        assert scene.dead_letters.counts == {}

    nobody = "org.apache.kafka.server.share.dlq.NoOpShareGroupDLQManager"
    played(scenario, tmp_path, group_share_dlq_manager_class_name=nobody)


def test_letter_is_written_after_the_acknowledgement_is_durable(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up(auto_create=False)
        await rejects(scene)
        await scene.make_queue()
        live = await scene.live()
        live.last_write = Ticket(0, 0)
        scene.broker.clock.advance(1)
        await turns()
        assert scene.origins() == []
        live.last_write.settle()
        await scene.settles_up_to(1)
        assert scene.origins() == [0]

    played(scenario, tmp_path)


def test_letter_of_a_reinitialized_state_is_not_written(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up(auto_create=False)
        await rejects(scene)
        await scene.make_queue()
        live = await scene.live()
        pending = live.last_write = Ticket(0, 0)
        scene.broker.clock.advance(1)
        await turns()
        parts = scene.broker.running.parts
        parts.share_coordinator.initialize(
            live.key, state_epoch=live.state_epoch + 1, start_offset=0
        )
        parts.share_partitions.drop_group(live.key.group_id)
        pending.settle()
        await scene.until(lambda: scene.dead_letters.is_idle, "done")
        assert scene.origins() == []
        assert await scene.take() == [(0, 1)]

    played(scenario, tmp_path)


def test_another_rejected_record_does_not_advance_the_retry(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up(auto_create=False)
        await scene.produce_values(2)
        await scene.take()
        await scene.reject(0)
        await scene.until(lambda: scene.dead_letters.stalled_count == 1, "stalled")
        await scene.reject(1)
        await turns()
        assert scene.counts().failure_count == 1
        await scene.make_queue()
        await goes_on(scene, 2)

    played(scenario, tmp_path)


def test_letters_wait_while_the_topic_accepts_only_smaller_batches(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up(auto_create=False)
        await scene.make_queue(max_message_bytes="100")
        await rejects(scene)
        await scene.alter(TOPIC_KIND, "dlq.g", max_message_bytes="10000")
        await goes_on(scene)

    played(scenario, tmp_path)


class MistakenJobs(RecordJobs):
    """Record jobs that fail as no code of ours should."""

    async def complete(self, walk: Walk[T], user: Principal | None) -> T:
        raise ZeroDivisionError("nobody thought of that")


def test_unexpected_exception_stops_neither_the_log_nor_other_letters(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up()
        jobs = scene.dead_letters.jobs
        scene.dead_letters.jobs = MistakenJobs(scene.broker.running.parts.slices, 0)
        await rejects(scene)
        scene.dead_letters.jobs = jobs
        await goes_on(scene)

    played(scenario, tmp_path)
    assert "event=dead_letters_stalled group='g' error='nobody thought of that'" in caplog.text
    assert "Traceback" in caplog.text


@pytest.mark.parametrize("has_queue", [True, False])
def test_letters_of_a_topic_that_is_deleted_are_forgotten(tmp_path: Path, has_queue: bool) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up(auto_create=False)
        await rejects(scene)
        if has_queue:
            await scene.make_queue()
        topics = scene.broker.running.parts.topics
        await topics.delete(topics.catalog.topic(TopicName("orders")))
        await scene.seconds(2)
        assert scene.dead_letters.stalled_count == scene.dead_letters.pending_count == 0
        assert scene.origins() == []

    played(scenario, tmp_path)


def test_records_that_wait_in_a_state_that_was_written_from_outside_have_their_letters(
    tmp_path: Path,
) -> None:
    """As the request WriteShareGroupState does it."""

    async def scenario(scene: Scene) -> None:
        await scene.set_up()
        await scene.produce_values(2)
        live = await scene.live()
        waiting = Delta(0, 0, (StateBatch(0, 2, RecordState.ARCHIVING, 1),))
        parts = scene.broker.running.parts
        parts.share_coordinator.write(live.key, live.state_epoch, waiting)
        parts.share_partitions.drop_group(live.key.group_id)
        assert await scene.take() == []
        await scene.settles_up_to(2)
        assert scene.origins() == [0, 1]

    played(scenario, tmp_path)


def test_stop_waits_for_the_letter_in_hand(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up(auto_create=False)
        await rejects(scene)
        await scene.make_queue()
        live = await scene.live()
        pending = live.last_write = Ticket(0, 0)
        scene.broker.clock.advance(1)
        await turns()
        stopping = asyncio.ensure_future(scene.dead_letters.stop())
        await turns()
        assert not stopping.done()
        pending.settle()
        await stopping
        assert scene.origins() == [0]
        await scene.settles_up_to(1)

    played(scenario, tmp_path)


def test_broker_stopped_during_a_letter_write_writes_no_second_letter(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        scene = await Scene.start(None, str(tmp_path))
        await scene.set_up(auto_create=False)
        await rejects(scene)
        await scene.make_queue()
        _, log = scene.broker.running.parts.topics.named(TopicName("dlq.g"), 0)
        stopping: list[asyncio.Task[None]] = []
        log.subscribe(lambda: stopping.append(asyncio.ensure_future(scene.broker.stop())))
        scene.broker.clock.advance(1)
        await scene.until(lambda: bool(stopping), "the letter is durable")
        await stopping[0]

        scene = await Scene.start(None, str(tmp_path))
        await scene.until(lambda: scene.dead_letters.is_idle, "started")
        await scene.settles_up_to(1)
        assert scene.origins() == [0]
        await scene.broker.stop()

    asyncio.run(main())


def test_dead_letters_need_share_version_2(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up()
        await scene.produce_values(2)
        await scene.take()
        await scene.share_version(1)
        await scene.reject(0)
        assert await scene.start_offset() == 1
        await scene.share_version(2)
        await scene.reject(1)
        await scene.settles_up_to(2)
        assert scene.origins() == [1]

    played(scenario, tmp_path)


def test_waiting_letters_are_written_after_a_downgrade_to_share_version_1(
    tmp_path: Path,
) -> None:
    """As in Kafka, which checks only the name of the topic."""

    async def scenario(scene: Scene) -> None:
        await scene.set_up(auto_create=False)
        await rejects(scene)
        await scene.share_version(1)
        await scene.make_queue()
        await goes_on(scene)

    played(scenario, tmp_path)


def test_records_waiting_for_letters_do_not_count_as_in_flight(
    tmp_path: Path,
) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up(auto_create=False, share_partition_max_record_locks="100")
        for first in range(0, 500, 100):
            assert await scene.produce_values(100) == first
            assert len(await scene.take()) == 100
            await scene.reject(*range(first, first + 100))
        assert await scene.start_offset() == 0
        assert (await scene.live()).state.snapshot().archiving_count == 500
        await scene.make_queue()
        await goes_on(scene, 500)

    played(scenario, tmp_path)


def test_partition_full_of_waiting_records_continues_when_letters_are_written(
    tmp_path: Path,
) -> None:
    """Every other record is rejected: each is a separate run, and 100 runs are the limit."""

    async def scenario(scene: Scene) -> None:
        await scene.set_up(auto_create=False)
        await scene.produce_values(100)
        assert len(await scene.take()) == 100
        await scene.settle(*((n, AcknowledgeType.ACCEPT if n % 2 else REJECT) for n in range(100)))
        await scene.produce_values(1)
        assert await scene.take() == []
        await scene.make_queue()
        scene.broker.clock.advance(1)
        await scene.settles_up_to(100)
        assert await scene.take() == [(100, 1)]
        assert scene.origins() == list(range(0, 100, 2))

    played(scenario, tmp_path, sharegroup_share_partition_runs_max="100")


def test_waiting_letters_of_one_group_do_not_delay_another(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up(auto_create=False)
        await rejects(scene)
        other = ShareMember("h", "member-2", "orders", 1, connection_id=2)
        await scene.alter(
            GROUP_KIND,
            "h",
            errors_deadletterqueue_topic_name="dlq.h",
            share_auto_offset_reset="earliest",
        )
        await scene.make_queue("dlq.h")
        assert await other.heartbeat(scene.broker) == 0
        await other.fetch(scene.broker, records_max=10)
        assert await other.acknowledge(scene.broker, {0: [(0, REJECT)]}) == {0: 0}
        await scene.until(lambda: len(scene.letters("dlq.h")) == 1, "a letter of the other group")
        assert scene.dead_letters.stalled_count == 1

    played(scenario, tmp_path)


def test_topic_deleted_midway_is_created_again(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up()
        await scene.produce_values(20)
        await scene.take()
        await scene.reject(*range(10))
        await scene.settles_up_to(10)
        topics = scene.broker.running.parts.topics
        deleting = asyncio.ensure_future(topics.delete(topics.catalog.topic(TopicName("dlq.g"))))
        await scene.reject(*range(10, 20))
        await deleting
        await scene.seconds(2)
        await scene.settles_up_to(20)

    played(scenario, tmp_path)


def test_letters_of_deleted_records_are_dropped_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up(auto_create=False)
        await rejects(scene, 3)
        live = await scene.live()
        await live.log.delete_before(2)
        await scene.make_queue()
        scene.broker.clock.advance(1)
        await scene.settles_up_to(3)
        assert scene.origins() == [2]

    played(scenario, tmp_path)
    assert "event=dead_letters_lost group='g' topic='orders' partition=0 records=2" in caplog.text


def test_letters_are_written_without_members_and_nothing_stays_loaded(
    tmp_path: Path,
) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up(auto_create=False)
        await rejects(scene)
        key = await scene.key()
        parts = scene.broker.running.parts
        for closed in parts.share_sessions.release_connection("1"):
            share_requests.release(parts, closed)
        assert parts.share_partitions.loaded(key) is None
        await scene.make_queue()
        await goes_on(scene)
        assert parts.share_partitions.loaded(key) is None

    played(scenario, tmp_path)


def test_last_member_leaving_during_a_letter_write_causes_no_second_letter(
    tmp_path: Path,
) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up(auto_create=False)
        await rejects(scene)
        await scene.make_queue()
        parts, key = scene.broker.running.parts, await scene.key()
        _, log = parts.topics.named(TopicName("dlq.g"), 0)
        scene.broker.clock.advance(1)
        log.subscribe(lambda: parts.share_partitions.unload_group(key.group_id))
        await scene.settles_up_to(1)
        assert scene.origins() == [0]

    played(scenario, tmp_path)


def test_letter_written_during_an_offset_reset_settles_no_record(
    tmp_path: Path,
) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up(auto_create=False)
        await rejects(scene)
        await scene.make_queue()
        parts, key = scene.broker.running.parts, await scene.key()
        _, log = parts.topics.named(TopicName("dlq.g"), 0)
        state_epoch = (await scene.live()).state_epoch

        def reset() -> None:
            parts.share_coordinator.initialize(key, state_epoch=state_epoch + 1, start_offset=0)
            parts.share_partitions.drop_group(key.group_id)

        log.subscribe(reset)
        scene.broker.clock.advance(1)
        await scene.until(lambda: scene.dead_letters.is_idle, "done")
        assert scene.origins() == [0]
        assert await scene.start_offset() == 0
        assert await scene.take() == [(0, 1)]

    played(scenario, tmp_path)


def on_disk(scenario: Callable[[Scene, PowerLossDisk], Awaitable[None]]) -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        scene = await Scene.start(disk)
        try:
            await scenario(scene, disk)
        finally:
            await scene.broker.stop()

    asyncio.run(main())


def test_full_disk_is_tried_again_less_and_less_often_and_loses_nothing() -> None:
    async def scenario(scene: Scene, disk: PowerLossDisk) -> None:
        await scene.set_up(auto_create=False)
        await rejects(scene)
        await scene.make_queue()
        disk.fill_up()
        tried_at, failures = [], scene.counts().failure_count
        for second in range(100):
            await scene.seconds(1)
            if scene.counts().failure_count > failures:
                tried_at.append(second)
                failures = scene.counts().failure_count
        assert tried_at == [0, 1, 3, 7, 15, 31, 61, 91]
        disk.make_room()
        await scene.alter(TOPIC_KIND, "dlq.g", errors_deadletterqueue_group_enable="false")
        await scene.seconds(29)
        failures = scene.counts().failure_count
        await scene.seconds(5)
        assert scene.counts().failure_count == failures + 5, "the configuration, each second"
        await scene.alter(TOPIC_KIND, "dlq.g", errors_deadletterqueue_group_enable="true")
        for _ in range(60):  # The first try only has the disk tried, in real time.
            await scene.seconds(1)
            if await scene.start_offset() == 1:
                break
        await scene.settles_up_to(1)
        assert scene.origins() == [0]

    on_disk(scenario)


@pytest.mark.parametrize("snapshot", [False, True])
def test_waiting_letters_are_written_after_a_restart(snapshot: bool) -> None:
    """With their reasons: a record that is rejected at its last delivery is not exhausted."""

    async def main() -> None:
        disk = PowerLossDisk(1)
        scene = await Scene.start(disk)
        await scene.set_up(auto_create=False, share_delivery_count_limit="2")
        for _ in range(3):
            await scene.produce_values(1)
        assert await scene.take() == [(0, 1), (1, 1), (2, 1)]
        await scene.settle((0, AcknowledgeType.RELEASE), (1, AcknowledgeType.RELEASE), (2, REJECT))
        assert await scene.take(1) == [(0, 2)]
        await scene.settle((0, AcknowledgeType.RELEASE))
        assert await scene.take(1) == [(1, 2)]
        await scene.reject(1)
        live = await scene.live()
        assert [run.value.state for run in live.state.runs()] == [RecordState.ARCHIVING] * 3
        await scene.make_queue()
        if snapshot:  # As when the state is moved, so that its log can be deleted.
            coordinator = scene.broker.running.parts.share_coordinator
            await coordinator.snapshot(coordinator.known())
        await scene.broker.stop()

        scene = Scene(await Broker.start(disk))
        await scene.settles_up_to(3)
        said = [dict(letter.headers)["__dlq.errors.message"] for letter in scene.letters()]
        assert said == [
            b"Offset delivery count exceeded the threshold.",
            b"Offset rejected by client.",
            b"Offset rejected by client.",
        ]
        await scene.broker.stop()

    asyncio.run(main())
