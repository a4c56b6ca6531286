"""Settings of a share consumer: names, defaults, ranges and their checks.

Options of Kafka's classic consumer that are group configs in share groups are refused with a
hint at the group config.  A setting that is accepted and ignored would mislead its user.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from sharegroup.client.settings.client_config import ClientConfig, ClientOptions, choose, positive
from sharegroup.client.settings.option_values import (
    AcknowledgementMode,
    OnDeserializationError,
    StartFrom,
)
from sharegroup.errors import InvalidConfig
from sharegroup.protocol_enums import AcquireMode

Deserializer = Callable[[bytes], Any]
AcknowledgementModeName = AcknowledgementMode | Literal["implicit", "explicit"]
AcquireModeName = AcquireMode | Literal["batch_optimized", "record_limit"]
StartFromName = StartFrom | Literal["earliest", "latest"]
OnDeserializationErrorName = OnDeserializationError | Literal["raise", "reject", "raw"]

GROUP_CONFIGS: dict[str, str] = {
    "auto_offset_reset": "start_from, or the group config share.auto.offset.reset",
    "isolation_level": "the group config share.isolation.level",
    "session_timeout_ms": "the group config share.session.timeout.ms",
    "heartbeat_interval_ms": "the group config share.heartbeat.interval.ms",
    "enable_auto_commit": "share_acknowledgement_mode",
    "group_instance_id": "nothing: share groups have no static members",
    "partition_assignment_strategy": "the broker's group.share.assignors",
    "group_remote_assignor": "the broker's group.share.assignors",
    "group_protocol": "nothing: a ShareConsumer is always in a share group",
    "interceptor_classes": "set_acknowledgement_commit_callback",
    "max_partition_fetch_bytes": "fetch_max_bytes",
}
"""Kafka's options that a share consumer does not have, and what to use instead.

