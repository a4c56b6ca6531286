"""Configuration of a topic: its own settings, which take precedence over the broker's defaults."""

from __future__ import annotations

from functools import partial

from sharegroup.broker.configuration.config_values import ConfigPart, inherited, key
from sharegroup.broker.configuration.log_config import LogConfig
from sharegroup.errors import InvalidConfig

_of_log = partial(inherited, LogConfig)


class TopicConfig(ConfigPart):
    """A topic's own settings; None means that the broker's value is used."""

    segment_bytes: int | None = _of_log(
        "segment.bytes",
        "log.segment.bytes",
        "Size at which a segment file of this topic is rolled.",
    )
    segment_ms: int | None = _of_log(
        "segment.ms",
        "log.roll.ms",
        "Age of the first record at which a segment file of this topic is rolled.",
    )
    message_bytes_max: int | None = _of_log(
        "max.message.bytes", "message.max.bytes", "Maximum size of a record batch of this topic."
    )
    timestamp_type: str | None = _of_log(
        "message.timestamp.type",
        "log.message.timestamp.type",
        "Whether the producer or the broker sets the record timestamps of this topic.",
    )
    timestamp_before_ms_max: int | None = _of_log(
        "message.timestamp.before.max.ms",
        "log.message.timestamp.before.max.ms",
        "Maximum time by which the timestamp of a record of this topic may be before the broker's "
        "time.",
    )
    timestamp_after_ms_max: int | None = _of_log(
        "message.timestamp.after.max.ms",
        "log.message.timestamp.after.max.ms",
        "Maximum time by which the timestamp of a record of this topic may be after the broker's "
        "time.",
    )
    retention_ms: int | None = _of_log(
        "retention.ms",
        "log.retention.ms",
        "Time for which records of this topic are kept; -1: forever.",
    )
    retention_bytes: int | None = _of_log(
        "retention.bytes",
        "log.retention.bytes",
        "Number of bytes that a partition of this topic keeps; -1: no limit.",
    )
    cleanup_policy: tuple[str, ...] | None = _of_log(
        "cleanup.policy",
        "log.cleanup.policy",
        "Cleanup of old records of this topic: `delete`, `compact`, both, or none (empty).",
    )
    delete_retention_ms: int | None = _of_log(
        "delete.retention.ms",
        "log.cleaner.delete.retention.ms",
        "How long tombstones of this topic are kept.",
    )
    dirty_ratio_min: float | None = _of_log(
        "min.cleanable.dirty.ratio",
        "log.cleaner.min.cleanable.ratio",
        "Minimum dirty ratio (fraction of the log that is new since the last compaction) at which "
        "this topic is compacted.",
    )
    compaction_lag_ms_min: int | None = _of_log(
        "min.compaction.lag.ms",
        "log.cleaner.min.compaction.lag.ms",
        "Age below which records of this topic are not compacted.",
    )
    compaction_lag_ms_max: int | None = _of_log(
        "max.compaction.lag.ms",
        "log.cleaner.max.compaction.lag.ms",
        "Age after which records of this topic are compacted regardless of the dirty ratio.",
    )
    dead_letters: bool = key(
        "errors.deadletterqueue.group.enable",
        False,
        "Whether share groups may write dead letters to this topic (KIP-1191).",
    )
    compression_type: str | None = _of_log(
        "compression.type",
        "compression.type",
        "Compression with which batches of this topic are stored: `producer` keeps that of the "
        "producer, every other value makes the broker compress the batches again.",
    )
    gzip_level: int | None = _of_log(
        "compression.gzip.level",
        "compression.gzip.level",
        "Level of gzip, if the broker compresses with it: 1 to 9, or -1 for its default.",
    )
    lz4_level: int | None = _of_log(
        "compression.lz4.level",
        "compression.lz4.level",
        "Level of lz4, if the broker compresses with it.",
    )
    zstd_level: int | None = _of_log(
        "compression.zstd.level",
        "compression.zstd.level",
        "Level of zstd, if the broker compresses with it.",
    )
    record_bytes_max: int | None = _of_log(
        "max.decompressed.message.bytes",
        "max.decompressed.message.bytes",
        "Maximum size of a record of this topic after decompression, checked where the broker "
        "decompresses a batch of a producer.",
    )
    internal_segment_bytes: int | None = key(
        "internal.segment.bytes",
        None,
        "Size at which a segment file of this topic is rolled, before `segment.bytes`; of Kafka's "
        "tests.",
        low=1_024,
        internal=True,
    )
    min_insync_replicas: int | None = _of_log("min.insync.replicas", "min.insync.replicas")
    segment_index_bytes: int | None = _of_log("segment.index.bytes", "log.index.size.max.bytes")
    index_interval_bytes: int | None = _of_log("index.interval.bytes", "log.index.interval.bytes")
    segment_jitter_ms: int | None = _of_log("segment.jitter.ms", "log.roll.jitter.ms", low=0)
    file_delete_delay_ms: int | None = _of_log(
        "file.delete.delay.ms", "log.segment.delete.delay.ms"
    )
    preallocate: bool | None = _of_log("preallocate", "log.preallocate")
    unclean_election: bool | None = _of_log(
        "unclean.leader.election.enable", "unclean.leader.election.enable"
    )
    flush_messages: int | None = _of_log("flush.messages", "log.flush.interval.messages")
    flush_ms: int | None = _of_log("flush.ms", "log.flush.interval.ms", low=0)
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
    local_retention_ms: int | None = _of_log("local.retention.ms", "log.local.retention.ms")
    local_retention_bytes: int | None = _of_log(
        "local.retention.bytes", "log.local.retention.bytes"
    )
    remote_copy_lag_ms: int | None = _of_log("remote.copy.lag.ms", "log.remote.copy.lag.ms")
    remote_copy_lag_bytes: int | None = _of_log(
        "remote.copy.lag.bytes", "log.remote.copy.lag.bytes"
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
