"""What an AdminClient takes and returns: plain frozen data, names as in Kafka's own admin API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from sharegroup.client.records import TopicPartition

BROKER_DEFAULT = -1
"""As many partitions or replicas as the broker makes by default."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create."""

    name: str
    num_partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """Who has one partition: node ids, ``leader`` -1 while there is none."""

    partition: int
    leader: int
    leader_epoch: int | None
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as the cluster describes it."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]

    @property
    def leaders(self) -> tuple[int, ...]:
        """A node id, or -1, by partition."""
        return tuple(one.leader for one in self.partitions)

    @property
    def partition_count(self) -> int:
        """How many partitions it has."""
        return len(self.partitions)


class ResourceType(IntEnum):
    """What a config belongs to; values as on the wire."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """One thing that has configs; a broker's name is its node id as text."""

    type: ResourceType
    name: str


class ConfigSource(IntEnum):
    """Where a config's value comes from; values as on the wire."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One config of one resource; ``value`` is None when it is secret or has none."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Whether nobody has set it."""
        return self.source is ConfigSource.DEFAULT


class ConfigOperation(IntEnum):
    """What to do to a config; values as on the wire."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class AlterConfig:
    """One change of one config; ``value`` is None for DELETE only."""

    name: str
    value: str | None
    operation: ConfigOperation = ConfigOperation.SET


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One group of any type."""

    group_id: str
    type: str
    """``share``, ``consumer``, ``classic`` or what else the broker knows, in lower case."""
    protocol_type: str
    state: str


@dataclass(frozen=True, slots=True)
class ShareMemberDescription:
    """One member of a share group and what it is assigned."""

    member_id: str
    client_id: str
    host: str
    rack_id: str | None
    member_epoch: int
    subscribed_topics: tuple[str, ...]
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ShareGroupDescription:
    """A share group as its coordinator describes it."""

    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: tuple[ShareMemberDescription, ...]
    coordinator_id: int


@dataclass(frozen=True, slots=True)
class SharePartitionOffset:
    """Where a group stands in one partition.

    None means unknown: a start offset that no state was written for yet, a lag or a leader
    epoch that the broker does not tell.  Unknown is not zero.
    """

    start_offset: int | None
    leader_epoch: int | None
    lag: int | None


@dataclass(frozen=True, slots=True)
class ConsumerMemberDescription:
    """One member of a consumer group.

    None means that the group's protocol has no such thing, or the member none.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    rack_id: str | None
    member_epoch: int | None
    subscribed_topics: tuple[str, ...]
    """Empty in a classic group, where only the members know."""
    assignment: tuple[TopicPartition, ...]
    target_assignment: tuple[TopicPartition, ...] | None


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescription:
    """A consumer group as its coordinator describes it; the epochs are None in a classic one."""

    group_id: str
    type: str
    """``consumer`` or ``classic``."""
    protocol_type: str
    """``consumer`` for groups that read topics; Connect's workers say ``connect``."""
    state: str
    assignor_name: str
    group_epoch: int | None
    assignment_epoch: int | None
    members: tuple[ConsumerMemberDescription, ...]
    coordinator_id: int


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """What a consumer group committed for one partition; ``offset`` None: nothing."""

    offset: int | None
    leader_epoch: int | None
    metadata: str


class FeatureRange(NamedTuple):
    """The levels of a feature that the brokers could serve, both inclusive."""

    oldest: int
    newest: int


@dataclass(frozen=True, slots=True)
class Features:
    """What the brokers support, and the levels that the cluster agreed on."""

    supported: Mapping[str, FeatureRange]
    finalized: Mapping[str, int]
    finalized_epoch: int | None
    """None from a broker that keeps no such agreement."""


class UpgradeType(IntEnum):
    """How a feature's level may change; values as on the wire."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """A new level of a feature; 0 switches it off."""

    max_version_level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


class OffsetSpec(IntEnum):
    """Named offsets that `list_offsets` finds; a time is given as int milliseconds instead."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """An offset and the timestamp of its record; -1 when there is no such record."""

    offset: int
    timestamp_ms: int
    leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """One broker."""

    node_id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster's id, its controller and its brokers."""

    cluster_id: str
    controller_id: int
    nodes: tuple[NodeDescription, ...]
