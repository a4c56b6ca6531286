"""What an administrator's client asks beside the rest: resources with settings, operations."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import shutil
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.alter_configs.v2 import request as replace
from kio.schema.create_topics.v7 import request as create
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_configs.v4 import request as describe
from kio.schema.describe_log_dirs.v5 import request as log_dirs
from kio.schema.incremental_alter_configs.v1 import request as alter
from kio.schema.list_config_resources.v0.request import ListConfigResourcesRequest as List0
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest as List1
from kio.schema.metadata.v13 import request as metadata
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest

from sharegroup.faults.faulty_files import FaultyFiles
from sharegroup.ids import GroupId, TopicName
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from sharegroup.wire.codec.apis import request_class
from sharegroup.wire.codec.convert import upgrade
from tests.faults.in_process import Broker, ShareMember

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC = 3, 17
UNSUPPORTED_VERSION, INVALID_REPLICA_ASSIGNMENT = 35, 39
INVALID_CONFIG, INVALID_REQUEST = 40, 42
DYNAMIC_TOPIC, DEFAULT, DYNAMIC_LOGGER = 1, 5, 6

Scenario = Callable[[Broker], Awaitable[None]]


def run(scenario: Scenario, path: Path) -> None:
    async def main() -> None:
        broker = await Broker.start(None, str(path / "data"))
        await scenario(broker)
        await broker.stop()

    asyncio.run(main())


async def set_group(broker: Broker, group: str, name: str, value: str) -> None:
    change = alter.AlterableConfig(name=name, config_operation=0, value=value)
    resource = alter.AlterConfigsResource(
        resource_type=GROUP, resource_name=group, configs=(change,)
    )
    request = alter.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    assert (await broker.ask(request)).responses[0].error_code == 0


async def listed(broker: Broker, *types: int) -> list[tuple[int, str]]:
    answer = await broker.ask(List1(resource_types=types))
    assert answer.error_code == 0
    return [
        (int(resource.resource_type), resource.resource_name)
        for resource in answer.config_resources
    ]


def test_groups_with_settings_are_listed_even_without_members(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        assert await listed(broker, GROUP) == []
        await set_group(broker, "billing", "share.auto.offset.reset", "earliest")
        await set_group(broker, "audit", "share.auto.offset.reset", "earliest")
        assert await listed(broker, GROUP) == [(GROUP, "audit"), (GROUP, "billing")]

    run(scenario, tmp_path)


def test_topics_and_this_broker_are_listed(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        await broker.create_topic("orders", 1)
        assert await listed(broker) == [
            (LOGGER, "1"),
            (BROKER, "1"),
            (TOPIC, "__consumer_offsets"),
            (TOPIC, "__share_group_state"),
            (TOPIC, "__transaction_state"),
            (TOPIC, "orders"),
        ]
        assert await listed(broker, BROKER) == [(BROKER, "1")]
        assert await listed(broker, LOGGER, METRICS) == [(LOGGER, "1")]

    run(scenario, tmp_path)


def test_resources_of_an_unknown_type_are_refused(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        answer = await broker.ask(List1(resource_types=(TOPIC, 99)))
        assert (answer.error_code, answer.config_resources) == (UNSUPPORTED_VERSION, ())

    run(scenario, tmp_path)


def test_oldest_version_lists_client_metrics_and_gets_none(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        answer = await broker.ask(List0())
        assert (answer.error_code, answer.config_resources) == (0, ())

    run(scenario, tmp_path)


@pytest.mark.parametrize("asked", [True, False])
def test_authorized_operations_are_included_on_request(tmp_path: Path, asked: bool) -> None:
    """Without ACLs every user may do everything. The numbers are bits of Kafka's operations."""

    async def scenario(broker: Broker) -> None:
        await broker.create_topic("orders", 1)
        await ShareMember("g", "member", "orders", 1, connection_id=1).heartbeat(broker)
        group: Any = await broker.ask(
            ShareGroupDescribeRequest(group_ids=("g",), include_authorized_operations=asked)
        )
        cluster: Any = await broker.ask(
            DescribeClusterRequest(
                include_cluster_authorized_operations=asked, include_fenced_brokers=False
            )
        )
        topic = metadata.MetadataRequestTopic(topic_id=None, name="orders")
        topics: Any = await broker.ask(
            metadata.MetadataRequest(
                topics=(topic,),
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=asked,
            )
        )
        assert (
            group.groups[0].authorized_operations,
            cluster.cluster_authorized_operations,
            topics.topics[0].topic_authorized_operations,
        ) == ((3_400, 8_096, 3_576) if asked else (-(2**31),) * 3)

    run(scenario, tmp_path)


