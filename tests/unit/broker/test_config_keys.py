"""The keys of share groups, against Apache Kafka 4.4: its types, defaults and ranges, written out.

`*` marks a key that DescribeConfigs does not list, `!` one of which we differ on purpose; `$`
stands for Kafka's package.
"""

from __future__ import annotations

from dataclasses import Field
from typing import Any

import pytest

from sharegroup.broker.configuration.config import (
    Config,
    ConsumerGroupConfig,
    CoordinatorConfig,
    GroupConfig,
    LogConfig,
    ShareGroupConfig,
    TopicConfig,
)
from sharegroup.broker.configuration.config_values import entries, kind_of, value_text
from sharegroup.broker.configuration.kafka_keys import kafka_keys

BROKER = """
group.share.session.timeout.ms INT 45000 1…
group.share.min.session.timeout.ms INT 45000 1…
group.share.max.session.timeout.ms INT 60000 1…
group.share.heartbeat.interval.ms INT 5000 1…
group.share.min.heartbeat.interval.ms INT 5000 1…
group.share.max.heartbeat.interval.ms INT 15000 1…
group.share.max.size INT 200 1…1000
group.share.assignors LIST simple 1…1
group.share.assignment.interval.ms INT 1000 0…
group.share.min.assignment.interval.ms INT 0 0…
group.share.max.assignment.interval.ms INT 15000 0…
group.share.assignor.offload.enable* BOOLEAN true
group.share.initialize.retry.interval.ms* INT 30000 1…
group.share.delivery.count.limit INT 5 2…10
group.share.min.delivery.count.limit INT 2 2…5
group.share.max.delivery.count.limit INT 10 5…25
group.share.record.lock.duration.ms INT 30000 1000…3600000
group.share.min.record.lock.duration.ms INT 15000 1000…30000
group.share.max.record.lock.duration.ms INT 60000 30000…3600000
group.share.partition.max.record.locks! INT 2000 100…1000000
group.share.min.partition.max.record.locks INT 100 100…2000
group.share.max.partition.max.record.locks! INT 1000000 2000…1000000
group.share.max.share.sessions INT 2000 1…
share.fetch.purgatory.purge.interval.requests INT 1000
remote.fetch.max.wait.ms INT 500 1…
group.coordinator.rebalance.protocols LIST classic,consumer,streams 1…
group.share.persister.class.name* STRING $share.persister.DefaultStatePersister
group.share.dlq.manager.class.name* STRING $share.dlq.DefaultShareGroupDLQManager
errors.deadletterqueue.auto.create.topics.enable BOOLEAN false
errors.deadletterqueue.topic.name.prefix STRING dlq.
share.coordinator.state.topic.num.partitions INT 50 1…
share.coordinator.state.topic.replication.factor SHORT 3 1…
share.coordinator.state.topic.min.isr SHORT 2 1…
share.coordinator.state.topic.segment.bytes! INT 104857600 1024…
share.coordinator.state.topic.compression.codec INT 0 0…4
share.coordinator.threads INT 1 1…
share.coordinator.snapshot.update.records.per.snapshot INT 500 0…500
share.coordinator.write.timeout.ms INT 5000 1…
share.coordinator.load.buffer.size INT 5242880 1…
share.coordinator.append.linger.ms INT -1 -1…
share.coordinator.cached.buffer.max.bytes INT 1048588 524288…
share.coordinator.state.topic.prune.interval.ms* INT 300000 1…
share.coordinator.cold.partition.snapshot.interval.ms* INT 300000 1…
"""

GROUP = """
share.session.timeout.ms INT 45000 1…
share.heartbeat.interval.ms INT 5000 1…
share.record.lock.duration.ms INT 30000 1000…
share.auto.offset.reset STRING latest
share.isolation.level STRING read_uncommitted
share.delivery.count.limit INT 5 2…
share.partition.max.record.locks INT 2000 100…
share.renew.acknowledge.enable BOOLEAN true
share.assignment.interval.ms INT 1000 0…
share.assignor.offload.enable* BOOLEAN true
errors.deadletterqueue.topic.name STRING
errors.deadletterqueue.copy.record.enable BOOLEAN false
"""

TOPIC = "errors.deadletterqueue.group.enable BOOLEAN false"

Row = tuple[str, str, str, str]


def rows(table: str) -> list[Row]:
    """Name, kind, default and range of each line; what a line lacks is empty."""
    found = []
    for line in table.strip().splitlines():
        name, kind, *rest = line.split(" ")
        default, limits = (*rest, "", "")[:2]
        found.append((name, kind, default.replace("$", "org.apache.kafka.server."), limits))
    return found


def by_name(*parts: type) -> dict[str, Field[Any]]:
    return {entry.metadata["name"]: entry for part in parts for entry in entries(part)}


BROKER_KEYS = {
    **by_name(ShareGroupConfig, ConsumerGroupConfig, CoordinatorConfig),
    **{name: without_effect.entry for name, without_effect in kafka_keys().items()},
}


def shown(entry: Field[Any]) -> Row:
    """A key as a row of the tables shows it; unset, it has the broker's default."""
    facts = entry.metadata
    default = entry.default
    if default is None:
        default = BROKER_KEYS[facts["synonym"]].default
    ends = ["" if facts[end] is None else str(facts[end]) for end in ("low", "high")]
    mark = "*" if facts["internal"] else ""
    return (
        facts["name"] + mark,
        kind_of(entry).name,
        value_text(default),
        "…".join(ends) if any(ends) else "",
    )


@pytest.mark.parametrize("row", rows(BROKER), ids=lambda row: row[0])
def test_broker_key_is_as_in_kafka(row: Row) -> None:
    name = row[0].rstrip("*!")
    assert shown(BROKER_KEYS[name]) == (row[0].rstrip("!"), *row[1:])
    if row[2]:
        Config.parse({name: row[2]})


@pytest.mark.parametrize(
    ("row", "part"),
    [
        *((row, GroupConfig) for row in rows(GROUP)),
        *((row, TopicConfig) for row in rows(TOPIC)),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_configuration_key_agrees_with_kafka(row: Row, part: type) -> None:
    assert shown(by_name(part)[row[0].rstrip("*")]) == row


@pytest.mark.parametrize(
    ("part", "names"),
    [
        (
            LogConfig,
            """log.retention.ms log.retention.minutes log.retention.hours log.retention.bytes
            log.retention.check.interval.ms log.roll.ms log.roll.hours log.segment.bytes
            log.cleanup.policy log.cleaner.enable log.cleaner.backoff.ms
            log.cleaner.dedupe.buffer.size log.cleaner.min.cleanable.ratio
            log.cleaner.delete.retention.ms log.cleaner.min.compaction.lag.ms
            log.cleaner.max.compaction.lag.ms""",
        ),
        (
            ConsumerGroupConfig,
            """group.min.session.timeout.ms group.max.session.timeout.ms group.max.size
            group.initial.rebalance.delay.ms offset.metadata.max.bytes offsets.retention.minutes
            offsets.retention.check.interval.ms""",
        ),
    ],
)
def test_key_of_logs_and_consumer_groups_has_an_effect(part: type, names: str) -> None:
    known = by_name(part)
    assert [name for name in names.split() if not known[name].metadata["effect"]] == []
