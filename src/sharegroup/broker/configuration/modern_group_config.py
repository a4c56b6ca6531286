"""Configuration of consumer groups of the protocol of KIP-848 (``group.protocol=consumer``).

A group's own value is bounded by two keys of the broker, a least and a greatest value.
"""

from __future__ import annotations

from sharegroup.broker.configuration.config_values import INT_MAX, ConfigPart, ConfigType, key
from sharegroup.core.groups.modern import sizes

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
    regex_refresh_interval_ms: int = key(
        "group.consumer.regex.refresh.interval.ms",
        600_000,
        "A regular expression is matched again whenever topics are created or deleted.",
        low=10_000,
        internal=True,
        effect=False,
    )
    member_topics_max: int = key(
        "sharegroup.consumer.member.topics.max",
        sizes.TOPIC_NAMES_MAX,
        "Maximum number of topics that a member may subscribe to by name.",
        low=1,
    )
    groups_bytes_max: int = key(
        "sharegroup.consumer.groups.bytes.max",
        sizes.ALL_BYTES_MAX,
        "Maximum memory for the members, topic names and assigned partitions of all groups of "
        "the consumer protocol.",
        kind=ConfigType.LONG,
        low=0,
    )


BOUNDED = ("session_timeout_ms", "heartbeat_interval_ms", "assignment_interval_ms")
"""The fields that have a least and a greatest value beside them."""
