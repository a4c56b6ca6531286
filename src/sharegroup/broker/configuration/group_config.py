"""Configuration of groups: their own settings, share groups, internal topics.

A share group's own value is bounded by two keys of the broker, a least and a greatest value
(KIP-1240): the field ``lock_ms`` has ``lock_ms_min`` and ``lock_ms_max`` beside it.
"""

from __future__ import annotations

from typing import Any, Unpack

from sharegroup.broker.configuration import consumer_group_config
from sharegroup.broker.configuration.config_values import (
    ConfigPart,
    ConfigType,
    KeyOptions,
    entries,
    inherited,
    key,
)
from sharegroup.broker.configuration.consumer_group_config import ModernGroupConfig
from sharegroup.core.groups.share import sizes as share_group_sizes
from sharegroup.core.sessions import user_part as session_sizes
from sharegroup.errors import InvalidConfig
from sharegroup.protocol_enums import DELAY_MS_MAX

DEFAULT_PERSISTER = "org.apache.kafka.server.share.persister.DefaultStatePersister"
NO_OP_PERSISTER = "org.apache.kafka.server.share.persister.NoOpStatePersister"
DEFAULT_DEAD_LETTERS = "org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager"
NO_OP_DEAD_LETTERS = "org.apache.kafka.server.share.dlq.NoOpShareGroupDLQManager"


