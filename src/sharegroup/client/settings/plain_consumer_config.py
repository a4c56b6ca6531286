"""Settings of a `Consumer`, which reads partitions alone or as a member of a consumer group."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal

from sharegroup.client.settings.client_config import ClientOptions, ReadingConfig, choose, positive
from sharegroup.client.settings.consumer_config import Deserializer
from sharegroup.client.settings.option_values import (
    GroupProtocol,
    IsolationLevel,
    OnUnreadableRecord,
)
from sharegroup.errors import InvalidConfig

GroupProtocolName = GroupProtocol | Literal["classic", "consumer"]
IsolationLevelName = IsolationLevel | Literal["read_uncommitted", "read_committed"]
OnUnreadableRecordName = OnUnreadableRecord | Literal["raise", "raw"]

ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
"""The assignors of the classic protocol, by the names that members exchange."""
BY_DURATION = "by_duration:"
CLASSIC_ONLY = ("session_timeout_ms", "heartbeat_interval_ms", "partition_assignment_strategy")
"""Options of the classic protocol; in the consumer protocol the broker decides."""

_ISO_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?"
)
_UNIT_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


class ConsumerOptions(ClientOptions, total=False):
    """Options of a Consumer."""

    group_id: str | None
    group_instance_id: str | None
    group_protocol: GroupProtocolName
    group_remote_assignor: str | None
    partition_assignment_strategy: str | tuple[str, ...] | list[str]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    max_poll_records: int
    auto_offset_reset: str
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    isolation_level: IsolationLevelName
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    client_rack: str | None
    allow_auto_create_topics: bool
    decompressed_bytes_max: int
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None
    on_deserialization_error: OnUnreadableRecordName


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ReadingConfig):
    """Settings of a Consumer; docs/client-options.md lists them."""

    elsewhere: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "share_acknowledgement_mode": "a ShareConsumer: a Consumer commits offsets",
            "interceptor_classes": "the records that poll returns",
        }
    )
    metrics_group: ClassVar[str] = "consumer-metrics"

    group_id: str | None = None
    """Id of the consumer group; None: no group, for `assign` without commits."""
    group_instance_id: str | None = None
    """Name of a static member: its partitions stay its own while it restarts."""
    group_protocol: GroupProtocol = GroupProtocol.CLASSIC
    """Protocol of the group: ``classic``, or ``consumer``: the broker assigns (KIP-848)."""
    group_remote_assignor: str | None = None
    """Assignor of the broker, for the protocol ``consumer`` only; None: the broker's default."""
    partition_assignment_strategy: str | tuple[str, ...] | list[str] = (
        "range",
        "cooperative-sticky",
    )
    """Assignors of the protocol ``classic``, the preferred one first.

    ``range``, ``roundrobin``, ``sticky`` and ``cooperative-sticky``; the members of a group need
    one in common.  With ``cooperative-sticky`` alone, a rebalance takes only those partitions away
    that move.
    """
    session_timeout_ms: int = 45_000
    """Time without heartbeats after which the partitions go to other members; ``classic`` only."""
    heartbeat_interval_ms: int = 3_000
    """Time between heartbeats, below ``session_timeout_ms``; ``classic`` only."""
    max_poll_interval_ms: int = 300_000
    """Maximum time between polls; after it the consumer leaves the group until the next poll.

    It is also the time that a rebalance waits for this member.
    """
    max_poll_records: int = 500
    """Maximum number of records of one poll."""
    auto_offset_reset: str = "latest"
    """Where to start without a committed offset, and after records were deleted.

    ``earliest``, ``latest``, ``none`` to raise an error, or ``by_duration:`` with an ISO 8601
    duration, for example ``by_duration:PT1H`` for the records of the last hour.
    """
    enable_auto_commit: bool = True
    """Whether `poll` commits the positions before it, every ``auto_commit_interval_ms``.

    `close` and a rebalance commit them, too.
    """
    auto_commit_interval_ms: int = 5_000
    """Time between two automatic commits."""
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    """``read_committed`` leaves out the records of open and aborted transactions."""
    fetch_min_bytes: int = 1
    """Size of records for which a broker waits, up to ``fetch_max_wait_ms``."""
    fetch_max_bytes: int = 50 * 1024 * 1024
    """Size of records after which a broker ends its answer; one batch may exceed it.

    It also limits the records that are fetched ahead and wait in the consumer.
    """
    fetch_max_wait_ms: int = 500
    """Time that a broker holds a fetch while it has fewer than ``fetch_min_bytes``."""
    max_partition_fetch_bytes: int = 1024 * 1024
    """Size of the records of one partition in an answer; one batch may exceed it."""
    client_rack: str | None = None
    """Rack of this client; brokers may name a replica in the same rack to read from."""
    allow_auto_create_topics: bool = True
    """Whether a broker with ``auto.create.topics.enable`` creates a topic that does not exist.

    It does so when the consumer subscribes to the topic or is assigned a partition of it.
    """
    decompressed_bytes_max: int = 128 * 1024 * 1024
    """Maximum decompressed size of a batch that is read as a whole, and of a record.

    A larger batch is read in pieces; a larger record is unreadable, without its neighbours.
    """
    key_deserializer: Deserializer | None = None
    """Function that makes the key from bytes; None: keys stay bytes."""
    value_deserializer: Deserializer | None = None
    """Function that makes the value from bytes; None: values stay bytes."""
    on_deserialization_error: OnUnreadableRecord = OnUnreadableRecord.RAISE
    """Action when a deserializer fails: ``raise``, or ``raw`` for the record with its bytes."""

    def __post_init__(self) -> None:
        # Not `super()`, which finds the class before `slots=True` has made another one of it.
        super(ConsumerConfig, self).__post_init__()
        choose(self, "group_protocol", GroupProtocol)
        choose(self, "isolation_level", IsolationLevel)
        choose(self, "on_deserialization_error", OnUnreadableRecord)
        positive(
            self,
            "session_timeout_ms",
            "heartbeat_interval_ms",
            "max_poll_interval_ms",
            "max_poll_records",
            "auto_commit_interval_ms",
            "fetch_max_bytes",
            "max_partition_fetch_bytes",
            "decompressed_bytes_max",
        )
        for name in ("fetch_min_bytes", "fetch_max_wait_ms"):
            if getattr(self, name) < 0:
                raise InvalidConfig(f"{name}={getattr(self, name)}; expected 0 or more")
        for name in ("key_deserializer", "value_deserializer"):
            if (deserializer := getattr(self, name)) is not None and not callable(deserializer):
                raise InvalidConfig(
                    f"{name}={deserializer!r}; expected a function of bytes, or None"
                )
        self.reset_age_ms  # noqa: B018  Raises for an invalid auto_offset_reset.
        self._check_group()

    def _check_group(self) -> None:
        if self.group_id == "":
            raise InvalidConfig("group_id is empty; expected a name, or None for no group")
        if self.group_instance_id is not None and not self.group_id:
            raise InvalidConfig("group_instance_id needs group_id")
        strategy = self.partition_assignment_strategy
        names = (strategy,) if isinstance(strategy, str) else tuple(strategy)
        object.__setattr__(self, "partition_assignment_strategy", names)
        unknown = [name for name in names if name not in ASSIGNORS]
        if unknown or not names:
            raise InvalidConfig(
                f"partition_assignment_strategy={strategy!r}; expected one or more of "
                f"{', '.join(ASSIGNORS)}"
            )
        if self.group_protocol is GroupProtocol.CLASSIC:
            if self.group_remote_assignor is not None:
                raise InvalidConfig("group_remote_assignor needs group_protocol='consumer'")
            if self.heartbeat_interval_ms >= self.session_timeout_ms:
                raise InvalidConfig(
                    f"heartbeat_interval_ms={self.heartbeat_interval_ms}; expected less than "
                    f"session_timeout_ms={self.session_timeout_ms}"
                )
            return
        defaults = type(self).__dataclass_fields__
        for name in CLASSIC_ONLY:
            # Set to its default, an option cannot be told from one that is not set, and does no
            # harm.
            if getattr(self, name) != defaults[name].default:
                raise InvalidConfig(
                    f"{name} has no effect with group_protocol='consumer'; the broker's group "
                    "configs decide (consumer.session.timeout.ms, consumer.heartbeat.interval.ms), "
                    "and group_remote_assignor names the assignor"
                )

    @property
    def assignors(self) -> tuple[str, ...]:
        """The assignors of the classic protocol, the preferred one first."""
        return tuple(self.partition_assignment_strategy)

    @property
    def is_cooperative(self) -> bool:
        """Whether a member keeps its partitions during a rebalance of the classic protocol."""
        return self.assignors == ("cooperative-sticky",)

    @property
    def reads_committed(self) -> bool:
        """Whether records of open and aborted transactions are left out."""
        return self.isolation_level is IsolationLevel.READ_COMMITTED

    @property
    def reset_age_ms(self) -> int | None:
        """The age of ``by_duration``; None for the other values of ``auto_offset_reset``."""
        text = self.auto_offset_reset
        if text in ("earliest", "latest", "none"):
            return None
        if text.startswith(BY_DURATION):
            matched = _ISO_DURATION.fullmatch(text.removeprefix(BY_DURATION))
            parts = {} if matched is None else matched.groupdict()
            if any(number is not None for number in parts.values()):
                return sum(
                    round(float(number) * _UNIT_MS[unit])
                    for unit, number in parts.items()
                    if number is not None
                )
        raise InvalidConfig(
            f"auto_offset_reset={text!r}; expected earliest, latest, none, or by_duration: with an "
            "ISO 8601 duration, for example by_duration:PT1H30M"
        )