async def sizes(broker: Broker, topics: Any) -> dict[str, dict[int, int]]:
    """The bytes of each partition that DescribeLogDirs tells of."""
    answer: Any = await broker.ask(log_dirs.DescribeLogDirsRequest(topics=topics))
    (directory,) = answer.results
    assert (answer.error_code, directory.error_code) == (0, 0)
    assert directory.log_dir.endswith("/data")
    return {
        topic.name: {
            partition.partition_index: partition.partition_size for partition in topic.partitions
        }
        for topic in directory.topics
    }


def test_log_directories_report_the_bytes_of_partitions(tmp_path: Path) -> None:
    """Of all partitions or of the requested ones; missing partitions are left out."""

    async def scenario(broker: Broker) -> None:
        await broker.create_topic("orders", 2)
        await broker.produce("orders", 1, encode_batch([SimpleRecord(None, b"x" * 100, 1)]))
        (file,) = [path for path in tmp_path.rglob("*.log") if path.stat().st_size > 100]
        size = file.stat().st_size
        everything = await sizes(broker, None)
        assert everything["orders"] == {0: 0, 1: size}
        assert len(everything["__consumer_offsets"]) == 50
        orders = log_dirs.DescribableLogDirTopic(topic="orders", partitions=(1, 7))
        nope = log_dirs.DescribableLogDirTopic(topic="nope", partitions=(0,))
        assert await sizes(broker, (orders, nope)) == {"orders": {1: size}}
        assert await sizes(broker, ()) == {}

    run(scenario, tmp_path)


async def created(broker: Broker, **fields: Any) -> Any:
    """The outcome of a CreateTopics for one topic."""
    asked = {"num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
    topic = create.CreatableTopic(name="orders", **{**asked, **fields})
    request = create.CreateTopicsRequest(topics=(topic,), timeout=timedelta(seconds=1))
    return (await broker.ask(request)).topics[0]


def long(name: str) -> create.CreatableTopicConfig:
    """Half of what all values of a topic may have, and a character more."""
    return create.CreatableTopicConfig(name=name, value="5000".rjust(2_049))


def on(*brokers: int, index: int) -> create.CreatableReplicaAssignment:
    return create.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)


def test_response_for_a_new_topic_has_its_effective_configuration(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        config = create.CreatableTopicConfig(name="retention.ms", value="5000")
        answer = await created(broker, configs=(config,))
        found = {
            config.name: (config.value, int(config.config_source)) for config in answer.configs
        }
        assert found["retention.ms"] == ("5000", DYNAMIC_TOPIC)
        assert found["segment.bytes"] == ("1073741824", DEFAULT)
        assert found["cleanup.policy"] == ("delete", DEFAULT)

    run(scenario, tmp_path)


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        (
            {"configs": (create.CreatableTopicConfig(name="retention.ms", value=None),)},
            INVALID_CONFIG,
            "retention.ms has no value",
        ),
        (
            {"assignments": (on(1, index=0), on(1, index=2)), "num_partitions": -1},
            INVALID_REPLICA_ASSIGNMENT,
            "must be 0 to 1, not [0, 2]",
        ),
        (
            {"assignments": (on(7, index=0),), "num_partitions": -1},
            INVALID_REPLICA_ASSIGNMENT,
            "only be assigned to broker 1",
        ),
        ({"assignments": (on(1, index=0),)}, INVALID_REQUEST, "must give -1"),
        (
            {"configs": (long("retention.ms"), long("segment.bytes"))},
            INVALID_CONFIG,
            "all values of one topic may have at most 4096 characters, not 4098",
        ),
    ],
)
def test_topic_with_contradictory_fields_is_not_created(
    tmp_path: Path, fields: dict[str, Any], code: int, text: str
) -> None:
    async def scenario(broker: Broker) -> None:
        if fields.get("num_partitions") == -1:
            fields["replication_factor"] = -1
        answer = await created(broker, **fields)
        assert answer.error_code == code
        assert text in answer.error_message
        assert await broker.topic_id("orders") is None

    run(scenario, tmp_path)