class ShareGroupConfig(ConfigPart):
    """The broker's settings for share groups, used if a group does not set its own."""

    session_timeout_ms: int = key(
        "group.share.session.timeout.ms",
        45_000,
        "Time without a heartbeat after which a member is removed; group default.",
        low=1,
    )
    session_timeout_ms_min: int = key(
        "group.share.min.session.timeout.ms", 45_000, "Minimum session timeout of a group.", low=1
    )
    session_timeout_ms_max: int = key(
        "group.share.max.session.timeout.ms", 60_000, "Maximum session timeout of a group.", low=1
    )
    heartbeat_interval_ms: int = key(
        "group.share.heartbeat.interval.ms", 5_000, "Heartbeat interval; group default.", low=1
    )
    heartbeat_interval_ms_min: int = key(
        "group.share.min.heartbeat.interval.ms",
        5_000,
        "Minimum heartbeat interval of a group.",
        low=1,
    )
    heartbeat_interval_ms_max: int = key(
        "group.share.max.heartbeat.interval.ms",
        15_000,
        "Maximum heartbeat interval of a group.",
        low=1,
    )
    members_max: int = key(
        "group.share.max.size", 200, "Maximum number of members of a group.", low=1, high=1_000
    )
    assignors: tuple[str, ...] = key(
        "group.share.assignors",
        ("simple",),
        "Assignor that assigns partitions to members, unless a group has "
        "`sharegroup.assignment=wide`; `simple` is the only one.",
        choices=("simple", "org.apache.kafka.coordinator.group.assignor.SimpleAssignor"),
        low=1,
        high=1,
        fixed=True,
    )
    assignment_interval_ms: int = key(
        "group.share.assignment.interval.ms",
        1_000,
        "Minimum time between two assignments; group default.",
        low=0,
    )
    assignment_interval_ms_min: int = key(
        "group.share.min.assignment.interval.ms",
        0,
        "Minimum assignment interval of a group.",
        low=0,
    )
    assignment_interval_ms_max: int = key(
        "group.share.max.assignment.interval.ms",
        15_000,
        "Maximum assignment interval of a group.",
        low=0,
    )
    member_partitions_max: int = key(
        "sharegroup.assignment.member.partitions.max",
        32,
        "Maximum number of partitions of a member in groups with `sharegroup.assignment=wide`; a "
        "partition without a member wins over it.",
        low=1,
        high=256,
    )
    partition_members_max: int = key(
        "sharegroup.assignment.partition.members.max",
        16,
        "Maximum number of members of a partition in groups with `sharegroup.assignment=wide`; a "
        "member without a partition wins over it.",
        low=1,
        high=64,
    )
    assignor_offload: bool = key(
        "group.share.assignor.offload.enable",
        True,
        "The broker computes an assignment immediately; this takes milliseconds.",
        internal=True,
        effect=False,
    )
    delivery_count_max: int = key(
        "group.share.delivery.count.limit",
        5,
        "Number of deliveries after which a record is archived; group default.",
        low=2,
        high=10,
    )
    delivery_count_max_min: int = key(
        "group.share.min.delivery.count.limit",
        2,
        "Minimum delivery count limit that a group may set.",
        low=2,
        high=5,
    )
    delivery_count_max_max: int = key(
        "group.share.max.delivery.count.limit",
        10,
        "Maximum delivery count limit that a group may set.",
        low=5,
        high=25,
    )
    lock_ms: int = key(
        "group.share.record.lock.duration.ms",
        30_000,
        "Duration of the lock of a delivered record; group default.",
        low=1_000,
        high=3_600_000,
    )
    lock_ms_min: int = key(
        "group.share.min.record.lock.duration.ms",
        15_000,
        "Minimum lock duration that a group may set.",
        low=1_000,
        high=30_000,
    )
    lock_ms_max: int = key(
        "group.share.max.record.lock.duration.ms",
        60_000,
        "Maximum lock duration that a group may set.",
        low=30_000,
        high=3_600_000,
    )
    in_flight_max: int = key(
        "group.share.partition.max.record.locks",
        2_000,
        "Maximum number of records of a share partition that are locked or wait for redelivery; "
        "default for groups.",
        low=100,
        high=1_000_000,
    )
    in_flight_max_min: int = key(
        "group.share.min.partition.max.record.locks",
        100,
        "Minimum number of record locks that a group may set.",
        low=100,
        high=2_000,
    )
    in_flight_max_max: int = key(
        "group.share.max.partition.max.record.locks",
        1_000_000,
        "Maximum number of record locks that a group may set (Kafka: 4,000).",
        low=2_000,
        high=1_000_000,
    )
    runs_max: int = key(
        "sharegroup.share.partition.runs.max",
        20_000,
        "Maximum number of runs (neighbouring offsets in the same delivery state) of a share "
        "partition; at the limit, it delivers no new records until some are settled.",
        low=100,
        high=1_000_000,
    )
    completion_records_max: int = key(
        "sharegroup.share.partition.batch.completion.max.records",
        10_000,
        "Maximum number of records of a log batch that a fetch may complete although that exceeds "
        "`share.partition.max.record.locks`; 0: that limit is never exceeded. A fetch with "
        "`record_limit` never exceeds it.",
        low=0,
        high=1_000_000,
    )
    completion_bytes_max: int = key(
        "sharegroup.share.partition.batch.completion.max.bytes",
        1_048_576,
        "Maximum size of a log batch that a fetch may complete in the same way.",
        low=0,
    )
    sessions_max: int = key(
        "group.share.max.share.sessions",
        2_000,
        "Maximum number of share sessions of this broker; must be at least `group.share.max.size`.",
        low=1,
        fixed=True,
    )
    member_topics_max: int = key(
        "sharegroup.share.member.topics.max",
        share_group_sizes.TOPIC_NAMES_MAX,
        "Maximum number of topics that a member of a share group may subscribe to.",
        low=1,
    )
    groups_bytes_max: int = key(
        "sharegroup.share.groups.bytes.max",
        share_group_sizes.ALL_BYTES_MAX,
        "Maximum memory for the ids, members and topic names of all share groups.",
        kind=ConfigType.LONG,
        low=0,
    )
    share_partitions_max: int = key(
        "sharegroup.share.partitions.max",
        share_group_sizes.ALL_PARTITIONS_MAX,
        "Maximum number of share partitions of all groups.",
        low=1,
    )
    session_partitions_max: int = key(
        "sharegroup.share.session.partitions.max",
        session_sizes.ALL_PARTITIONS_MAX,
        "Maximum number of partitions in all share sessions, counted once per session.",
        low=1,
        fixed=True,
    )
    persister: str = key(
        "group.share.persister.class.name",
        DEFAULT_PERSISTER,
        "Class that stores share state; `NoOpStatePersister` stores nothing.",
        choices=(DEFAULT_PERSISTER, NO_OP_PERSISTER, ""),
        internal=True,
        fixed=True,
    )
    dead_letter_writer: str = key(
        "group.share.dlq.manager.class.name",
        DEFAULT_DEAD_LETTERS,
        "Class that writes dead letters; `NoOpShareGroupDLQManager` writes none.",
        choices=(DEFAULT_DEAD_LETTERS, NO_OP_DEAD_LETTERS, ""),
        internal=True,
        fixed=True,
    )
    dead_letter_auto_create: bool = key(
        "errors.deadletterqueue.auto.create.topics.enable",
        False,
        "Create the dead-letter topic of a group when it is first needed (KIP-1191).",
    )
    dead_letter_prefix: str = key(
        "errors.deadletterqueue.topic.name.prefix",
        "dlq.",
        "Prefix that the name of a dead-letter topic must have; empty: any name.",
    )


