"""Configuration: Kafka's own names, defaults and ranges; ours start with ``sharegroup.``.

Every key is a field of one frozen class per part, so the key, its type, its range and its
text stand in one place; ``DescribeConfigs`` and the documents are made from these fields.
A value arrives as text (from ``server.properties``, ``--set`` or the wire), is checked once
and is a typed value from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from sharegroup.broker.config_values import INT_MAX, LONG_MAX, entries, key, parse_part
from sharegroup.errors import InvalidConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Listening, limits per connection, and what holds for the whole broker."""

    listeners: str = key(
        "listeners",
        "PLAINTEXT://127.0.0.1:9092",
        "One plain-text listener; port 0 picks a free one.",
    )
    advertised_host: str = key(
        "sharegroup.advertised.host",
        "",
        "The host name that clients are told to connect to; empty: the listener's.",
    )
    node_id: int = key("node.id", 1, "This broker's id in metadata answers.", low=0, high=INT_MAX)
    log_dirs: str = key("log.dirs", "sharegroup-data", "The data directory; exactly one.")
    durability: str = key(
        "sharegroup.durability",
        "fsync",
        "When a write is answered: `fsync` after the disk has it, `os` after write(2).",
        choices=("fsync", "os"),
    )
    request_bytes_max: int = key(
        "socket.request.max.bytes", 104_857_600, "The largest request in bytes.", low=1
    )
    connections_max: int = key(
        "max.connections", 2_000, "Connections at a time; more are closed at once.", low=1
    )
    connection_idle_ms: int = key(
        "connections.max.idle.ms", 600_000, "A connection idle this long is closed.", low=1_000
    )
    frame_progress_ms: int = key(
        "sharegroup.frame.progress.timeout.ms",
        30_000,
        "A request that is not complete, or an answer that is not taken, after this long "
        "closes its connection.",
        low=100,
    )
    connection_requests_max: int = key(
        "sharegroup.connection.requests.max",
        100,
        "Requests of one connection that may wait for their answers; then reading pauses.",
        low=1,
        high=10_000,
    )
    fetch_bytes_max: int = key(
        "fetch.max.bytes", 57_671_680, "The most bytes that one fetch answers with.", low=1024
    )
    fetch_sessions_max: int = key(
        "max.incremental.fetch.session.cache.slots", 1_000, "Fetch sessions at a time.", low=0
    )
    auto_create_topics: bool = key(
        "auto.create.topics.enable", True, "Create a topic when a client first names it."
    )
    delete_topics: bool = key("delete.topic.enable", True, "Let clients delete topics.")
    partitions_default: int = key(
        "num.partitions", 1, "Partitions of a topic that does not say how many.", low=1
    )
    partitions_max: int = key(
        "sharegroup.partitions.max", 20_000, "Partitions of all topics together.", low=1
    )
    producer_expiration_ms: int = key(
        "producer.id.expiration.ms",
        86_400_000,
        "An idempotent producer that is silent this long is forgotten.",
        low=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The broker's defaults for topics."""

    segment_bytes: int = key(
        "log.segment.bytes", 1_073_741_824, "A segment file rolls at this size.", low=1_024
    )
    message_bytes_max: int = key(
        "message.max.bytes", 1_048_588, "The largest record batch in bytes.", low=0
    )
    timestamp_type: str = key(
        "log.message.timestamp.type",
        "CreateTime",
        "Whose time a record carries: its producer's or the broker's.",
        choices=("CreateTime", "LogAppendTime"),
    )
    retention_ms: int = key(
        "log.retention.ms",
        604_800_000,
        "How long records are kept; -1 for ever.",
        low=-1,
        effect=False,
    )
    retention_bytes: int = key(
        "log.retention.bytes",
        -1,
        "How many bytes a partition keeps; -1 no limit.",
        low=-1,
        effect=False,
    )
    cleanup_policy: str = key(
        "log.cleanup.policy",
        "delete",
        "What happens to old records.",
        choices=("delete",),
        effect=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupConfig:
    """What holds for every share group that does not set its own (§7.1 of KIP-932's keys)."""

    session_timeout_ms: int = key(
        "group.share.session.timeout.ms", 45_000, "A silent member is removed after this.", low=1
    )
    session_timeout_ms_min: int = key(
        "group.share.min.session.timeout.ms", 45_000, "The least a group may set.", low=1
    )
    session_timeout_ms_max: int = key(
        "group.share.max.session.timeout.ms", 60_000, "The most a group may set.", low=1
    )
    heartbeat_interval_ms: int = key(
        "group.share.heartbeat.interval.ms", 5_000, "How often members report.", low=1
    )
    heartbeat_interval_ms_min: int = key(
        "group.share.min.heartbeat.interval.ms", 5_000, "The least a group may set.", low=1
    )
    heartbeat_interval_ms_max: int = key(
        "group.share.max.heartbeat.interval.ms", 15_000, "The most a group may set.", low=1
    )
    members_max: int = key("group.share.max.size", 200, "Members of a group.", low=1, high=1_000)
    assignment_interval_ms: int = key(
        "group.share.assignment.interval.ms", 1_000, "The least time between assignments.", low=0
    )
    assignment_interval_ms_min: int = key(
        "group.share.min.assignment.interval.ms", 0, "The least a group may set.", low=0
    )
    assignment_interval_ms_max: int = key(
        "group.share.max.assignment.interval.ms", 15_000, "The most a group may set.", low=0
    )
    delivery_count_max: int = key(
        "group.share.delivery.count.limit",
        5,
        "A record is archived after this many deliveries.",
        low=2,
        high=25,
    )
    delivery_count_max_min: int = key(
        "group.share.min.delivery.count.limit", 2, "The least a group may set.", low=2, high=5
    )
    delivery_count_max_max: int = key(
        "group.share.max.delivery.count.limit", 10, "The most a group may set.", low=5, high=25
    )
    lock_ms: int = key(
        "group.share.record.lock.duration.ms",
        30_000,
        "How long a delivered record is locked.",
        low=1_000,
        high=3_600_000,
    )
    lock_ms_min: int = key(
        "group.share.min.record.lock.duration.ms",
        15_000,
        "The least a group may set.",
        low=1_000,
        high=30_000,
    )
    lock_ms_max: int = key(
        "group.share.max.record.lock.duration.ms",
        60_000,
        "The most a group may set.",
        low=30_000,
        high=3_600_000,
    )
    in_flight_max: int = key(
        "group.share.partition.max.record.locks",
        2_000,
        "Records of one share partition that may be locked or wait for redelivery.",
        low=100,
        high=1_000_000,
    )
    in_flight_max_min: int = key(
        "group.share.min.partition.max.record.locks",
        100,
        "The least a group may set.",
        low=100,
        high=2_000,
    )
    in_flight_max_max: int = key(
        "group.share.max.partition.max.record.locks",
        1_000_000,
        "The most a group may set (Kafka: 4,000).",
        low=2_000,
        high=1_000_000,
    )
    runs_max: int = key(
        "sharegroup.share.partition.runs.max",
        20_000,
        "Changes of delivery state that one share partition holds; at the limit it takes no "
        "new records until some settle.",
        low=100,
        high=1_000_000,
    )
    sessions_max: int = key(
        "group.share.max.share.sessions", 2_000, "Share sessions of this broker.", low=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorConfig:
    """The two internal topics that hold group state and delivery state."""

    state_partitions: int = key(
        "share.coordinator.state.topic.num.partitions",
        50,
        "Partitions of `__share_group_state`, fixed when it is created.",
        low=1,
    )
    state_segment_bytes: int = key(
        "share.coordinator.state.topic.segment.bytes", 104_857_600, "Its segment size.", low=1_024
    )
    updates_per_snapshot: int = key(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        "Updates of one share partition between two snapshots.",
        low=0,
        high=500,
    )
    offsets_partitions: int = key(
        "offsets.topic.num.partitions",
        50,
        "Partitions of `__consumer_offsets`, fixed when it is created.",
        low=1,
    )
    offsets_segment_bytes: int = key(
        "offsets.topic.segment.bytes", 104_857_600, "Its segment size.", low=1_024
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """What a topic may set for itself; None means: the broker's value holds."""

    segment_bytes: int | None = key(
        "segment.bytes", None, "Segment size.", low=1_024, synonym="log.segment.bytes"
    )
    message_bytes_max: int | None = key(
        "max.message.bytes", None, "The largest record batch.", low=0, synonym="message.max.bytes"
    )
    timestamp_type: str | None = key(
        "message.timestamp.type",
        None,
        "Whose time a record carries.",
        choices=("CreateTime", "LogAppendTime"),
        synonym="log.message.timestamp.type",
    )
    retention_ms: int | None = key(
        "retention.ms",
        None,
        "How long records are kept.",
        low=-1,
        synonym="log.retention.ms",
        effect=False,
    )
    retention_bytes: int | None = key(
        "retention.bytes",
        None,
        "How much is kept.",
        low=-1,
        synonym="log.retention.bytes",
        effect=False,
    )
    cleanup_policy: str | None = key(
        "cleanup.policy",
        None,
        "What happens to old records.",
        choices=("delete", "compact", "compact,delete", "delete,compact"),
        synonym="log.cleanup.policy",
        effect=False,
    )
    compression_type: str = key(
        "compression.type",
        "producer",
        "Batches are kept as their producer made them.",
        choices=("producer",),
        effect=False,
    )
    min_insync_replicas: int = key(
        "min.insync.replicas", 1, "One node has one replica.", low=1, high=1, effect=False
    )
    flush_messages: int = key(
        "flush.messages", LONG_MAX, "Durability is the broker's.", low=1, effect=False
    )
    flush_ms: int = key("flush.ms", LONG_MAX, "Durability is the broker's.", low=0, effect=False)
    segment_ms: int = key("segment.ms", 604_800_000, "Segments roll by size.", low=1, effect=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """What a share group may set for itself; None means: the broker's value holds (§7.3)."""

    session_timeout_ms: int | None = key(
        "share.session.timeout.ms",
        None,
        "A silent member is removed after this.",
        low=1,
        synonym="group.share.session.timeout.ms",
    )
    heartbeat_interval_ms: int | None = key(
        "share.heartbeat.interval.ms",
        None,
        "How often members report.",
        low=1,
        synonym="group.share.heartbeat.interval.ms",
    )
    lock_ms: int | None = key(
        "share.record.lock.duration.ms",
        None,
        "How long a delivered record is locked.",
        low=1_000,
        synonym="group.share.record.lock.duration.ms",
    )
    delivery_count_max: int | None = key(
        "share.delivery.count.limit",
        None,
        "A record is archived after this many deliveries.",
        low=2,
        synonym="group.share.delivery.count.limit",
    )
    in_flight_max: int | None = key(
        "share.partition.max.record.locks",
        None,
        "Records that may be locked or wait for redelivery.",
        low=100,
        synonym="group.share.partition.max.record.locks",
    )
    assignment_interval_ms: int | None = key(
        "share.assignment.interval.ms",
        None,
        "The least time between assignments.",
        low=0,
        synonym="group.share.assignment.interval.ms",
    )
    renewal: bool = key(
        "share.renew.acknowledge.enable",
        True,
        "Whether members may renew their locks (KIP-1222).",
    )
    auto_offset_reset: str = key(
        "share.auto.offset.reset",
        "latest",
        "Where a new group starts: latest, earliest or by_duration:PnDTnHnMn.nS.",
    )
    isolation_level: str = key(
        "share.isolation.level",
        "read_uncommitted",
        "Only read_uncommitted for now: transactions are not written here yet.",
        choices=("read_uncommitted",),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that the broker is started with."""

    server: ServerConfig = ServerConfig()
    log: LogConfig = LogConfig()
    share_group: ShareGroupConfig = ShareGroupConfig()
    coordinator: CoordinatorConfig = CoordinatorConfig()

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> Config:
        """From text values under Kafka's names; an unknown name is an error."""
        parts: dict[str, Any] = {
            part.name: parse_part(
                part.type_, {name: values[name] for name in values if name in part.names}
            )
            for part in _PARTS
        }
        known = set().union(*(part.names for part in _PARTS))
        if unknown := sorted(set(values) - known - COMPATIBLE):
            raise InvalidConfig(f"unknown configuration {', '.join(unknown)}; see docs/config.md")
        return cls(**parts)


COMPATIBLE = frozenset(
    """process.roles broker.id controller.quorum.voters controller.quorum.bootstrap.servers
    controller.listener.names inter.broker.listener.name listener.security.protocol.map
    num.network.threads num.io.threads socket.send.buffer.bytes socket.receive.buffer.bytes
    num.recovery.threads.per.data.dir offsets.topic.replication.factor
    transaction.state.log.replication.factor transaction.state.log.min.isr
    share.coordinator.state.topic.replication.factor share.coordinator.state.topic.min.isr
    default.replication.factor min.insync.replicas log.retention.check.interval.ms
    log.retention.hours group.initial.rebalance.delay.ms""".split()
)
"""Keys of a common ``server.properties`` that mean nothing on one node: read and passed over."""


@dataclass(frozen=True, slots=True)
class _Part:
    name: str
    type_: type
    names: frozenset[str]


_PARTS = tuple(
    _Part(entry.name, type_, frozenset(each.metadata["name"] for each in entries(type_)))
    for entry, type_ in zip(
        fields(Config),
        (ServerConfig, LogConfig, ShareGroupConfig, CoordinatorConfig),
        strict=True,
    )
)
