"""The values of options with a fixed set of values.

Each member is a string and equal to it, so an application may pass either:
``share_acknowledgement_mode=AcknowledgementMode.EXPLICIT`` or ``"explicit"``.
"""

from enum import StrEnum


class SecurityProtocol(StrEnum):
    """The protocol of a connection to a broker: with or without TLS, with or without a login."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"


class SaslMechanism(StrEnum):
    """The SASL mechanism of a login."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


class DnsLookup(StrEnum):
    """The use of the addresses that a bootstrap server's name has."""

    USE_ALL_DNS_IPS = "use_all_dns_ips"
    """All addresses of a host name are tried, one after the other."""
    RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY = "resolve_canonical_bootstrap_servers_only"
    """Each address of a bootstrap server is replaced by its own name, for certificates."""


class MetadataRecovery(StrEnum):
    """The action of a client that can reach none of the brokers it knows (KIP-899)."""

    REBOOTSTRAP = "rebootstrap"
    """It asks the bootstrap servers again."""
    NONE = "none"
    """It tries the brokers of the last metadata again, until one answers."""


class Compression(StrEnum):
    """The codec with which a producer compresses its batches."""

    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class AcknowledgementMode(StrEnum):
    """The acknowledgement mode: whether the consumer or the application acknowledges records."""

    IMPLICIT = "implicit"
    """The next poll, commit or close accepts the records of the last poll."""
    EXPLICIT = "explicit"
    """The application acknowledges every record."""


class OnDeserializationError(StrEnum):
    """The action of a share consumer for a record that a deserializer cannot read."""

    RAISE = "raise"
    """`poll` raises DeserializationError, after it has returned the records before it."""
    REJECT = "reject"
    """The record is rejected."""
    RAW = "raw"
    """`poll` returns it as an UnreadableRecord with its bytes; for explicit mode only."""


class StartFrom(StrEnum):
    """The position at which a share group starts in topics that it has no offsets for.

    The values are those of the group config ``share.auto.offset.reset``, which has others, too.
    """

    EARLIEST = "earliest"
    """The first record in the log."""
    LATEST = "latest"
    """The end of the log: the group gets only records that are produced later."""


class GroupProtocol(StrEnum):
    """The protocol of a consumer group."""

    CLASSIC = "classic"
    """Members assign the partitions among themselves (JoinGroup, SyncGroup)."""
    CONSUMER = "consumer"
    """The group coordinator assigns the partitions (KIP-848)."""


class IsolationLevel(StrEnum):
    """Whether a consumer reads records of transactions that are open or were aborted."""

    READ_UNCOMMITTED = "read_uncommitted"
    """All records up to the high watermark."""
    READ_COMMITTED = "read_committed"
    """Records up to the last stable offset, without those of aborted transactions."""


class OnUnreadableRecord(StrEnum):
    """The action of a plain consumer for a record that a deserializer cannot read."""

    RAISE = "raise"
    """`poll` raises RecordDeserializationError; the position stays at the record."""
    RAW = "raw"
    """`poll` returns it as an UnreadableConsumerRecord with its bytes."""
