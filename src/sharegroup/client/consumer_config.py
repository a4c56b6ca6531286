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
    max_poll_records: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    decompressed_bytes_max: int
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerConfig(ClientConfig):
    """See docs/config.md and Kafka's share consumer configs of the same names."""

    elsewhere: ClassVar[Mapping[str, str]] = GROUP_CONFIGS

    group_id: str = ""
    client_rack: str | None = None
    share_acknowledgement_mode: AcknowledgementMode = "implicit"
    share_acquire_mode: AcquireMode = "batch_optimized"
    max_poll_records: int = 500
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 50 * 1024 * 1024
    fetch_max_wait_ms: int = 500
    decompressed_bytes_max: int = 128 * 1024 * 1024
    """A record batch that grows beyond this is treated as corrupt."""
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None

    def __post_init__(self) -> None:
        super(ShareConsumerConfig, self).__post_init__()
        if not self.group_id:
            raise InvalidConfig("group_id is missing: a ShareConsumer is a member of a share group")
        one_of(self, "share_acknowledgement_mode", "implicit", "explicit")
        one_of(self, "share_acquire_mode", "batch_optimized", "record_limit")
        positive(self, "max_poll_records", "fetch_max_bytes", "decompressed_bytes_max")
        if self.fetch_min_bytes < 0 or self.fetch_max_wait_ms < 0:
            raise InvalidConfig("fetch_min_bytes and fetch_max_wait_ms must be 0 or more")

    @property
    def explicit(self) -> bool:
        """Whether the application settles every record itself."""
        return self.share_acknowledgement_mode == "explicit"
