"""Configuration of a topic: its own settings, which take precedence over the broker's defaults."""

from __future__ import annotations

from sharegroup.broker.configuration.config_values import ConfigPart, ConfigType, key
from sharegroup.broker.configuration.log_config import COMPRESSION_TYPES, RECORD_BYTES_MAX
from sharegroup.errors import InvalidConfig


class TopicConfig(ConfigPart):
    """A topic's own settings; None means that the broker's value is used."""

    segment_bytes: int | None = key(
        "segment.bytes",
        None,
        "Size at which a segment file of this topic is rolled.",
        low=1_024,
        synonym="log.segment.bytes",
    )
    segment_ms: int | None = key(
        "segment.ms",
        None,
        "Age of the first record at which a segment file of this topic is rolled.",
        kind=ConfigType.LONG,
        low=1,
        synonym="log.roll.ms",
    )
    message_bytes_max: int | None = key(
        "max.message.bytes",
        None,
        "Maximum size of a record batch of this topic.",
        low=0,
        synonym="message.max.bytes",
    )
    timestamp_type: str | None = key(
        "message.timestamp.type",
        None,
        "Whether the producer or the broker sets the record timestamps of this topic.",
        choices=("CreateTime", "LogAppendTime"),
        synonym="log.message.timestamp.type",
    )
    timestamp_before_ms_max: int | None = key(
        "message.timestamp.before.max.ms",
        None,
        "Maximum time by which the timestamp of a record of this topic may be before the broker's "
        "time.",
        kind=ConfigType.LONG,
        low=0,
        synonym="log.message.timestamp.before.max.ms",
    )
    timestamp_after_ms_max: int | None = key(
        "message.timestamp.after.max.ms",
        None,
        "Maximum time by which the timestamp of a record of this topic may be after the broker's "
        "time.",
        kind=ConfigType.LONG,
        low=0,
        synonym="log.message.timestamp.after.max.ms",
    )
    retention_ms: int | None = key(
        "retention.ms",
        None,
        "Time for which records of this topic are kept; -1: forever.",
        kind=ConfigType.LONG,
        low=-1,
        synonym="log.retention.ms",
    )
    retention_bytes: int | None = key(
        "retention.bytes",
        None,
        "Number of bytes that a partition of this topic keeps; -1: no limit.",
        kind=ConfigType.LONG,
        synonym="log.retention.bytes",
    )
    cleanup_policy: tuple[str, ...] | None = key(
        "cleanup.policy",
        None,
        "Cleanup of old records of this topic: `delete`, `compact`, both, or none (empty).",
        choices=("delete", "compact"),
        synonym="log.cleanup.policy",
    )
    delete_retention_ms: int | None = key(
        "delete.retention.ms",
        None,
        "How long tombstones of this topic are kept.",
        kind=ConfigType.LONG,
        low=0,
        synonym="log.cleaner.delete.retention.ms",
    )
    dirty_ratio_min: float | None = key(
        "min.cleanable.dirty.ratio",
        None,
        "Minimum dirty ratio (fraction of the log that is new since the last compaction) at which "
        "this topic is compacted.",
        low=0,
        high=1,
        synonym="log.cleaner.min.cleanable.ratio",
    )
    compaction_lag_ms_min: int | None = key(
        "min.compaction.lag.ms",
        None,
        "Age below which records of this topic are not compacted.",
        kind=ConfigType.LONG,
        low=0,
        synonym="log.cleaner.min.compaction.lag.ms",
    )
    compaction_lag_ms_max: int | None = key(
        "max.compaction.lag.ms",
        None,
        "Age after which records of this topic are compacted regardless of the dirty ratio.",
        kind=ConfigType.LONG,
        low=1,
        synonym="log.cleaner.max.compaction.lag.ms",
    )
    dead_letters: bool = key(
        "errors.deadletterqueue.group.enable",
        False,
        "Whether share groups may write dead letters to this topic (KIP-1191).",
    )
    compression_type: str | None = key(
        "compression.type",
        None,
        "Compression with which batches of this topic are stored: `producer` keeps that of the "
        "producer, every other value makes the broker compress the batches again.",
        choices=COMPRESSION_TYPES,
        synonym="compression.type",
    )
    gzip_level: int | None = key(
        "compression.gzip.level",
        None,
        "Level of gzip, if the broker compresses with it: 1 to 9, or -1 for its default.",
        low=-1,
        high=9,
        synonym="compression.gzip.level",
    )
    lz4_level: int | None = key(
        "compression.lz4.level",
        None,
        "Level of lz4, if the broker compresses with it.",
        low=1,
        high=17,
        synonym="compression.lz4.level",
    )
    zstd_level: int | None = key(
        "compression.zstd.level",
        None,
        "Level of zstd, if the broker compresses with it.",
        low=-131_072,
        high=22,
        synonym="compression.zstd.level",
    )
    record_bytes_max: int | None = key(
        "max.decompressed.message.bytes",
        None,
        "Maximum size of a record of this topic after decompression, checked where the broker "
        "decompresses a batch of a producer.",
        low=1,
        high=RECORD_BYTES_MAX,
        synonym="max.decompressed.message.bytes",
    )
    internal_segment_bytes: int | None = key(
        "internal.segment.bytes",
        None,
        "Size at which a segment file of this topic is rolled, before `segment.bytes`; of Kafka's "
        "tests.",
        low=1_024,
        internal=True,
    )
    min_insync_replicas: int | None = key(
        "min.insync.replicas",
        None,
        "There is one broker, so a partition has one replica. As in Kafka, no partition needs more "
        "replicas than it has.",
        low=1,
        synonym="min.insync.replicas",
        effect=False,
    )
    segment_index_bytes: int | None = key(
        "segment.index.bytes",
        None,
        "Indexes grow as needed.",
        low=4,
        synonym="log.index.size.max.bytes",
        effect=False,
    )
    index_interval_bytes: int | None = key(
        "index.interval.bytes",
        None,
        "The broker chooses the density of an index.",
        low=0,
        synonym="log.index.interval.bytes",
        effect=False,
    )
    segment_jitter_ms: int | None = key(
        "segment.jitter.ms",
        None,
        "Segments of one disk do not need to be rolled at different times.",
        kind=ConfigType.LONG,
        low=0,
        synonym="log.roll.jitter.ms",
        effect=False,
    )
    file_delete_delay_ms: int | None = key(
        "file.delete.delay.ms",
        None,
        "A deleted segment is removed as soon as it is not being read.",
        kind=ConfigType.LONG,
        low=0,
        synonym="log.segment.delete.delay.ms",
        effect=False,
    )
    preallocate: bool | None = key(
        "preallocate",
        None,
        "Files grow as they are written.",
        synonym="log.preallocate",
        effect=False,
    )
    unclean_election: bool | None = key(
        "unclean.leader.election.enable",
        None,
        "A single broker elects no leader.",
        synonym="unclean.leader.election.enable",
        effect=False,
    )
    flush_messages: int | None = key(
        "flush.messages",
        None,
        "The broker decides when records are durable.",
        kind=ConfigType.LONG,
        low=1,
        synonym="log.flush.interval.messages",
        effect=False,
    )
    flush_ms: int | None = key(
        "flush.ms",
        None,
        "The broker decides when records are durable.",
        kind=ConfigType.LONG,
        low=0,
        synonym="log.flush.interval.ms",
        effect=False,
    )
    leader_throttled_replicas: tuple[str, ...] = key(
        "leader.replication.throttled.replicas",
        (),
        "There is one broker, so no partition is copied to another one.",
        effect=False,
    )
    follower_throttled_replicas: tuple[str, ...] = key(
        "follower.replication.throttled.replicas",
        (),
        "There is one broker, so no partition is copied to another one.",
        effect=False,
    )
    local_retention_ms: int | None = key(
        "local.retention.ms",
        None,
        "Each log is completely on the local disk.",
        kind=ConfigType.LONG,
        low=-2,
        synonym="log.local.retention.ms",
        effect=False,
    )
    local_retention_bytes: int | None = key(
        "local.retention.bytes",
        None,
        "Each log is completely on the local disk.",
        kind=ConfigType.LONG,
        low=-2,
        synonym="log.local.retention.bytes",
        effect=False,
    )
    remote_copy_lag_ms: int | None = key(
        "remote.copy.lag.ms",
        None,
        "Each log is completely on the local disk.",
        kind=ConfigType.LONG,
        low=-1,
        synonym="log.remote.copy.lag.ms",
        effect=False,
    )
    remote_copy_lag_bytes: int | None = key(
        "remote.copy.lag.bytes",
        None,
        "Each log is completely on the local disk.",
        kind=ConfigType.LONG,
        low=-1,
        synonym="log.remote.copy.lag.bytes",
        effect=False,
    )
    remote_copy_disable: bool = key(
        "remote.log.copy.disable",
        False,
        "Each log is completely on the local disk.",
        effect=False,
    )
    remote_delete_on_disable: bool = key(
        "remote.log.delete.on.disable",
        False,
        "Each log is completely on the local disk.",
        effect=False,
    )
    remote_storage: bool = key(
        "remote.storage.enable",
        False,
        "Each log is completely on the local disk. `true` is refused, as by a Kafka without remote "
        "storage.",
        effect=False,
    )


def check_topic_config(config: TopicConfig) -> None:
    """Raise InvalidConfig if settings of a topic contradict each other or cannot be kept."""
    if config.remote_storage:
        raise InvalidConfig(
            "remote.storage.enable=true: this broker has no remote storage, so every log is on its "
            "disk; remove the setting, or set it to false"
        )
    least, most = config.compaction_lag_ms_min, config.compaction_lag_ms_max
    if least is not None and most is not None and least > most:
        raise InvalidConfig(
            f"min.compaction.lag.ms={least} must not be larger than max.compaction.lag.ms={most}"
        )
