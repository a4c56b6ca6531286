"""The settings of a share consumer: names, defaults and ranges, checked once.

What the share protocol decides on the broker, per group, is refused here with a hint where it
lives now: a setting that is taken and ignored costs its user a day.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from sharegroup.client.config import ClientConfig, ClientOptions, one_of, positive
from sharegroup.errors import InvalidConfig

Deserializer = Callable[[bytes], Any]
AcknowledgementMode = Literal["implicit", "explicit"]
AcquireMode = Literal["batch_optimized", "record_limit"]
OnDeserializationError = Literal["raise", "reject", "raw"]

GROUP_CONFIGS: dict[str, str] = {
    "auto_offset_reset": "the group config share.auto.offset.reset",
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
"""What a share consumer does not take, and what to use instead; group configs are changed with
`AdminClient.incremental_alter_configs`."""


class ShareConsumerOptions(ClientOptions, total=False):
    """Options of a ShareConsumer."""

    group_id: str
    client_rack: str | None
    share_acknowledgement_mode: AcknowledgementMode
    share_acquire_mode: AcquireMode
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
    on_deserialization_error: OnDeserializationError


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerConfig(ClientConfig):
    """See docs/config.md and Kafka's share consumer configs of the same names."""

    elsewhere: ClassVar[Mapping[str, str]] = GROUP_CONFIGS
    metrics_group: ClassVar[str] = "consumer-metrics"

    group_id: str = ""
    client_rack: str | None = None
    share_acknowledgement_mode: AcknowledgementMode = "implicit"
    share_acquire_mode: AcquireMode = "batch_optimized"
    in_flight_max: int | None = None
    """Explicit mode: so many records may be handed out and not settled, over several polls.

    None: Kafka's rule, every record has to be settled before the next poll.
    """
    in_flight_bytes: int | None = None
    """The same in bytes as on the wire, an average for each fetch; None: no limit."""
    auto_renew: bool = False
    """Renew the locks of what is handed out or waits to be, until ``renew_age_max_ms``."""
    renew_age_max_ms: int = 300_000
    """A lock that old is let go: whoever holds a record for so long hangs."""
    max_poll_records: int = 500
    max_poll_interval_ms: int = 300_000
    """A consumer that isn't polled for so long leaves the group until it is again."""
    fetch_ahead_ms: int = 100
    """The next records are fetched while the application works, as long as it comes back within
    so long; 0: never.  What is fetched ahead is locked while it waits."""
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 50 * 1024 * 1024
    fetch_max_wait_ms: int = 500
    decompressed_bytes_max: int = 128 * 1024 * 1024
    """A record batch that grows beyond this is treated as corrupt."""
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    on_deserialization_error: OnDeserializationError = "raise"

    def __post_init__(self) -> None:
        super(ShareConsumerConfig, self).__post_init__()
        if not self.group_id:
            raise InvalidConfig("group_id is missing: a ShareConsumer is a member of a share group")
        one_of(self, "share_acknowledgement_mode", "implicit", "explicit")
        one_of(self, "share_acquire_mode", "batch_optimized", "record_limit")
        one_of(self, "on_deserialization_error", "raise", "reject", "raw")
        for name in ("key_deserializer", "value_deserializer"):
            if (given := getattr(self, name)) is not None and not callable(given):
                raise InvalidConfig(f"{name}={given!r}; expected a function of bytes, or None")
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
                "in_flight_max and in_flight_bytes need share_acknowledgement_mode='explicit': "
                "in implicit mode every poll settles what the one before returned"
            )
        if self.on_deserialization_error == "raw":
            raise InvalidConfig(
                "on_deserialization_error='raw' needs share_acknowledgement_mode='explicit': "
                "in implicit mode the next poll would accept what could not be read"
            )

    @property
    def has_window(self) -> bool:
        """Whether records may stay unsettled over several polls."""
        return self.in_flight_max is not None or self.in_flight_bytes is not None

    @property
    def explicit(self) -> bool:
        """Whether the application settles every record itself."""
        return self.share_acknowledgement_mode == "explicit"
