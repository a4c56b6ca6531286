"""Enumerations of Kafka's protocol that client and broker share; values as on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, IntFlag, StrEnum
from types import MappingProxyType


class AcknowledgeType(IntEnum):
    """The ways to acknowledge a record (KIP-932 «Record states»)."""

    GAP = 0
    """There is no record at the offset.  Clients use it for themselves; applications cannot."""
    ACCEPT = 1
    """The record was processed; it is not delivered again."""
    RELEASE = 2
    """The record is available again for any member, up to the delivery count limit."""
    REJECT = 3
    """The record cannot be processed; it is archived without further deliveries."""
    RENEW = 4
    """The acquisition lock begins anew and this member keeps the record (KIP-1222)."""


class AclOperation(IntEnum):
    """Operations on a resource that ACLs allow or deny; values as on the wire."""

    ANY = 1
    """Any operation, in a filter."""
    ALL = 2
    """All operations."""
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    """Whether an ACL allows or denies."""

    ANY = 1
    """Any permission, in a filter."""
    DENY = 2
    ALLOW = 3


class AclResourceType(IntEnum):
    """The type of a resource that ACLs are about."""

    ANY = 1
    """Any type, in a filter."""
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of the type CLUSTER."""

ACL_OPERATIONS: Mapping[AclResourceType, tuple[AclOperation, ...]] = MappingProxyType(
    {
        AclResourceType.TOPIC: (
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.CREATE,
            AclOperation.DELETE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        ),
        AclResourceType.GROUP: (
            AclOperation.READ,
            AclOperation.DELETE,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        ),
        AclResourceType.CLUSTER: (
            AclOperation.CREATE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE,
            AclOperation.CLUSTER_ACTION,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
            AclOperation.IDEMPOTENT_WRITE,
        ),
        AclResourceType.TRANSACTIONAL_ID: (
            AclOperation.WRITE,
            AclOperation.DESCRIBE,
            AclOperation.TWO_PHASE_COMMIT,
        ),
        AclResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
        AclResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
    }
)
"""The operations that exist for each type of resource, besides ALL (Kafka's ``AclEntry``)."""


class AclPatternType(IntEnum):
    """How an ACL names resources."""

    ANY = 1
    """Any pattern, in a filter."""
    MATCH = 2
    """Every pattern that a resource name matches, in a filter."""
    LITERAL = 3
    """The name itself; ``*`` stands for every name."""
    PREFIXED = 4
    """Every name that begins so."""


class AcquireMode(StrEnum):
    """How many records a fetch of a share consumer acquires (KIP-1206)."""

    BATCH_OPTIMIZED = "batch_optimized"
    """Whole record batches, so a fetch may acquire more records than ``max_poll_records``."""
    RECORD_LIMIT = "record_limit"
    """At most ``max_poll_records``."""


ACQUIRE_MODE_CODES = {AcquireMode.BATCH_OPTIMIZED: 0, AcquireMode.RECORD_LIMIT: 1}
"""The acquire modes as ShareFetch names them (ShareAcquireMode)."""


class ConfigOperation(IntEnum):
    """How to change a config (IncrementalAlterConfigs)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigSource(IntEnum):
    """The place where a config's value was set (DescribeConfigs)."""

    UNKNOWN = 0
    """No answer from the broker, or a source that this version does not know."""
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8

    @classmethod
    def of(cls, number: int) -> ConfigSource:
        """Return the source that a broker names by its number, or UNKNOWN."""
        return cls(number) if number in _CONFIG_SOURCES else cls.UNKNOWN


_CONFIG_SOURCES = frozenset(map(int, ConfigSource))


class GroupType(StrEnum):
    """The type of a group, which is the protocol that its members use (ListGroups)."""

    SHARE = "share"
    CONSUMER = "consumer"
    """The protocol of KIP-848."""
    CLASSIC = "classic"
    STREAMS = "streams"
    UNKNOWN = "unknown"
    """A type that this version does not know."""

    @classmethod
    def of(cls, text: str) -> GroupType:
        """Return the type that a broker names, or UNKNOWN."""
        return _GROUP_TYPES.get(text.lower(), cls.UNKNOWN)


_GROUP_TYPES = {str(group_type): group_type for group_type in GroupType}


class ResourceType(IntEnum):
    """The type of a resource that has configs (KIP-133, KIP-714, KIP-848)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    """A subscription to metrics of clients (KIP-714)."""
    GROUP = 32


class ScramMechanism(IntEnum):
    """The SASL mechanism of a stored password (AlterUserScramCredentials)."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """The name in a SASL handshake, such as ``SCRAM-SHA-256``."""
        return self.name.replace("_", "-")

    @classmethod
    def of(cls, number: int) -> ScramMechanism:
        """Return the mechanism of this number, or UNKNOWN."""
        return cls(number) if number in _SCRAM_MECHANISMS else cls.UNKNOWN


_SCRAM_MECHANISMS = frozenset(map(int, ScramMechanism))


class UpgradeType(IntEnum):
    """How a feature's level may change (UpdateFeatures)."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


BATCHES_TAG = 10_000
"""The tag of our own fields of ShareFetch, for acquisitions without records (`share_fetch_v2`).

Kafka numbers its tags from 0 on.
"""

RUNS_TAG = 10_000
"""The tag of our own fields of DescribeShareGroupOffsets (`describe_share_group_offsets_v1`)."""


DELAY_TAG = 10_000
"""The tag of our own field of acknowledgement batches, the delay of released records (ADR 0061)."""

GROUPS_DELAY = -1
"""The value of that field that stands for the delay of the group."""

DELAY_MS_MAX = 24 * 3_600_000
"""The longest delay of released records, in a request and in the settings of a group.

A stored due time that is further away is of a clock that was wrong.
"""

DELAY_FEATURE = "sharegroup.redelivery"
"""The feature that a broker names as supported in ApiVersions if it reads that field."""


class BatchFlag(IntFlag):
    """What a log batch is that holds no records for members."""

    CONTROL = 1
    """It ends a transaction."""
    ABORTED = 2
    """Its transaction was aborted, and the group reads committed records."""