BOUNDED = (*consumer_group_config.BOUNDED, "delivery_count_max", "lock_ms", "in_flight_max")
"""The fields that have a least and a greatest value beside them."""


def check_groups(config: ShareGroupConfig | ModernGroupConfig) -> None:
    """Raise InvalidConfig if values contradict each other, although each is in its own range."""
    is_share = isinstance(config, ShareGroupConfig)
    pairs = [
        pair
        for field in (BOUNDED if is_share else consumer_group_config.BOUNDED)
        for pair in ((f"{field}_min", field), (field, f"{field}_max"))
    ]
    if is_share:
        pairs.append(("members_max", "sessions_max"))
    names = {entry.name: entry.metadata["name"] for entry in entries(config)}
    for lower, higher in pairs:
        low, high = getattr(config, lower), getattr(config, higher)
        if low > high:
            raise InvalidConfig(
                f"{names[lower]}={low} must not be larger than {names[higher]}={high}"
            )
    if config.session_timeout_ms <= config.heartbeat_interval_ms:
        raise InvalidConfig(
            f"{names['session_timeout_ms']}={config.session_timeout_ms} must be larger than "
            f"{names['heartbeat_interval_ms']}={config.heartbeat_interval_ms}"
        )


def _of_share_groups(name: str, text: str, **different: Unpack[KeyOptions]) -> Any:
    return inherited(ShareGroupConfig, name, f"group.{name}", text, **different)


def _of_modern_groups(name: str, text: str) -> Any:
    return inherited(ModernGroupConfig, name, f"group.{name}", text)


