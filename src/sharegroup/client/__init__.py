"""Asyncio clients for any Kafka cluster with share groups: consumer, producer, admin."""

from sharegroup.client.admin import AdminClient
from sharegroup.client.admin_types import (
    AlterConfig,
    ClusterDescription,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    GroupListing,
    ListedOffset,
    NewTopic,
    NodeDescription,
    OffsetSpec,
    ResourceType,
    ShareGroupDescription,
    ShareMemberDescription,
    SharePartitionOffset,
    TopicDescription,
)
from sharegroup.client.producer import Delivery, Producer
from sharegroup.client.records import (
    AcknowledgementResult,
    AcknowledgeType,
    DeserializationError,
    IllegalStateError,
    Record,
    RecordMetadata,
    TopicPartition,
)
from sharegroup.client.share_consumer import ShareConsumer

__all__ = [
    "AcknowledgeType",
    "AcknowledgementResult",
    "AdminClient",
    "AlterConfig",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResource",
    "ConfigSource",
    "Delivery",
    "DeserializationError",
    "GroupListing",
    "IllegalStateError",
    "ListedOffset",
    "NewTopic",
    "NodeDescription",
    "OffsetSpec",
    "Producer",
    "Record",
    "RecordMetadata",
    "ResourceType",
    "ShareConsumer",
    "ShareGroupDescription",
    "ShareMemberDescription",
    "SharePartitionOffset",
    "TopicDescription",
    "TopicPartition",
]
