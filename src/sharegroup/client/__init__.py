"""Asyncio clients for any Kafka cluster with share groups: consumer, producer, admin.

The clients themselves are loaded when they are used: who only administers, as most of the
command line does, must not wait for a consumer.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Before any other of ours: it lets kio be imported without what takes half of the time.
import sharegroup.wire  # noqa: F401
from sharegroup.client.admin_types import (
    AlterConfig,
    ClusterDescription,
    CommittedOffset,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    ConsumerGroupDescription,
    ConsumerMemberDescription,
    FeatureRange,
    Features,
    FeatureUpdate,
    GroupListing,
    ListedOffset,
    NewTopic,
    NodeDescription,
    OffsetSpec,
    PartitionDescription,
    ResourceType,
    ShareGroupDescription,
    ShareMemberDescription,
    SharePartitionOffset,
    TopicDescription,
    UpgradeType,
)
from sharegroup.client.offset_resets import (
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
from sharegroup.client.records import (
    AcknowledgementResult,
    AcknowledgeType,
    CloseReport,
    DeserializationError,
    IllegalStateError,
    Record,
    RecordMetadata,
    TopicPartition,
    UnreadableRecord,
    WakeupError,
)

if TYPE_CHECKING:
    from sharegroup.client.admin import AdminClient
    from sharegroup.client.producer import Delivery, Producer
    from sharegroup.client.share_consumer import ShareConsumer

__all__ = [
    "AcknowledgeType",
    "AcknowledgementResult",
    "AdminClient",
    "AlterConfig",
    "ByDuration",
    "CloseReport",
    "ClusterDescription",
    "CommittedOffset",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResource",
    "ConfigSource",
    "ConsumerGroupDescription",
    "ConsumerMemberDescription",
    "Delivery",
    "DeserializationError",
    "FeatureRange",
    "FeatureUpdate",
    "Features",
    "FromPlan",
    "GroupListing",
    "IllegalStateError",
    "ListedOffset",
    "NewTopic",
    "NodeDescription",
    "OffsetChange",
    "OffsetSpec",
    "PartitionDescription",
    "Producer",
    "Record",
    "RecordMetadata",
    "ResourceType",
    "ShareConsumer",
    "ShareGroupDescription",
    "ShareMemberDescription",
    "SharePartitionOffset",
    "ShiftBy",
    "ToCurrent",
    "ToDatetime",
    "ToEarliest",
    "ToLatest",
    "ToOffset",
    "TopicDescription",
    "TopicPartition",
    "UnreadableRecord",
    "UpgradeType",
    "WakeupError",
    "new_offsets",
]

_MODULES = {
    "AdminClient": "sharegroup.client.admin",
    "Delivery": "sharegroup.client.producer",
    "Producer": "sharegroup.client.producer",
    "ShareConsumer": "sharegroup.client.share_consumer",
}

if not TYPE_CHECKING:  # Else a name that there is none of would have a type.

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_MODULES[name]), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
