"""Asyncio clients for any Kafka cluster with share groups: consumer, producer, admin.

The client classes, and other names whose modules send requests, are imported at their first use. So
programs that only need the `AdminClient`, like most commands of the command line, start faster, and
so do Spark's Python processes, most of which send nothing.

The sub-packages are layers (see ``pyproject.toml``):

    sync               the clients without asyncio
    consume            a plain consumer
    share              a share consumer; a member that acquires ranges; what both have in common
    admin              the admin client
    fetch | produce    plain reads: offsets and record batches | the producer
    net | loop_thread  connections, metadata, leaders | a loop in a thread
    metrics | settings | records | together

Applications import names from this package.  The worker, the Spark source and the command line
also use its lower parts: the clients' own modules, `records`, `settings`, `net.cluster`, `fetch`,
`admin`, `loop_thread`, and of `share` the flow control, the ranges and the sessions.  All other
modules are internal; ``pyproject.toml`` names them.
"""

from typing import TYPE_CHECKING

from sharegroup.lazy_names import lazy_names

if TYPE_CHECKING:
    from sharegroup.client.admin.admin_client import AdminClient as AdminClient
    from sharegroup.client.admin.offset_resets import (
        ByDuration as ByDuration,
        FromPlan as FromPlan,
        OffsetChange as OffsetChange,
        ShiftBy as ShiftBy,
        ToCurrent as ToCurrent,
        ToDatetime as ToDatetime,
        ToEarliest as ToEarliest,
        ToLatest as ToLatest,
        ToOffset as ToOffset,
        new_offsets as new_offsets,
    )
    from sharegroup.client.admin.quotas import QuotaEntity as QuotaEntity, QuotaName as QuotaName
    from sharegroup.client.admin.types import (
        AclBinding as AclBinding,
        AclBindingFilter as AclBindingFilter,
        AlterConfig as AlterConfig,
        ClusterDescription as ClusterDescription,
        CommittedOffset as CommittedOffset,
        ConfigEntry as ConfigEntry,
        ConfigResource as ConfigResource,
        ConsumerGroupDescription as ConsumerGroupDescription,
        ConsumerMemberDescription as ConsumerMemberDescription,
        FeatureRange as FeatureRange,
        Features as Features,
        FeatureUpdate as FeatureUpdate,
        GroupListing as GroupListing,
        GroupState as GroupState,
        LogDirDescription as LogDirDescription,
        MetadataQuorum as MetadataQuorum,
        NewTopic as NewTopic,
        NodeDescription as NodeDescription,
        OpenTransaction as OpenTransaction,
        PartitionDescription as PartitionDescription,
        ProducerIdentity as ProducerIdentity,
        ProducerState as ProducerState,
        QuorumReplica as QuorumReplica,
        ReplicaLog as ReplicaLog,
        ScramCredentialInfo as ScramCredentialInfo,
        ShareGroupDescription as ShareGroupDescription,
        ShareMemberDescription as ShareMemberDescription,
        SharePartitionOffset as SharePartitionOffset,
        SharePartitionRuns as SharePartitionRuns,
        ShareRun as ShareRun,
        TopicDescription as TopicDescription,
        TransactionDescription as TransactionDescription,
        TransactionListing as TransactionListing,
        TransactionState as TransactionState,
        UserScramCredentialDeletion as UserScramCredentialDeletion,
        UserScramCredentialUpsertion as UserScramCredentialUpsertion,
    )
    from sharegroup.client.consume.consumer import Consumer as Consumer
    from sharegroup.client.consume.consumer_record import (
        ConsumerRecord as ConsumerRecord,
        RecordDeserializationError as RecordDeserializationError,
        UnreadableConsumerRecord as UnreadableConsumerRecord,
    )
    from sharegroup.client.fetch.offsets import (
        ListedOffset as ListedOffset,
        OffsetSpec as OffsetSpec,
    )
    from sharegroup.client.produce.producer import Producer as Producer, SendFuture as SendFuture
    from sharegroup.client.produce.transaction import Transaction as Transaction
    from sharegroup.client.records import (
        AcknowledgementResult as AcknowledgementResult,
        CloseReport as CloseReport,
        CommitFailedError as CommitFailedError,
        ConsumerGroupMetadata as ConsumerGroupMetadata,
        ConsumerHealth as ConsumerHealth,
        Flow as Flow,
        IllegalStateError as IllegalStateError,
        LogTruncation as LogTruncation,
        NoOffsetForPartition as NoOffsetForPartition,
        OffsetAndMetadata as OffsetAndMetadata,
        RebalanceListener as RebalanceListener,
        RecordMetadata as RecordMetadata,
        TopicPartition as TopicPartition,
        WakeupError as WakeupError,
        records_by_partition as records_by_partition,
    )
    from sharegroup.client.settings.option_values import (
        AcknowledgementMode as AcknowledgementMode,
        Compression as Compression,
        DnsLookup as DnsLookup,
        GroupProtocol as GroupProtocol,
        IsolationLevel as IsolationLevel,
        MetadataRecovery as MetadataRecovery,
        OnDeserializationError as OnDeserializationError,
        OnUnreadableRecord as OnUnreadableRecord,
        SaslMechanism as SaslMechanism,
        SecurityProtocol as SecurityProtocol,
        StartFrom as StartFrom,
    )
    from sharegroup.client.share.consumer.record import (
        DeserializationError as DeserializationError,
        Record as Record,
        UnreadableRecord as UnreadableRecord,
    )
    from sharegroup.client.share.consumer.share_consumer import ShareConsumer as ShareConsumer
    from sharegroup.protocol_enums import (
        AcknowledgeType as AcknowledgeType,
        AclOperation as AclOperation,
        AclPatternType as AclPatternType,
        AclPermission as AclPermission,
        AclResourceType as AclResourceType,
        AcquireMode as AcquireMode,
        ConfigOperation as ConfigOperation,
        ConfigSource as ConfigSource,
        GroupType as GroupType,
        ResourceType as ResourceType,
        ScramMechanism as ScramMechanism,
        UpgradeType as UpgradeType,
    )