def test_assigned_partitions_are_made(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        answer = await created(
            broker,
            assignments=(on(1, index=1), on(1, index=0)),
            num_partitions=-1,
            replication_factor=-1,
        )
        assert (answer.error_code, answer.num_partitions) == (0, 2)

    run(scenario, tmp_path)


async def replaced(broker: Broker, kind: int, name: str, *, dry: bool = False, **to: Any) -> int:
    """The error code of an AlterConfigs; ``to`` has ``_`` for dots."""
    configs = tuple(
        replace.AlterableConfig(name=key.replace("_", "."), value=value)
        for key, value in to.items()
    )
    resource = replace.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = replace.AlterConfigsRequest(resources=(resource,), validate_only=dry)
    return int((await broker.ask(request)).responses[0].error_code)


def test_settings_are_replaced_as_a_whole_by_older_clients(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        catalog = broker.running.parts.topics.catalog
        await broker.create_topic("orders", 1)
        assert await replaced(broker, TOPIC, "orders", retention_ms="1", segment_ms="2") == 0
        assert await replaced(broker, TOPIC, "orders", retention_ms="5") == 0
        assert catalog.topic(TopicName("orders")).settings == {"retention.ms": "5"}
        assert await replaced(broker, TOPIC, "orders", dry=True) == 0
        assert await replaced(broker, TOPIC, "orders", retention_ms="-7") == INVALID_CONFIG
        assert await replaced(broker, TOPIC, "orders", retention_ms=None) == INVALID_REQUEST
        assert catalog.topic(TopicName("orders")).settings == {"retention.ms": "5"}
        await set_group(broker, "g", "share.auto.offset.reset", "earliest")
        assert await replaced(broker, GROUP, "g", share_isolation_level="read_committed") == 0
        assert catalog.group_settings(GroupId("g")) == {"share.isolation.level": "read_committed"}
        assert await replaced(broker, BROKER, "1", log_retention_ms="9") == 0
        assert await replaced(broker, BROKER, "1", message_max_bytes="8000") == 0
        assert catalog.broker_settings() == ({"message.max.bytes": "8000"}, {})

    run(scenario, tmp_path)


@pytest.mark.parametrize("version", [8, 9, 10])
@pytest.mark.parametrize(("asked", "expected"), [(True, 8_096), (False, -(2**31))])
def test_older_clients_ask_for_operations_on_the_cluster_with_metadata(
    tmp_path: Path, version: int, asked: bool, expected: int
) -> None:
    async def scenario(broker: Broker) -> None:
        request = upgrade(
            metadata.MetadataRequest(
                topics=(),
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            ),
            request_class(3, version),
        )
        answer = await broker.ask(
            dataclasses.replace(request, include_cluster_authorized_operations=asked)
        )
        assert answer.cluster_authorized_operations == expected

    run(scenario, tmp_path)


def test_space_of_the_volume_is_described(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        answer: Any = await broker.ask(log_dirs.DescribeLogDirsRequest(topics=()))
        (directory,) = answer.results
        usage = shutil.disk_usage(tmp_path)
        assert directory.total_bytes == usage.total
        assert 0 < directory.usable_bytes <= usage.total

    run(scenario, tmp_path)


def test_full_disk_has_no_usable_bytes_and_one_in_memory_no_size(tmp_path: Path) -> None:
    async def usable(broker: Broker) -> int:
        answer: Any = await broker.ask(log_dirs.DescribeLogDirsRequest(topics=()))
        return int(answer.results[0].usable_bytes)

    async def main() -> None:
        disk = FaultyFiles()
        broker = await Broker.start(disk, str(tmp_path / "data"))
        disk.fill_up()
        assert await usable(broker) == 0
        disk.make_room()
        assert await usable(broker) > 0
        await broker.stop()
        broker = await Broker.start(PowerLossDisk(seed=1))
        assert await usable(broker) == -1
        await broker.stop()

    asyncio.run(main())


async def change_level(
    broker: Broker, logger: str, operation: int, level: str | None, *, name: str = "1"
) -> int:
    """The error code of a change of a log level."""
    change = alter.AlterableConfig(name=logger, config_operation=operation, value=level)
    resource = alter.AlterConfigsResource(
        resource_type=LOGGER, resource_name=name, configs=(change,)
    )
    request = alter.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    return int((await broker.ask(request)).responses[0].error_code)


async def log_levels(broker: Broker, name: str = "1") -> tuple[int, dict[str, str | None]]:
    """Error code, and the level of each logger."""
    resource = describe.DescribeConfigsResource(
        resource_type=LOGGER, resource_name=name, configuration_keys=None
    )
    result = (await broker.ask(describe.DescribeConfigsRequest(resources=(resource,)))).results[0]
    assert all(int(config.config_source) == DYNAMIC_LOGGER for config in result.configs)
    return int(result.error_code), {config.name: config.value for config in result.configs}


@pytest.fixture
def spare_logger() -> Iterator[str]:
    """A logger of sharegroup that nothing uses, and INFO as the level of all others."""
    top, spare = logging.getLogger("sharegroup"), logging.getLogger("sharegroup.spare.logger")
    before = top.level
    top.setLevel(logging.INFO)
    yield spare.name
    top.setLevel(before)
    spare.setLevel(logging.NOTSET)


def test_log_levels_are_described_set_and_unset(tmp_path: Path, spare_logger: str) -> None:
    async def scenario(broker: Broker) -> None:
        error, levels = await log_levels(broker)
        assert error == 0
        assert (levels["sharegroup"], levels[spare_logger]) == ("INFO", "INFO")
        assert "sharegroup.broker.app" in levels
        assert not [name for name in levels if not name.startswith("sharegroup")]
        for level, number in (("TRACE", 5), ("WARN", 30), ("FATAL", 50)):
            assert await change_level(broker, spare_logger, 0, level) == 0
            assert (await log_levels(broker))[1][spare_logger] == level
            assert logging.getLogger(spare_logger).level == number
        assert await change_level(broker, spare_logger, 1, None) == 0
        assert (await log_levels(broker))[1][spare_logger] == "INFO"
        assert await change_level(broker, "sharegroup", 0, "ERROR") == 0
        assert (await log_levels(broker))[1][spare_logger] == "ERROR"

    run(scenario, tmp_path)


def test_invalid_changes_of_log_levels_are_refused(tmp_path: Path, spare_logger: str) -> None:
    async def scenario(broker: Broker) -> None:
        assert await change_level(broker, spare_logger, 0, "LOUD") == INVALID_CONFIG
        assert await change_level(broker, "asyncio", 0, "DEBUG") == INVALID_CONFIG
        assert await change_level(broker, spare_logger, 2, "DEBUG") == INVALID_REQUEST
        assert await change_level(broker, "sharegroup", 1, None) == INVALID_REQUEST
        assert await change_level(broker, spare_logger, 0, "DEBUG", name="2") == INVALID_REQUEST
        assert await change_level(broker, spare_logger, 0, "DEBUG", name="") == INVALID_REQUEST
        assert (await log_levels(broker))[1][spare_logger] == "INFO"
        assert await log_levels(broker, "2") == (INVALID_REQUEST, {})
        assert await log_levels(broker, "") == (INVALID_REQUEST, {})
        config = replace.AlterableConfig(name=spare_logger, value="DEBUG")
        legacy = replace.AlterConfigsRequest(
            resources=(
                replace.AlterConfigsResource(
                    resource_type=LOGGER, resource_name="1", configs=(config,)
                ),
            ),
            validate_only=False,
        )
        assert (await broker.ask(legacy)).responses[0].error_code == INVALID_REQUEST

    run(scenario, tmp_path)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "orders", 0),
        (TOPIC, "missing", UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", INVALID_TOPIC),
        (TOPIC, "", INVALID_TOPIC),
        (BROKER, "", 0),
        (BROKER, "1", 0),
        (BROKER, "2", INVALID_REQUEST),
        (LOGGER, "1", 0),
        (METRICS, "nobody-made-it", 0),
        (METRICS, "", INVALID_REQUEST),
        (GROUP, "nobody-made-it", 0),
        (GROUP, "", INVALID_REQUEST),
        (1, "orders", INVALID_REQUEST),
        (64, "orders", INVALID_REQUEST),
    ],
)
def test_every_type_of_resource_is_described_or_refused(
    tmp_path: Path, kind: int, name: str, code: int
) -> None:
    async def scenario(broker: Broker) -> None:
        await broker.create_topic("orders", 1)
        resource = describe.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=None
        )
        request = describe.DescribeConfigsRequest(resources=(resource,))
        (result,) = (await broker.ask(request)).results
        assert (result.resource_type, result.resource_name) == (kind, name)
        assert (int(result.error_code), bool(result.error_message)) == (code, code != 0)
        assert bool(result.configs) == (code == 0 and (kind, name) != (BROKER, ""))

    run(scenario, tmp_path)
