"""Configuration of logs: the broker's defaults for topics, and the jobs that clean logs.

The retention time and the roll time of segments have keys in several units.  If several are set,
the finest unit wins: ``log.retention.ms`` before ``.minutes`` before ``.hours``.
"""

from __future__ import annotations

from sharegroup.broker.configuration.config_values import LONG_MAX, ConfigPart, ConfigType, key

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

RECORD_BYTES_MAX = 2**31 - 9
"""The largest record that Kafka can hold in memory."""

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000


class LogConfig(ConfigPart):
    """The broker's defaults for topics, and the intervals of the jobs that clean logs."""

    segment_bytes: int = key(
        "log.segment.bytes",
        1_073_741_824,
        "Size at which a segment file is rolled; default for topics.",
        low=1_024,
    )
    segment_ms: int | None = key(
        "log.roll.ms",
        None,
        "Age of the first record at which a segment file is rolled; default for topics. If unset, "
        "`log.roll.hours` is used.",
        kind=ConfigType.LONG,
        low=1,
        fallbacks=(("log.roll.hours", _HOUR_MS),),
    )
    segment_hours: int = key(
        "log.roll.hours",
        168,
        "Age in hours at which a segment file is rolled, if `log.roll.ms` is unset.",
        low=1,
    )
    message_bytes_max: int = key(
        "message.max.bytes", 1_048_588, "Maximum size of a record batch; default for topics.", low=0
    )
    timestamp_type: str = key(
        "log.message.timestamp.type",
        "CreateTime",
        "Whether the producer or the broker sets record timestamps; default for topics.",
        choices=("CreateTime", "LogAppendTime"),
    )
    timestamp_before_ms_max: int = key(
        "log.message.timestamp.before.max.ms",
        LONG_MAX,
        "Maximum time by which a record's timestamp may be before the broker's time; default for "
        "topics.",
        kind=ConfigType.LONG,
        low=0,
    )
    timestamp_after_ms_max: int = key(
        "log.message.timestamp.after.max.ms",
        _HOUR_MS,
        "Maximum time by which a record's timestamp may be after the broker's time; default for "
        "topics.",
        kind=ConfigType.LONG,
        low=0,
    )
    retention_ms: int | None = key(
        "log.retention.ms",
        None,
        "Time for which records are kept; -1: forever; default for topics. If unset, "
        "`log.retention.minutes` is used.",
        kind=ConfigType.LONG,
        low=-1,
        fallbacks=(("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)),
    )
    retention_minutes: int | None = key(
        "log.retention.minutes",
        None,
        "Retention time in minutes. If unset, `log.retention.hours` is used.",
        low=-1,
        fallbacks=(("log.retention.hours", 60),),
    )
    retention_hours: int = key("log.retention.hours", 168, "Retention time in hours.", low=-1)
    retention_bytes: int = key(
        "log.retention.bytes",
        -1,
        "Number of bytes that a partition keeps; -1: no limit; default for topics.",
        kind=ConfigType.LONG,
    )
    retention_check_ms: int = key(
        "log.retention.check.interval.ms",
        300_000,
        "Interval between checks for segments that retention can delete.",
        kind=ConfigType.LONG,
        low=1,
        fixed=True,
    )
    cleanup_policy: tuple[str, ...] = key(
        "log.cleanup.policy",
        ("delete",),
        "Cleanup of old records: `delete` removes them, `compact` keeps the last record of each "
        "key; default for topics.",
        choices=("delete", "compact"),
    )
    cleaner: bool = key("log.cleaner.enable", True, "Whether the broker compacts logs.", fixed=True)
    cleaner_backoff_ms: int = key(
        "log.cleaner.backoff.ms",
        15_000,
        "Time for which the cleaner pauses if there was nothing to clean.",
        kind=ConfigType.LONG,
        low=0,
    )
    cleaner_dedupe_bytes: int = key(
        "log.cleaner.dedupe.buffer.size",
        134_217_728,
        "Memory for the keys of one compaction pass; a log with more keys needs several passes.",
        kind=ConfigType.LONG,
        low=1,
    )
    dirty_ratio_min: float = key(
        "log.cleaner.min.cleanable.ratio",
        0.5,
        "Minimum dirty ratio (fraction of the log that is new since the last compaction) at which "
        "a log is compacted; default for topics.",
        low=0,
        high=1,
    )
    delete_retention_ms: int = key(
        "log.cleaner.delete.retention.ms",
        86_400_000,
        "How long tombstones are kept; default for topics.",
        kind=ConfigType.LONG,
        low=0,
    )
    compaction_lag_ms_min: int = key(
        "log.cleaner.min.compaction.lag.ms",
        0,
        "Age below which records are not compacted; default for topics.",
        kind=ConfigType.LONG,
        low=0,
    )
    compaction_lag_ms_max: int = key(
        "log.cleaner.max.compaction.lag.ms",
        LONG_MAX,
        "Age after which records are compacted regardless of the dirty ratio; default for topics.",
        kind=ConfigType.LONG,
        low=1,
    )

    compression_type: str = key(
        "compression.type",
        "producer",
        "Compression with which batches are stored: `producer` keeps that of the producer, every "
        "other value makes the broker compress the batches again; default for topics.",
        choices=COMPRESSION_TYPES,
    )
    gzip_level: int = key(
        "compression.gzip.level",
        -1,
        "Level of gzip, if the broker compresses with it: 1 to 9, or -1 for its default; default "
        "for topics.",
        low=-1,
        high=9,
    )
    lz4_level: int = key(
        "compression.lz4.level",
        9,
        "Level of lz4, if the broker compresses with it; default for topics.",
        low=1,
        high=17,
    )
    zstd_level: int = key(
        "compression.zstd.level",
        3,
        "Level of zstd, if the broker compresses with it; default for topics.",
        low=-131_072,
        high=22,
    )
    record_bytes_max: int = key(
        "max.decompressed.message.bytes",
        RECORD_BYTES_MAX,
        "Maximum size of a record after decompression, checked where the broker decompresses a "
        "batch of a producer; default for topics.",
        low=1,
        high=RECORD_BYTES_MAX,
    )
    min_insync_replicas: int = key(
        "min.insync.replicas",
        1,
        "There is one broker, so a partition has one replica. As in Kafka, no partition needs more "
        "replicas than it has.",
        low=1,
        effect=False,
    )
    unclean_election: bool = key(
        "unclean.leader.election.enable", False, "A single broker elects no leader.", effect=False
    )
    index_interval_bytes: int = key(
        "log.index.interval.bytes",
        4_096,
        "The broker chooses the density of an index.",
        low=0,
        effect=False,
    )
    index_bytes_max: int = key(
        "log.index.size.max.bytes", 10_485_760, "Indexes grow as needed.", low=4, effect=False
    )
    flush_messages: int = key(
        "log.flush.interval.messages",
        LONG_MAX,
        "The broker decides when records are durable.",
        kind=ConfigType.LONG,
        low=1,
        effect=False,
    )
    flush_ms: int | None = key(
        "log.flush.interval.ms",
        None,
        "The broker decides when records are durable.",
        kind=ConfigType.LONG,
        fallbacks=(("log.flush.scheduler.interval.ms", 1),),
        effect=False,
    )
    flush_check_ms: int = key(
        "log.flush.scheduler.interval.ms",
        LONG_MAX,
        "The broker decides when records are durable.",
        kind=ConfigType.LONG,
        effect=False,
        fixed=True,
    )
    preallocate: bool = key(
        "log.preallocate", False, "Files grow as they are written.", effect=False
    )
    segment_jitter_ms: int | None = key(
        "log.roll.jitter.ms",
        None,
        "Segments of one disk do not need to be rolled at different times.",
        kind=ConfigType.LONG,
        fallbacks=(("log.roll.jitter.hours", _HOUR_MS),),
        effect=False,
    )
    segment_jitter_hours: int = key(
        "log.roll.jitter.hours",
        0,
        "Segments of one disk do not need to be rolled at different times.",
        low=0,
        effect=False,
        fixed=True,
    )
    file_delete_delay_ms: int = key(
        "log.segment.delete.delay.ms",
        60_000,
        "A deleted segment is removed as soon as it is not being read.",
        kind=ConfigType.LONG,
        low=0,
        effect=False,
    )
    local_retention_ms: int = key(
        "log.local.retention.ms",
        -2,
        "Each log is completely on the local disk.",
        kind=ConfigType.LONG,
        low=-2,
        effect=False,
    )
    local_retention_bytes: int = key(
        "log.local.retention.bytes",
        -2,
        "Each log is completely on the local disk.",
        kind=ConfigType.LONG,
        low=-2,
        effect=False,
    )
    remote_copy_lag_ms: int = key(
        "log.remote.copy.lag.ms",
        0,
        "Each log is completely on the local disk.",
        kind=ConfigType.LONG,
        low=-1,
        effect=False,
    )
    remote_copy_lag_bytes: int = key(
        "log.remote.copy.lag.bytes",
        -1,
        "Each log is completely on the local disk.",
        kind=ConfigType.LONG,
        low=-1,
        effect=False,
    )

    @property
    def effective_segment_ms(self) -> int:
        """The age in ms at which a segment rolls, from the key that is set."""
        return self.segment_hours * _HOUR_MS if self.segment_ms is None else self.segment_ms

    @property
    def effective_retention_ms(self) -> int:
        """The retention time of records in ms, from the key that is set; -1 means forever."""
        for value, unit_ms in (
            (self.retention_ms, 1),
            (self.retention_minutes, _MINUTE_MS),
            (self.retention_hours, _HOUR_MS),
        ):
            if value is not None:
                return -1 if value < 0 else value * unit_ms
        raise AssertionError("hours have a default")