if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "client.admin.admin_client": "AdminClient",
            "client.admin.offset_resets": """
                ByDuration FromPlan OffsetChange ShiftBy ToCurrent ToDatetime ToEarliest
                ToLatest ToOffset new_offsets
            """,
            "client.admin.quotas": "QuotaEntity QuotaName",
            "client.admin.types": """
                AclBinding AclBindingFilter AlterConfig ClusterDescription CommittedOffset
                ConfigEntry ConfigResource ConsumerGroupDescription ConsumerMemberDescription
                FeatureRange FeatureUpdate Features GroupListing GroupState LogDirDescription
                MetadataQuorum NewTopic NodeDescription OpenTransaction PartitionDescription
                ProducerIdentity ProducerState QuorumReplica ReplicaLog ScramCredentialInfo
                ShareGroupDescription ShareMemberDescription SharePartitionOffset
                SharePartitionRuns ShareRun TopicDescription TransactionDescription
                TransactionListing TransactionState
                UserScramCredentialDeletion UserScramCredentialUpsertion
            """,
            "client.consume.consumer": "Consumer",
            "client.consume.consumer_record": """
                ConsumerRecord RecordDeserializationError UnreadableConsumerRecord
            """,
            "client.fetch.offsets": "ListedOffset OffsetSpec",
            "client.produce.producer": "Producer SendFuture",
            "client.produce.transaction": "Transaction",
            "client.records": """
                AcknowledgementResult CloseReport CommitFailedError ConsumerGroupMetadata
                ConsumerHealth Flow IllegalStateError LogTruncation NoOffsetForPartition
                OffsetAndMetadata RebalanceListener RecordMetadata TopicPartition WakeupError
                records_by_partition
            """,
            "client.settings.option_values": """
                AcknowledgementMode Compression DnsLookup GroupProtocol IsolationLevel
                MetadataRecovery OnDeserializationError OnUnreadableRecord SaslMechanism
                SecurityProtocol StartFrom
            """,
            "client.share.consumer.record": "DeserializationError Record UnreadableRecord",
            "client.share.consumer.share_consumer": "ShareConsumer",
            "protocol_enums": """
                AcknowledgeType AclOperation AclPatternType AclPermission AclResourceType
                AcquireMode ConfigOperation ConfigSource GroupType ResourceType ScramMechanism
                UpgradeType
            """,
        },
    )
