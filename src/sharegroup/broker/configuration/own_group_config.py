"""Configuration of one group, which takes precedence over the broker's (KIP-848, KIP-932)."""

from __future__ import annotations

from dataclasses import dataclass

from sharegroup.broker.configuration.config_values import key


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
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