class GroupConfig(ConfigPart):
    """A group's own settings (KIP-848, KIP-932); None means that the broker's value is used.

    Keys that begin with ``consumer.`` are for groups of the consumer protocol, all others for share
    groups.
    """

    consumer_session_timeout_ms: int | None = _of_modern_groups(
        "consumer.session.timeout.ms",
        "Time without a heartbeat after which a member of this consumer group is removed.",
    )
    consumer_heartbeat_interval_ms: int | None = _of_modern_groups(
        "consumer.heartbeat.interval.ms",
        "Interval between heartbeats of the members of this consumer group.",
    )
    consumer_assignment_interval_ms: int | None = _of_modern_groups(
        "consumer.assignment.interval.ms",
        "Minimum time between two assignments of this consumer group.",
    )
    consumer_assignor_offload: bool | None = _of_modern_groups(
        "consumer.assignor.offload.enable",
        "The broker computes an assignment of this group immediately; this takes milliseconds.",
    )

    session_timeout_ms: int | None = _of_share_groups(
        "share.session.timeout.ms",
        "Time without a heartbeat after which a member of this group is removed.",
    )
    heartbeat_interval_ms: int | None = _of_share_groups(
        "share.heartbeat.interval.ms",
        "Interval between heartbeats of the members of this group.",
    )
    lock_ms: int | None = _of_share_groups(
        "share.record.lock.duration.ms",
        "Duration of the lock of a record that is delivered to this group.",
        high=None,
    )
    delivery_count_max: int | None = _of_share_groups(
        "share.delivery.count.limit",
        "Number of deliveries to this group after which a record is archived.",
        high=None,
    )
    in_flight_max: int | None = _of_share_groups(
        "share.partition.max.record.locks",
        "Maximum number of records of a share partition of this group that are locked or wait for "
        "redelivery.",
        high=None,
    )
    assignment_interval_ms: int | None = _of_share_groups(
        "share.assignment.interval.ms",
        "Minimum time between two assignments of this group.",
    )
    assignor_offload: bool | None = _of_share_groups(
        "share.assignor.offload.enable",
        "The broker computes an assignment of this group immediately; this takes milliseconds.",
    )
    renewal: bool = key(
        "share.renew.acknowledge.enable",
        True,
        "Whether members of this group may renew their locks (KIP-1222).",
    )
    auto_offset_reset: str = key(
        "share.auto.offset.reset",
        "latest",
        "Position at which a new group starts: latest, earliest or by_duration:PnDTnHnMn.nS.",
    )
    isolation_level: str = key(
        "share.isolation.level",
        "read_uncommitted",
        "Whether records of open and aborted transactions are delivered (`read_uncommitted`).",
        choices=("read_uncommitted", "read_committed"),
    )
    dead_letter_topic: str = key(
        "errors.deadletterqueue.topic.name",
        "",
        "Topic for records that could not be processed; empty: the records are archived without a "
        "dead letter.",
    )
    dead_letter_copy: bool = key(
        "errors.deadletterqueue.copy.record.enable",
        False,
        "Whether a dead letter contains the key, value and headers of the record, or only its "
        "topic, partition and offset.",
    )
    assignment: str = key(
        "sharegroup.assignment",
        "simple",
        "How many partitions each member of this share group reads: as few as possible (`simple`), "
        "or many, so that members without work help those with much (`wide`).",
        choices=("simple", "wide"),
    )
    paused: bool = key(
        "sharegroup.paused",
        False,
        "While true, members of this share group receive no records; what they hold they can still "
        "acknowledge, release and renew. Apache Kafka has no such setting.",
    )
    order_by: str = key(
        "sharegroup.order.by",
        "none",
        "With `key`, members of this share group receive one record of a key at a time within a "
        "partition, in the order of the log. Apache Kafka has no such setting.",
        choices=("none", "key"),
    )
    redelivery_delay_ms: int = key(
        "sharegroup.redelivery.delay.ms",
        0,
        "Time after which a record that a member of this share group releases is delivered again; "
        "it doubles with each delivery. 0: at once. Apache Kafka has no such setting.",
        low=0,
        high=DELAY_MS_MAX,
    )
    redelivery_delay_ms_max: int = key(
        "sharegroup.redelivery.delay.max.ms",
        600_000,
        "The longest time that `sharegroup.redelivery.delay.ms` grows to.",
        low=0,
        high=DELAY_MS_MAX,
    )
    breaker_percent: int = key(
        "sharegroup.breaker.failure.percent",
        0,
        "Percentage of the last `sharegroup.breaker.window` records of this share group that may "
        "be rejected or exhaust their deliveries before delivery stops; 0: it never stops.",
        low=0,
        high=100,
    )
    breaker_window: int = key(
        "sharegroup.breaker.window",
        100,
        "Number of the group's last settled records that `sharegroup.breaker.failure.percent` "
        "refers to.",
        low=1,
        high=10_000,
    )
    breaker_pause_ms: int = key(
        "sharegroup.breaker.pause.ms",
        30_000,
        "Time after which one record is delivered to find out whether records succeed again.",
        low=1,
        high=3_600_000,
    )


class CoordinatorConfig(ConfigPart):
    """Settings of the two internal topics for group state and delivery state."""

    state_partitions: int = key(
        "share.coordinator.state.topic.num.partitions",
        50,
        "Number of partitions of `__share_group_state`; fixed when the topic is created.",
        low=1,
    )
    state_segment_bytes: int = key(
        "share.coordinator.state.topic.segment.bytes",
        104_857_600,
        "Segment size of `__share_group_state`.",
        low=1_024,
    )
    updates_per_snapshot: int = key(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        "Number of updates of a share partition between two snapshots.",
        low=0,
        high=500,
    )
    prune_interval_ms: int = key(
        "share.coordinator.state.topic.prune.interval.ms",
        300_000,
        "Interval at which records that are no longer needed are deleted from "
        "`__share_group_state`.",
        low=1,
        internal=True,
    )
    cold_snapshot_ms: int = key(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        300_000,
        "Time without a write after which a share partition gets a new snapshot, so that older "
        "records can be deleted.",
        low=1,
        internal=True,
    )
    offsets_partitions: int = key(
        "offsets.topic.num.partitions",
        50,
        "Number of partitions of `__consumer_offsets`; fixed when the topic is created.",
        low=1,
    )
    offsets_segment_bytes: int = key(
        "offsets.topic.segment.bytes",
        104_857_600,
        "Segment size of `__consumer_offsets`.",
        low=1_024,
    )
