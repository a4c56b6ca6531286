"""Configuration of consumer groups of the protocol of KIP-848 (``group.protocol=consumer``).

A group's own value is bounded by two keys of the broker, a least and a greatest value.
"""

from __future__ import annotations

from sharegroup.broker.configuration.config_values import (
    INT_MAX,
    ConfigPart,
    ConfigType,
    entries,
    key,
)
from sharegroup.core.groups.consumer import sizes
from sharegroup.errors import InvalidConfig

# Configuration of one group, which takes precedence over the broker's (KIP-848, KIP-932).


class GroupConfig(ConfigPart):
    """A group's own settings; None means that the broker's value is used.

    Keys that begin with ``consumer.`` are for groups of the consumer protocol, all others for share
    groups.
    """

    consumer_session_timeout_ms: int | None = key(
        "consumer.session.timeout.ms",
        None,
        "Time without a heartbeat after which a member of this consumer group is removed.",
        low=1,
        synonym="group.consumer.session.timeout.ms",
    )
    consumer_heartbeat_interval_ms: int | None = key(
        "consumer.heartbeat.interval.ms",
        None,
        "Interval between heartbeats of the members of this consumer group.",
        low=1,
        synonym="group.consumer.heartbeat.interval.ms",
    )
    consumer_assignment_interval_ms: int | None = key(
        "consumer.assignment.interval.ms",
        None,
        "Minimum time between two assignments of this consumer group.",
        low=0,
        synonym="group.consumer.assignment.interval.ms",
    )
    consumer_assignor_offload: bool | None = key(
        "consumer.assignor.offload.enable",
        None,
        "The broker computes an assignment of this group immediately; this takes milliseconds.",
        synonym="group.consumer.assignor.offload.enable",
        internal=True,
        effect=False,
    )

    session_timeout_ms: int | None = key(
        "share.session.timeout.ms",
        None,
        "Time without a heartbeat after which a member of this group is removed.",
        low=1,
        synonym="group.share.session.timeout.ms",
    )
    heartbeat_interval_ms: int | None = key(
        "share.heartbeat.interval.ms",
        None,
        "Interval between heartbeats of the members of this group.",
        low=1,
        synonym="group.share.heartbeat.interval.ms",
    )
    lock_ms: int | None = key(
        "share.record.lock.duration.ms",
        None,
        "Duration of the lock of a record that is delivered to this group.",
        low=1_000,
        synonym="group.share.record.lock.duration.ms",
    )
    delivery_count_max: int | None = key(
        "share.delivery.count.limit",
        None,
        "Number of deliveries to this group after which a record is archived.",
        low=2,
        synonym="group.share.delivery.count.limit",
    )
    in_flight_max: int | None = key(
        "share.partition.max.record.locks",
        None,
        "Maximum number of records of a share partition of this group that are locked or wait for "
        "redelivery.",
        low=100,
        synonym="group.share.partition.max.record.locks",
    )
    assignment_interval_ms: int | None = key(
        "share.assignment.interval.ms",
        None,
        "Minimum time between two assignments of this group.",
        low=0,
        synonym="group.share.assignment.interval.ms",
    )
    assignor_offload: bool | None = key(
        "share.assignor.offload.enable",
        None,
        "The broker computes an assignment of this group immediately; this takes milliseconds.",
        synonym="group.share.assignor.offload.enable",
        internal=True,
        effect=False,
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


def check_modern_groups(config: ModernGroupConfig) -> None:
    """Raise InvalidConfig if values contradict each other, although each is in its own range."""
    names = {entry.name: entry.metadata["name"] for entry in entries(type(config))}
    pairs = [
        pair for field in BOUNDED for pair in ((f"{field}_min", field), (field, f"{field}_max"))
    ]
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