Group configs are changed with `AdminClient.incremental_alter_configs`.
"""


class ShareConsumerOptions(ClientOptions, total=False):
    """Options of a ShareConsumer."""

    group_id: str
    client_rack: str | None
    start_from: StartFromName | None
    share_acknowledgement_mode: AcknowledgementModeName
    share_acquire_mode: AcquireModeName
    in_flight_max: int | None
    in_flight_bytes: int | None
    auto_renew: bool
    renew_age_max_ms: int
    max_poll_records: int
    max_poll_interval_ms: int
    fetch_ahead_ms: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    decompressed_bytes_max: int
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None
    on_deserialization_error: OnDeserializationErrorName


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerConfig(ClientConfig):
    """Settings of a ShareConsumer; docs/client-options.md lists them."""

    elsewhere: ClassVar[Mapping[str, str]] = GROUP_CONFIGS
    metrics_group: ClassVar[str] = "consumer-metrics"
    topic_operation: ClassVar[str] = "READ"
    group_operation: ClassVar[str] = "READ"

    connections_max_idle_ms: int = -1
    """Time without requests after which a connection is closed; -1: never.

    A share session ends with its connection, and with it every acquisition lock.
    """
    group_id: str = ""
    """Id of the share group; required."""
    client_rack: str | None = None
    """Rack of this client; it is sent to the group coordinator."""
    start_from: StartFrom | None = None
    """Where the group starts in topics that it has no offsets for; None: as the group is set.

    The consumer sets the group config ``share.auto.offset.reset``, so the choice holds for all
    members and for topics and partitions that the group reads later.
    """
    share_acknowledgement_mode: AcknowledgementMode = AcknowledgementMode.IMPLICIT
    """Who acknowledges: the next poll (``implicit``) or the application (``explicit``)."""
    share_acquire_mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED
    """Whether the broker may lock whole log batches, or never more than was requested.

    ``batch_optimized`` is faster; ``record_limit`` (Apache Kafka 4.2 and later) is exact.
    """
    in_flight_max: int | None = None
    """Maximum number of unsettled records that are handed out, over several polls.

    For explicit mode only.  None means Kafka's rule: every record has to be settled before the
    next poll.
    """
    in_flight_bytes: int | None = None
    """Maximum size of these records in bytes on the wire; None: no limit.

    The size of a record is the average of its fetch.  For explicit mode only.
    """
    auto_renew: bool = False
    """Whether to renew the acquisition locks of unsettled records until ``renew_age_max_ms``.

    This includes records that wait in the consumer and are not handed out yet.
    """
    renew_age_max_ms: int = 300_000
    """Age from which ``auto_renew`` no longer renews a lock, because its handler probably hangs."""
    max_poll_records: int = 500
    """Maximum number of records of one poll, and of one fetch."""
    max_poll_interval_ms: int = 300_000
    """Maximum time between polls; after it the consumer leaves the group until the next poll."""
    fetch_ahead_ms: int = 100
    """Time between two polls up to which the next records are fetched ahead; 0: never.

    Records that are fetched ahead wait in the consumer, and their locks run meanwhile.
    """
    fetch_min_bytes: int = 1
    """Size of records for which a broker waits, up to ``fetch_max_wait_ms``."""
    fetch_max_bytes: int = 50 * 1024 * 1024
    """Size of records after which a broker ends its answer; one batch may exceed it."""
    fetch_max_wait_ms: int = 500
    """Time that a broker holds a fetch while it has fewer than ``fetch_min_bytes``."""
    decompressed_bytes_max: int = 128 * 1024 * 1024
    """Maximum decompressed size of a batch that is read as a whole, and of a record.

    A larger batch is read in pieces; a larger record is unreadable, without its neighbours.
    """
    key_deserializer: Deserializer | None = None
    """Function that makes the key from bytes; None: keys stay bytes."""
    value_deserializer: Deserializer | None = None
    """Function that makes the value from bytes; None: values stay bytes."""
    on_deserialization_error: OnDeserializationError = OnDeserializationError.RAISE
    """Action when a deserializer fails: ``raise``, ``reject``, or ``raw`` for the bytes."""

    def __post_init__(self) -> None:
        # Not `super()`, which finds the class before `slots=True` has made another one of it.
        super(ShareConsumerConfig, self).__post_init__()
        if not self.group_id:
            raise InvalidConfig("group_id is missing: a ShareConsumer is a member of a share group")
        choose(self, "share_acknowledgement_mode", AcknowledgementMode)
        choose(self, "share_acquire_mode", AcquireMode)
        if self.start_from is not None:
            choose(self, "start_from", StartFrom, "None")
        choose(self, "on_deserialization_error", OnDeserializationError)
        for name in ("key_deserializer", "value_deserializer"):
            if (deserializer := getattr(self, name)) is not None and not callable(deserializer):
                raise InvalidConfig(
                    f"{name}={deserializer!r}; expected a function of bytes, or None"
                )
        positive(
            self,
            "renew_age_max_ms",
            "max_poll_records",
            "max_poll_interval_ms",
            "fetch_max_bytes",
            "decompressed_bytes_max",
        )
        if self.fetch_min_bytes < 0 or self.fetch_max_wait_ms < 0 or self.fetch_ahead_ms < 0:
            raise InvalidConfig(
                "fetch_min_bytes, fetch_max_wait_ms and fetch_ahead_ms must be 0 or more"
            )
        self._check_window()

    def _check_window(self) -> None:
        for name in ("in_flight_max", "in_flight_bytes"):
            limit = getattr(self, name)
            if limit is not None and limit < 1:
                raise InvalidConfig(f"{name}={limit}; expected 1 or more, or None")
        if self.explicit:
            return
        if self.has_window:
            raise InvalidConfig(
                "in_flight_max and in_flight_bytes need share_acknowledgement_mode='explicit': in "
                "implicit mode every poll settles the records of the previous poll"
            )
        if self.on_deserialization_error is OnDeserializationError.RAW:
            raise InvalidConfig(
                "on_deserialization_error='raw' needs share_acknowledgement_mode='explicit': in "
                "implicit mode the next poll would accept records that could not be read"
            )

    @property
    def has_window(self) -> bool:
        """Whether records may stay unsettled over several polls: a window limits them."""
        return self.in_flight_max is not None or self.in_flight_bytes is not None

    @property
    def explicit(self) -> bool:
        """Whether the mode is explicit: the application acknowledges every record itself."""
        return self.share_acknowledgement_mode is AcknowledgementMode.EXPLICIT
