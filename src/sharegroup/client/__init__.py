"""Asyncio clients for any Kafka cluster with share groups: consumer, producer, admin.

The client classes, and other names whose modules send requests, are imported at their first use. So
programs that only need the `AdminClient`, like most commands of the command line, start faster, and
so do Spark's Python processes, most of which send nothing.

The sub-packages are layers (see ``pyproject.toml``):

    sync                                       the clients without asyncio
    share | share_ranges | consume             a share consumer | a member that acquires ranges
                                               | a plain consumer
    share_locks                                what holds of acquisition locks in both of them
    share_sessions | group | admin | produce   requests, by what they are about
    fetch                                      plain reads: offsets and record batches
    net | loop_thread                          connections, metadata, leaders | a loop in a thread
    metrics | settings | records | subscribed_topics

Applications import names from this package.  The worker, the Spark source and the command line
also use its lower parts: the clients' own modules, `records`, `settings`, `net.cluster`, `fetch`,
`admin.topics`, `admin.types`, `admin.start_position`, `share_sessions`, `share_ranges`,
`loop_thread` and `share.flow_control`.  All other modules are internal.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sharegroup.client.admin.admin_client import AdminClient
    from sharegroup.client.admin.offset_resets import (
        ByDuration,
        FromPlan,
        OffsetChange,
        ShiftBy,
        ToCurrent,
        ToDatetime,
        ToEarliest,
        ToLatest,
        ToOffset,
        new_offsets,
    )
    from sharegroup.client.admin.quotas import QuotaEntity, QuotaName
    from sharegroup.client.admin.types import (
        AclBinding,
        AclBindingFilter,
        AlterConfig,
        ClusterDescription,
        CommittedOffset,
        ConfigEntry,
        ConfigResource,
        ConsumerGroupDescription,
        ConsumerMemberDescription,
        FeatureRange,
        Features,
        FeatureUpdate,
        GroupListing,
        GroupState,
        LogDirDescription,
        MetadataQuorum,
        NewTopic,
        NodeDescription,
        OpenTransaction,
        PartitionDescription,
        ProducerIdentity,
        ProducerState,
        QuorumReplica,
        ReplicaLog,
        ScramCredentialInfo,
        ShareGroupDescription,
        ShareMemberDescription,
        SharePartitionOffset,
        TopicDescription,
        TransactionDescription,
        TransactionListing,
        TransactionState,
        UserScramCredentialDeletion,
        UserScramCredentialUpsertion,
    )
    from sharegroup.client.consume.consumer import Consumer
    from sharegroup.client.consume.consumer_record import (
        ConsumerRecord,
        RecordDeserializationError,
        UnreadableConsumerRecord,
    )
    from sharegroup.client.consume.rebalance_listener import RebalanceListener
    from sharegroup.client.fetch.offsets import ListedOffset, OffsetSpec
    from sharegroup.client.produce.producer import Producer, SendFuture
    from sharegroup.client.produce.transaction import Transaction
    from sharegroup.client.records import (
        AcknowledgementResult,
        CloseReport,
        CommitFailedError,
        ConsumerGroupMetadata,
        IllegalStateError,
        LogTruncation,
        NoOffsetForPartition,
        OffsetAndMetadata,
        RecordMetadata,
        TopicPartition,
        WakeupError,
        records_by_partition,
    )
    from sharegroup.client.settings.option_values import (
        AcknowledgementMode,
        Compression,
        DnsLookup,
        GroupProtocol,
        IsolationLevel,
        MetadataRecovery,
        OnDeserializationError,
        OnUnreadableRecord,
        SaslMechanism,
        SecurityProtocol,
        StartFrom,
    )
    from sharegroup.client.share.consumer.flow import Flow
    from sharegroup.client.share.consumer.record import (
        DeserializationError,
        Record,
        UnreadableRecord,
    )
    from sharegroup.client.share.consumer.share_consumer import ShareConsumer
    from sharegroup.protocol_enums import (
        AcknowledgeType,
        AclOperation,
        AclPatternType,
        AclPermission,
        AclResourceType,
        AcquireMode,
        ConfigOperation,
        ConfigSource,
        GroupType,
        ResourceType,
        ScramMechanism,
        UpgradeType,
    )

__all__ = [
    "AcknowledgeType",
    "AcknowledgementMode",
    "AcknowledgementResult",
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPatternType",
    "AclPermission",
    "AclResourceType",
    "AcquireMode",
    "AdminClient",
    "AlterConfig",
    "ByDuration",
    "CloseReport",
    "ClusterDescription",
    "CommitFailedError",
    "CommittedOffset",
    "Compression",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResource",
    "ConfigSource",
    "Consumer",
    "ConsumerGroupDescription",
    "ConsumerGroupMetadata",
    "ConsumerMemberDescription",
    "ConsumerRecord",
    "DeserializationError",
    "DnsLookup",
    "FeatureRange",
    "FeatureUpdate",
    "Features",
    "Flow",
    "FromPlan",
    "GroupListing",
    "GroupProtocol",
    "GroupState",
    "GroupType",
    "IllegalStateError",
    "IsolationLevel",
    "ListedOffset",
    "LogDirDescription",
    "LogTruncation",
    "MetadataQuorum",
    "MetadataRecovery",
    "NewTopic",
    "NoOffsetForPartition",
    "NodeDescription",
    "OffsetAndMetadata",
    "OffsetChange",
    "OffsetSpec",
    "OnDeserializationError",
    "OnUnreadableRecord",
    "OpenTransaction",
    "PartitionDescription",
    "Producer",
    "ProducerIdentity",
    "ProducerState",
    "QuorumReplica",
    "QuotaEntity",
    "QuotaName",
    "RebalanceListener",
    "Record",
    "RecordDeserializationError",
    "RecordMetadata",
    "ReplicaLog",
    "ResourceType",
    "SaslMechanism",
    "ScramCredentialInfo",
    "ScramMechanism",
    "SecurityProtocol",
    "SendFuture",
    "ShareConsumer",
    "ShareGroupDescription",
    "ShareMemberDescription",
    "SharePartitionOffset",
    "ShiftBy",
    "StartFrom",
    "ToCurrent",
    "ToDatetime",
    "ToEarliest",
    "ToLatest",
    "ToOffset",
    "TopicDescription",
    "TopicPartition",
    "Transaction",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
    "UnreadableConsumerRecord",
    "UnreadableRecord",
    "UpgradeType",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
    "WakeupError",
    "new_offsets",
    "records_by_partition",
]

_NAMES = {
    "sharegroup.client.admin.admin_client": ("AdminClient",),
    "sharegroup.client.admin.offset_resets": (
        "ByDuration",
        "FromPlan",
        "OffsetChange",
        "ShiftBy",
        "ToCurrent",
        "ToDatetime",
        "ToEarliest",
        "ToLatest",
        "ToOffset",
        "new_offsets",
    ),
    "sharegroup.client.admin.quotas": (
        "QuotaEntity",
        "QuotaName",
    ),
    "sharegroup.client.admin.types": (
        "AclBinding",
        "AclBindingFilter",
        "AlterConfig",
        "ClusterDescription",
        "CommittedOffset",
        "ConfigEntry",
        "ConfigResource",
        "ConsumerGroupDescription",
        "ConsumerMemberDescription",
        "FeatureRange",
        "FeatureUpdate",
        "Features",
        "GroupListing",
        "GroupState",
        "LogDirDescription",
        "MetadataQuorum",
        "NewTopic",
        "NodeDescription",
        "OpenTransaction",
        "PartitionDescription",
        "ProducerIdentity",
        "ProducerState",
        "QuorumReplica",
        "ReplicaLog",
        "ScramCredentialInfo",
        "ShareGroupDescription",
        "ShareMemberDescription",
        "SharePartitionOffset",
        "TopicDescription",
        "TransactionDescription",
        "TransactionListing",
        "TransactionState",
        "UserScramCredentialDeletion",
        "UserScramCredentialUpsertion",
    ),
    "sharegroup.client.consume.consumer": ("Consumer",),
    "sharegroup.client.consume.consumer_record": (
        "ConsumerRecord",
        "RecordDeserializationError",
        "UnreadableConsumerRecord",
    ),
    "sharegroup.client.consume.rebalance_listener": ("RebalanceListener",),
    "sharegroup.client.fetch.offsets": (
        "ListedOffset",
        "OffsetSpec",
    ),
    "sharegroup.client.produce.producer": (
        "Producer",
        "SendFuture",
    ),
    "sharegroup.client.produce.transaction": ("Transaction",),
    "sharegroup.client.records": (
        "AcknowledgementResult",
        "CloseReport",
        "CommitFailedError",
        "ConsumerGroupMetadata",
        "IllegalStateError",
        "LogTruncation",
        "NoOffsetForPartition",
        "OffsetAndMetadata",
        "RecordMetadata",
        "TopicPartition",
        "WakeupError",
        "records_by_partition",
    ),
    "sharegroup.client.settings.option_values": (
        "AcknowledgementMode",
        "Compression",
        "DnsLookup",
        "GroupProtocol",
        "IsolationLevel",
        "MetadataRecovery",
        "OnDeserializationError",
        "OnUnreadableRecord",
        "SaslMechanism",
        "SecurityProtocol",
        "StartFrom",
    ),
    "sharegroup.client.share.consumer.flow": ("Flow",),
    "sharegroup.client.share.consumer.record": (
        "DeserializationError",
        "Record",
        "UnreadableRecord",
    ),
    "sharegroup.client.share.consumer.share_consumer": ("ShareConsumer",),
    "sharegroup.protocol_enums": (
        "AcknowledgeType",
        "AclOperation",
        "AclPatternType",
        "AclPermission",
        "AclResourceType",
        "AcquireMode",
        "ConfigOperation",
        "ConfigSource",
        "GroupType",
        "ResourceType",
        "ScramMechanism",
        "UpgradeType",
    ),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

# Hidden from type checkers: with `__getattr__` they would accept every name in this module.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_MODULES[name]), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
