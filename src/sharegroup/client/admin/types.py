"""Data classes that an AdminClient takes and returns, named as in Kafka's own admin API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from sharegroup.client.records import TopicPartition
from sharegroup.protocol_enums import (
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    ConfigOperation,
    ConfigSource,
    GroupType,
    ResourceType,
    ScramMechanism,
    UpgradeType,
)

BROKER_DEFAULT = -1
"""Leaves the number of partitions or replicas to the broker's default."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create."""

    name: str
    num_partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)


OWN_TOPICS = "__sharegroup."
"""The beginning of the names of topics with state of sharegroup: jobs, history of consoles."""


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """The replicas of one partition as node ids; ``leader`` is -1 while there is none."""

    partition: int
    leader: int
    leader_epoch: int | None
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic with its id and partitions, as the cluster describes it."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    authorized_operations: frozenset[AclOperation] | None = None
    """The operations that the user may perform; None if not requested or not answered."""

    @property
    def is_hidden(self) -> bool:
        """Whether listings leave it out: it is internal to Kafka, or holds state of sharegroup."""
        return self.is_internal or self.name.startswith(OWN_TOPICS)

    @property
    def leaders(self) -> tuple[int, ...]:
        """The leaders' node ids, indexed by partition; -1 for a partition without a leader."""
        return tuple(partition.leader for partition in self.partitions)

    @property
    def partition_count(self) -> int:
        """The number of partitions."""
        return len(self.partitions)


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A topic, broker or group that has configs; a broker's name is its node id as text."""

    type: ResourceType
    name: str


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One config of one resource; ``value`` is None if it is sensitive or not set."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Whether the value is the default, so it was not set anywhere."""
        return self.source is ConfigSource.DEFAULT


@dataclass(frozen=True, slots=True)
class AlterConfig:
    """A change of one config; ``value`` is None for DELETE only."""

    name: str
    value: str | None
    operation: ConfigOperation = ConfigOperation.SET


class GroupState(StrEnum):
    """The state of a group; a share group is Empty, Stable or Dead."""

    EMPTY = "Empty"
    """The group has no members."""
    STABLE = "Stable"
    DEAD = "Dead"
    """The group does not exist, or is being deleted."""
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    UNKNOWN = "Unknown"
    """A state that this client does not know."""

    @classmethod
    def of(cls, text: str) -> GroupState:
        """Return the state that a broker names, or UNKNOWN."""
        return _STATES_BY_TEXT.get(text.lower(), cls.UNKNOWN)


_STATES_BY_TEXT = {state.lower(): state for state in GroupState}


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One group of any type, as `AdminClient.list_groups` returns it."""

    group_id: str
    type: GroupType
    protocol_type: str
    """``consumer`` for groups that read topics; other programs choose their own names."""
    state: GroupState


@dataclass(frozen=True, slots=True)
class ShareMemberDescription:
    """One member of a share group and its assignment."""

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
    state: GroupState
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: tuple[ShareMemberDescription, ...]
    coordinator_id: int
    authorized_operations: frozenset[AclOperation] | None = None
    """The operations that the user may perform; None if not requested or not answered."""


@dataclass(frozen=True, slots=True)
class SharePartitionOffset:
    """The start offset and lag of a share group in one partition.

    None means unknown, which is not zero: no state was written for the start offset yet, or the
    broker does not report the lag or the leader epoch.
    """

    start_offset: int | None
    leader_epoch: int | None
    lag: int | None


@dataclass(frozen=True, slots=True)
class ShareRun:
    """Offsets ``first_offset`` to ``last_offset`` of a share group with one state and count."""

    first_offset: int
    last_offset: int
    state: str
    """``available``, ``acquired``, ``acknowledged``, ``archiving``, ``archived`` or ``delayed``."""
    delivery_count: int
    member_id: str | None = None
    """The member that holds the acquisition lock; None unless the records are acquired."""
    lock_ms_left: int | None = None
    """The remaining time of the lock; None unless the records are acquired."""

    @property
    def count(self) -> int:
        """The number of offsets."""
        return self.last_offset - self.first_offset + 1


@dataclass(frozen=True, slots=True)
class SharePartitionRuns:
    """A page of the runs of a share group in one partition, all of one moment."""

    start_offset: int | None
    """None: the group has no offset yet, because no member has fetched from the partition."""
    end_offset: int | None
    """The first offset that was never delivered; records from here on are available, too."""
    high_watermark: int
    run_count: int
    """The number of all runs of the share partition."""
    runs: tuple[ShareRun, ...]
    next_offset: int | None
    """The first offset of the next page; None if this is the last one."""


@dataclass(frozen=True, slots=True)
class ConsumerMemberDescription:
    """One member of a consumer group and its assignment.

    A field is None if the group's protocol does not have it or the member does not set it.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    rack_id: str | None
    member_epoch: int | None
    subscribed_topics: tuple[str, ...]
    """The topics subscribed to; empty in a classic group, where only the members know them."""
    assignment: tuple[TopicPartition, ...]
    target_assignment: tuple[TopicPartition, ...] | None
    subscribed_regex: str | None = None
    """The regular expression that the member subscribes to; None if it has none."""
    protocol: GroupType = GroupType.CLASSIC
    """The protocol of the member; while a group is upgraded, members use both protocols."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescription:
    """A consumer group as its coordinator describes it; a classic group has no epochs (None)."""

    group_id: str
    type: GroupType
    """CONSUMER or CLASSIC."""
    protocol_type: str
    """``consumer`` for groups that read topics; ``connect`` for workers of Kafka Connect."""
    state: GroupState
    assignor_name: str
    group_epoch: int | None
    assignment_epoch: int | None
    members: tuple[ConsumerMemberDescription, ...]
    coordinator_id: int
    authorized_operations: frozenset[AclOperation] | None = None
    """The operations that the user may perform; None if not requested or not answered."""


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The committed offset of a consumer group in one partition; None if there is none."""

    offset: int | None
    leader_epoch: int | None
    metadata: str


