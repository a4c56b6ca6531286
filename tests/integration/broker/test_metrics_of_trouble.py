"""What the metrics say when something is wrong, and that they say so no more when it is over."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from uuid import UUID

from sharegroup.errors import KafkaStorageError
from sharegroup.ids import TopicName
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.testing import broker as run_broker
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.faults.in_process import Broker, ShareMember
from tests.integration.broker.consumer_group_requests import RawMember, soon
from tests.integration.broker.dead_letter_scene import Scene, played
from tests.integration.broker.test_metrics import ORDERS, scrape
from tests.integration.broker.test_share_fetch import produce
from tests.spec.connection import Connection
from tests.spec.member import Member
from tests.spec.messages import Topic
from tests.support.limits import HANGING_SECONDS


def test_waiting_dead_letters_are_in_the_metrics_until_they_are_written(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up(auto_create=False)
        await scene.produce_values(3)
        await scene.take()
        await scene.reject(0, 1, 2)
        await scene.until(lambda: scene.dead_letters.stalled_count == 1, "stalled")
        found = await scrape(scene.broker)
        letters = "kafka_server_share_group_dead_letter_queue_"
        assert found("sharegroup_dead_letters_waiting") == 3
        assert found("sharegroup_share_partition_records", **ORDERS, state="archiving") == 3
        assert found.all("sharegroup_dead_letter_share_partitions") == {
            ("pending",): 1, ("stalled",): 1
        }  # fmt: skip
        assert found(f"{letters}records_total", group="g") == 0
        assert found(f"{letters}produce_requests_total", group="g") == 0
        assert found(f"{letters}produce_requests_failed_total", group="g") == 1
        await scene.make_queue()
        scene.broker.clock.advance(1)
        await scene.settles_up_to(3)
        await scene.until(lambda: scene.dead_letters.is_idle, "nothing is left to do")
        found = await scrape(scene.broker)
        assert found("sharegroup_dead_letters_waiting") == 0
        assert found.all("sharegroup_dead_letter_share_partitions") == {
            ("pending",): 0, ("stalled",): 0
        }  # fmt: skip
        assert found(f"{letters}records_total", group="g") == 3
        assert found(f"{letters}produce_requests_total", group="g") == 1
        assert found("sharegroup_dead_letters_not_copied_total", group="g") == 0
        assert found("sharegroup_dead_letters_given_up_total", group="g") == 0

    played(scenario, tmp_path)


def test_set_aside_bytes_and_a_lost_directory_are_in_the_metrics(tmp_path: Path) -> None:
    async def main() -> None:
        running = await Broker.start(None, str(tmp_path))
        directory, topics = running.running.directory, running.running.parts.topics
        entry = tmp_path / "set-aside" / "20260101T000000Z-repair"
        entry.mkdir(parents=True)
        (entry / "file").write_bytes(bytes(10))
        await directory.measure_set_aside()
        found = await scrape(running)
        assert found("sharegroup_set_aside_bytes") == 10
        assert found("sharegroup_data_directory_lost") == 0
        topic = await topics.create(TopicName("orders"), partitions=1, settings={})
        await topics.log_of(topic, 0).append(encode_batch([SimpleRecord(None, b"1", 1)]), now_ms=1)
        (tmp_path / ".lock").unlink()
        await directory.checkpoint()
        assert (await scrape(running))("sharegroup_data_directory_lost") == 1
        await running.stop()

    asyncio.run(main())


def test_a_full_share_partition_is_seen_until_some_settle(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.set_up()
        await scene.produce_values(101)
        assert len(await scene.take()) == 101
        await scene.settle(*((number, AcknowledgeType.ACCEPT) for number in range(1, 101, 2)))
        found = await scrape(scene.broker)
        assert found("sharegroup_share_partition_full", **ORDERS) == 1
        assert found("sharegroup_share_partitions", state="full") == 1
        assert found("kafka_server_share_partition_in_flight_batches", **ORDERS) == 101
        await scene.settle(*((number, AcknowledgeType.ACCEPT) for number in range(0, 101, 2)))
        found = await scrape(scene.broker)
        assert found("sharegroup_share_partition_full", **ORDERS) == 0
        assert found("sharegroup_share_partitions", state="full") == 0
        assert found("sharegroup_share_partition_lag", **ORDERS) == 0

    played(scenario, tmp_path, sharegroup_share_partition_runs_max="100")


def test_a_disk_that_takes_no_state_is_seen() -> None:
    async def main() -> None:
        disk = PowerLossDisk(1)
        broker = await Broker.start(disk)
        await broker.create_topic("orders", 1)
        member = ShareMember("g", "member-1", "orders", 1, connection_id=1)
        assert await member.heartbeat(broker) == 0
        await member.fetch(broker, records_max=1)
        await produce(broker, 1)
        await member.fetch(broker, records_max=1)
        partitions = "kafka_share_coordinator_partitions"
        assert (await scrape(broker))(partitions, state="failed") == 0
        disk.fail_next_sync(100)
        assert await member.acknowledge(broker, {0: [(0, AcknowledgeType.ACCEPT)]}) == {
            0: KafkaStorageError.code
        }
        found = await scrape(broker)
        assert found(partitions, state="failed") == 1
        assert found(partitions, state="active") == 0
        failed = "kafka_server_share_acknowledgement_requests_failed_total"
        assert found(failed, topic="orders") == 1
        accepted = "kafka_server_share_group_record_acknowledgements_total"
        assert found(accepted, ack_type="accept") == 0
        await broker.crash()

    asyncio.run(main())


def test_a_session_that_its_connection_took_along_is_counted() -> None:
    def open_and_go(port: int, topic_id: UUID) -> None:
        with Connection(port) as connection:
            Member(connection, "g").open(Topic("orders", topic_id))

    async def main() -> None:
        async with run_broker() as running:
            parts = running.running.parts
            topic = await parts.topics.create(TopicName("orders"), partitions=1, settings={})
            await asyncio.to_thread(open_and_go, parts.node.port, topic.topic_id)
            async with asyncio.timeout(HANGING_SECONDS):
                while len(parts.share_sessions):
                    await asyncio.sleep(0.01)
            found = await scrape(Broker(running.running, None))  # type: ignore[arg-type]
            assert found("kafka_server_share_session_evictions_total") == 1
            assert found("kafka_server_share_sessions") == 0

    asyncio.run(main())


def test_ordinary_consumer_groups_are_counted_by_state(tmp_path: Path) -> None:
    async def main() -> None:
        broker = await Broker.start(None, str(tmp_path))
        await broker.create_topic("orders", 1)
        member = RawMember(broker, "readers")
        await member.joined()
        states = "kafka_group_coordinator_classic_groups"
        assert (await scrape(broker)).all(states) == {("CompletingRebalance",): 1}
        await soon(member.sync(me=b"all"))
        found = await scrape(broker)
        assert found.all(states) == {("Stable",): 1}
        assert found("kafka_group_coordinator_groups", protocol="classic") == 1
        assert found("kafka_group_coordinator_groups", protocol="share") == 0
        await broker.stop()

    asyncio.run(main())


def test_connections_and_protocol_errors_are_counted() -> None:
    async def main() -> None:
        async with run_broker({"max.connections": "1"}) as running:
            broker = Broker(running.running, None)  # type: ignore[arg-type]
            address = ("127.0.0.1", running.running.parts.node.port)
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"\x00\x00\x00\x02\x7f\xff")
            assert await reader.read() == b""
            writer.close()
            reader, writer = await asyncio.open_connection(*address)
            with socket.create_connection(address) as second:
                second.setblocking(False)
                loop = asyncio.get_running_loop()
                assert await loop.sock_recv(second, 1) == b""
            found = await scrape(broker)
            assert found("sharegroup_connections") == 1
            assert found("sharegroup_connections_opened_total") == 2
            assert found("sharegroup_connections_refused_total") == 1
            assert found("sharegroup_bad_requests_total") == 1
            writer.close()

    asyncio.run(main())
