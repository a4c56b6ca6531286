"""Configuration of consumer groups: of the protocol of KIP-848, of the classic one, and offsets.

A modern group's own value is bounded by two keys of the broker, a least and a greatest value.
"""

from __future__ import annotations

from sharegroup.broker.configuration.config_values import INT_MAX, ConfigPart, ConfigType, key
from sharegroup.core.groups.classic import sizes as classic_sizes
from sharegroup.core.groups.modern import sizes as modern_sizes

ASSIGNOR_CLASSES = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
"""The names of the assignors by the names of Kafka's classes, which also name them."""

POLICIES = ("bidirectional", "upgrade", "downgrade", "disabled")


class ModernGroupConfig(ConfigPart):
    """The broker's settings for groups of the consumer protocol."""

    session_timeout_ms: int = key(
        "group.consumer.session.timeout.ms",
        45_000,
        "Time without a heartbeat after which a member is removed; group default.",
        low=1,
    )
    session_timeout_ms_min: int = key(
        "group.consumer.min.session.timeout.ms",
        45_000,
        "Minimum session timeout of a group.",
        low=1,
    )
    session_timeout_ms_max: int = key(
        "group.consumer.max.session.timeout.ms",
        60_000,
        "Maximum session timeout of a group.",
        low=1,
    )
    heartbeat_interval_ms: int = key(
        "group.consumer.heartbeat.interval.ms", 5_000, "Heartbeat interval; group default.", low=1
    )
    heartbeat_interval_ms_min: int = key(
        "group.consumer.min.heartbeat.interval.ms",
        5_000,
        "Minimum heartbeat interval of a group.",
        low=1,
    )
    heartbeat_interval_ms_max: int = key(
        "group.consumer.max.heartbeat.interval.ms",
        15_000,
        "Maximum heartbeat interval of a group.",
        low=1,
    )
    members_max: int = key(
        "group.consumer.max.size", INT_MAX, "Maximum number of members of a group.", low=1
    )
    assignors: tuple[str, ...] = key(
        "group.consumer.assignors",
        ("uniform", "range"),
        "Assignors that members may ask for; the first one is used if none does.",
        choices=("uniform", "range", *ASSIGNOR_CLASSES),
        low=1,
        fixed=True,
    )
    migration_policy: str = key(
        "group.consumer.migration.policy",
        "bidirectional",
        "Whether a classic group with members may become a group of the consumer protocol "
        "(`upgrade`), the reverse (`downgrade`), both (`bidirectional`) or none (`disabled`).",
        choices=(*POLICIES, *map(str.upper, POLICIES)),
        fixed=True,
    )
    assignment_interval_ms: int = key(
        "group.consumer.assignment.interval.ms",
        1_000,
        "Minimum time between two assignments; group default.",
        low=0,
    )
    assignment_interval_ms_min: int = key(
        "group.consumer.min.assignment.interval.ms",
        0,
        "Minimum assignment interval of a group.",
        low=0,
    )
    assignment_interval_ms_max: int = key(
        "group.consumer.max.assignment.interval.ms",
        15_000,
        "Maximum assignment interval of a group.",
        low=0,
    )
    assignor_offload: bool = key(
        "group.consumer.assignor.offload.enable",
        True,
        "The broker computes an assignment immediately; this takes milliseconds.",
        internal=True,
        effect=False,
    )
    member_topics_max: int = key(
        "sharegroup.consumer.member.topics.max",
        modern_sizes.TOPIC_NAMES_MAX,
        "Maximum number of topics that a member may subscribe to by name.",
        low=1,
    )
    groups_bytes_max: int = key(
        "sharegroup.consumer.groups.bytes.max",
        modern_sizes.ALL_BYTES_MAX,
        "Maximum memory for the members, topic names and assigned partitions of all groups of "
        "the consumer protocol.",
        kind=ConfigType.LONG,
        low=0,
    )


BOUNDED = ("session_timeout_ms", "heartbeat_interval_ms", "assignment_interval_ms")
"""The fields that have a least and a greatest value beside them."""


class ConsumerGroupConfig(ConfigPart):
    """Settings of consumer groups and of their committed offsets."""

    protocols: tuple[str, ...] = key(
        "group.coordinator.rebalance.protocols",
        ("classic", "consumer", "streams"),
        "The features `group.version` and `share.version` enable the consumer protocol and share "
        "groups.",
        choices=("classic", "consumer", "streams", "share"),
        low=1,
        fixed=True,
    )
    session_timeout_ms_min: int = key(
        "group.min.session.timeout.ms",
        1_000,
        "Minimum session timeout of a member of a consumer group.",
        low=0,
    )
    session_timeout_ms_max: int = key(
        "group.max.session.timeout.ms",
        1_800_000,
        "Maximum session timeout of a member of a consumer group.",
        low=0,
    )
    members_max: int = key(
        "group.max.size", 1_000, "Maximum number of members of a consumer group.", low=1
    )
    rebalance_delay_ms: int = key(
        "group.initial.rebalance.delay.ms",
        0,
        "Time for which a new group waits for more members before its first assignment.",
        low=0,
    )
    offset_metadata_bytes_max: int = key(
        "offset.metadata.max.bytes",
        4_096,
        "Maximum size of the metadata of a committed offset.",
        low=0,
    )
    offsets_bytes_max: int = key(
        "sharegroup.committed.offsets.bytes.max",
        classic_sizes.ALL_OFFSETS_BYTES_MAX,
        "Maximum memory for the committed offsets of all consumer groups; one group may use half "
        "of it.",
        kind=ConfigType.LONG,
        low=1,
    )
    offsets_retention_minutes: int = key(
        "offsets.retention.minutes",
        10_080,
        "Time for which the offsets of a group without members are kept.",
        low=1,
    )
    offsets_check_ms: int = key(
        "offsets.retention.check.interval.ms",
        600_000,
        "Interval between checks for expired committed offsets.",
        kind=ConfigType.LONG,
        low=1,
    )