class FeatureRange(NamedTuple):
    """The levels of a feature that the brokers support; both ends are inclusive."""

    oldest: int
    newest: int


@dataclass(frozen=True, slots=True)
class Features:
    """The feature levels that the brokers support and the finalized levels, which are in effect."""

    supported: Mapping[str, FeatureRange]
    finalized: Mapping[str, int]
    finalized_epoch: int | None
    """None from a broker that has no finalized features."""


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """The new level of a feature; 0 disables the feature."""

    max_version_level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


@dataclass(frozen=True, slots=True, order=True)
class AclBinding:
    """An entry of the access control lists: who may do what, or may not, on which resources."""

    resource_type: AclResourceType
    name: str
    """The name of the resource, or the beginning of names with ``PREFIXED``; ``*`` means all."""
    principal: str
    """The user, for example ``User:alice``; ``User:*`` means everyone."""
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    pattern_type: AclPatternType = AclPatternType.LITERAL
    host: str = "*"
    """The address of the user, or a network such as ``10.0.0.0/8``; ``*`` means any."""

    def __str__(self) -> str:
        """Return the ACL in a line, for messages."""
        verb = "may" if self.permission is AclPermission.ALLOW else "may not"
        return (
            f"{self.principal} from {self.host} {verb} {self.operation.name} "
            f"{self.resource_type.name} {self.name!r} ({self.pattern_type.name})"
        )


@dataclass(frozen=True, slots=True)
class AclBindingFilter:
    """The conditions that ACLs must meet to be described or deleted; without any, all match."""

    resource_type: AclResourceType = AclResourceType.ANY
    name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY
    pattern_type: AclPatternType = AclPatternType.ANY
    """``MATCH`` stands for every pattern that applies to the resource ``name``."""
    host: str | None = None


@dataclass(frozen=True, slots=True)
class UserScramCredentialUpsertion:
    """A password of a user, to be set for one mechanism; the user is created if it is new."""

    user: str
    password: str = field(repr=False)
    mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512
    iterations: int = 4_096
    """How often the password is hashed; brokers accept 4,096 to 16,384."""
    salt: bytes | None = field(default=None, repr=False)
    """None means a random one."""


@dataclass(frozen=True, slots=True)
class UserScramCredentialDeletion:
    """A credential of a user for one mechanism, to be removed."""

    user: str
    mechanism: ScramMechanism


@dataclass(frozen=True, slots=True)
class ScramCredentialInfo:
    """What a broker tells of a credential: its mechanism and its number of iterations."""

    mechanism: ScramMechanism
    iterations: int


ScramCredentialAlteration = UserScramCredentialUpsertion | UserScramCredentialDeletion
"""A change of the SCRAM credentials of a user."""


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """One broker: its node id, address and rack."""

    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False
    """Whether the broker is registered but not running, or has not caught up yet."""


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster's id, its controller and its brokers."""

    cluster_id: str
    controller_id: int
    nodes: tuple[NodeDescription, ...]
    authorized_operations: frozenset[AclOperation] | None = None
    """The operations on the cluster that the user may perform; None if not requested."""


class TransactionState(StrEnum):
    """The state of a transactional id at its coordinator."""

    EMPTY = "Empty"
    """No transaction yet."""
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    """Decided; the markers are being written."""
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    DEAD = "Dead"
    """The transactional id has expired."""
    UNKNOWN = "Unknown"
    """A state that this client does not know."""

    @classmethod
    def of(cls, text: str) -> TransactionState:
        """Return the state that a broker names, or UNKNOWN."""
        return _TRANSACTION_STATES.get(text.lower(), cls.UNKNOWN)


_TRANSACTION_STATES = {state.lower(): state for state in TransactionState}


class ProducerIdentity(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """One transactional id, as `AdminClient.list_transactions` returns it."""

    transactional_id: str
    producer_id: int
    state: TransactionState


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id and its transaction, as its coordinator describes them."""

    transactional_id: str
    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_at_ms: int | None
    """When the open transaction, or the last one, began, in ms since 1970; None before any."""
    partitions: tuple[TopicPartition, ...]
    """The partitions of the open transaction, those of committed offsets included."""
    coordinator_id: int


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer as the leader of a partition knows it; None means none or unknown."""

    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    last_timestamp_ms: int | None
    """The timestamp of its last batch."""
    coordinator_epoch: int | None
    """The epoch of the coordinator that wrote the last marker."""
    transaction_start_offset: int | None
    """The first offset of its open transaction; readers of committed records stop before it."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """An open transaction in one partition, for `AdminClient.abort_transaction`."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = 0
    """Not below the one of `ProducerState`; 0 if that is None."""


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """The log of one partition in a log directory."""

    size_bytes: int
    offset_lag: int
    """Offsets that the log is behind: its high watermark, or the log that it is to replace."""
    is_future: bool
    """Whether it is being copied here from another directory of the broker."""


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A log directory of a broker: its partitions and the room of its disk, None if unknown."""

    replicas: Mapping[TopicPartition, ReplicaLog]
    total_bytes: int | None
    usable_bytes: int | None


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A controller or broker that replicates the cluster's metadata."""

    node_id: int
    log_end_offset: int
    last_fetch_ms: int | None
    """When it last fetched, in milliseconds since 1970; None if unknown."""
    last_caught_up_ms: int | None


@dataclass(frozen=True, slots=True)
class MetadataQuorum:
    """The leader and the replicas of the cluster's metadata."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
