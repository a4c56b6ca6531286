"""Configuration of logs: the broker's defaults for topics, and a topic's own settings.

The retention time and the roll time of segments have keys in several units.  If several are set,
the finest unit wins: ``log.retention.ms`` before ``.minutes`` before ``.hours``.
"""

from __future__ import annotations

from dataclasses import dataclass

from sharegroup.broker.configuration.config_values import LONG_MAX, ConfigType, key

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The broker's defaults for topics, and the intervals of the jobs that clean logs."""

    segment_bytes: int = key(
        "log.segment.bytes", 1_073_741_824, "A segment file rolls at this size.", low=1_024
    )
    segment_ms: int | None = key(
        "log.roll.ms",
        None,
        "A segment file rolls when its first record is this old; unset: `log.roll.hours`.",
        kind=ConfigType.LONG,
        low=1,
        fallbacks=(("log.roll.hours", _HOUR_MS),),
    )
    segment_hours: int = key("log.roll.hours", 168, "The same in hours.", low=1)
    message_bytes_max: int = key(
        "message.max.bytes", 1_048_588, "The largest record batch in bytes.", low=0
    )
    timestamp_type: str = key(
        "log.message.timestamp.type",
        "CreateTime",
        "Whether the timestamp of a record is set by its producer or by the broker.",
        choices=("CreateTime", "LogAppendTime"),
    )
    timestamp_before_ms_max: int = key(
        "log.message.timestamp.before.max.ms",
        LONG_MAX,
        "How far a record's timestamp may lie before the broker's time.",
        kind=ConfigType.LONG,
        low=0,
    )
    timestamp_after_ms_max: int = key(
        "log.message.timestamp.after.max.ms",
        _HOUR_MS,
        "How far a record's timestamp may lie after the broker's time.",
        kind=ConfigType.LONG,
        low=0,
    )
    retention_ms: int | None = key(
        "log.retention.ms",
        None,
        "How long records are kept; -1 for ever; unset: `log.retention.minutes`.",
        kind=ConfigType.LONG,
        low=-1,
        fallbacks=(("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)),
    )
    retention_minutes: int | None = key(
        "log.retention.minutes",
        None,
        "The same in minutes; unset: `log.retention.hours`.",
        low=-1,
        fallbacks=(("log.retention.hours", 60),),
    )
    retention_hours: int = key("log.retention.hours", 168, "The same in hours.", low=-1)
    retention_bytes: int = key(
        "log.retention.bytes",
        -1,
        "How many bytes a partition keeps; -1 no limit.",
        kind=ConfigType.LONG,
        low=-1,
    )
    retention_check_ms: int = key(
        "log.retention.check.interval.ms",
        300_000,
        "How often logs are checked for segments that retention can delete.",
        kind=ConfigType.LONG,
        low=1,
        fixed=True,
    )
    cleanup_policy: tuple[str, ...] = key(
        "log.cleanup.policy",
        ("delete",),
        "What happens to old records: `delete` drops them, `compact` keeps the last of each key.",
        choices=("delete", "compact"),
    )
    cleaner: bool = key(
        "log.cleaner.enable", True, "Whether topics are compacted at all.", fixed=True
    )
    cleaner_backoff_ms: int = key(
        "log.cleaner.backoff.ms",
        15_000,
        "How long the cleaner pauses when there was nothing to clean.",
        kind=ConfigType.LONG,
        low=0,
    )
    cleaner_dedupe_bytes: int = key(
        "log.cleaner.dedupe.buffer.size",
        134_217_728,
        "The memory for the keys of one pass; a log with more keys takes several.",
        kind=ConfigType.LONG,
        low=1,
    )
    dirty_ratio_min: float = key(
        "log.cleaner.min.cleanable.ratio",
        0.5,
        "The part of a log that must be new since the last pass before the next one.",
        low=0,
        high=1,
    )
    delete_retention_ms: int = key(
        "log.cleaner.delete.retention.ms",
        86_400_000,
        "How long a compacted log still shows that a key was deleted.",
        kind=ConfigType.LONG,
        low=0,
    )
    compaction_lag_ms_min: int = key(
        "log.cleaner.min.compaction.lag.ms",
        0,
        "Younger records are not compacted away.",
        kind=ConfigType.LONG,
        low=0,
    )
    compaction_lag_ms_max: int = key(
        "log.cleaner.max.compaction.lag.ms",
        LONG_MAX,
        "Older records are compacted whatever the ratio.",
        kind=ConfigType.LONG,
        low=1,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """A topic's own settings; None means that the broker's value is used."""

    segment_bytes: int | None = key(
        "segment.bytes", None, "Segment size.", low=1_024, synonym="log.segment.bytes"
    )
    segment_ms: int | None = key(
        "segment.ms",
        None,
        "The age at which a segment file rolls.",
        kind=ConfigType.LONG,
        low=1,
        synonym="log.roll.ms",
    )
    message_bytes_max: int | None = key(
        "max.message.bytes", None, "The largest record batch.", low=0, synonym="message.max.bytes"
    )
    timestamp_type: str | None = key(
        "message.timestamp.type",
        None,
        "Whether the timestamp of a record is set by its producer or by the broker.",
        choices=("CreateTime", "LogAppendTime"),
        synonym="log.message.timestamp.type",
    )
    timestamp_before_ms_max: int | None = key(
        "message.timestamp.before.max.ms",
        None,
        "How far a record's timestamp may lie before the broker's time.",
        kind=ConfigType.LONG,
        low=0,
        synonym="log.message.timestamp.before.max.ms",
    )
    timestamp_after_ms_max: int | None = key(
        "message.timestamp.after.max.ms",
        None,
        "How far a record's timestamp may lie after the broker's time.",
        kind=ConfigType.LONG,
        low=0,
        synonym="log.message.timestamp.after.max.ms",
    )
    retention_ms: int | None = key(
        "retention.ms",
        None,
        "How long records are kept; -1 for ever.",
        kind=ConfigType.LONG,
        low=-1,
        synonym="log.retention.ms",
    )
    retention_bytes: int | None = key(
        "retention.bytes",
        None,
        "How many bytes a partition keeps; -1 no limit.",
        kind=ConfigType.LONG,
        low=-1,
        synonym="log.retention.bytes",
    )
    cleanup_policy: tuple[str, ...] | None = key(
        "cleanup.policy",
        None,
        "What happens to old records: `delete`, `compact`, both, or (empty) nothing.",
        choices=("delete", "compact"),
        synonym="log.cleanup.policy",
    )
    delete_retention_ms: int | None = key(
        "delete.retention.ms",
        None,
        "How long a compacted log still shows that a key was deleted.",
        kind=ConfigType.LONG,
        low=0,
        synonym="log.cleaner.delete.retention.ms",
    )
    dirty_ratio_min: float | None = key(
        "min.cleanable.dirty.ratio",
        None,
        "The part of the log that must be new before it is compacted again.",
        low=0,
        high=1,
        synonym="log.cleaner.min.cleanable.ratio",
    )
    compaction_lag_ms_min: int | None = key(
        "min.compaction.lag.ms",
        None,
        "Younger records are not compacted away.",
        kind=ConfigType.LONG,
        low=0,
        synonym="log.cleaner.min.compaction.lag.ms",
    )
    compaction_lag_ms_max: int | None = key(
        "max.compaction.lag.ms",
        None,
        "Older records are compacted whatever the ratio.",
        kind=ConfigType.LONG,
        low=1,
        synonym="log.cleaner.max.compaction.lag.ms",
    )
    dead_letters: bool = key(
        "errors.deadletterqueue.group.enable",
        False,
        "Whether share groups may send their dead letters to this topic (KIP-1191).",
    )
    compression_type: str = key(
        "compression.type",
        "producer",
        "Batches are kept as their producer made them.",
        choices=("producer",),
        effect=False,
    )
    min_insync_replicas: int = key(
        "min.insync.replicas", 1, "One node has one replica.", low=1, high=1, effect=False
    )
    segment_index_bytes: int = key(
        "segment.index.bytes", 10_485_760, "Indexes grow as they need.", low=4, effect=False
    )
    index_interval_bytes: int = key(
        "index.interval.bytes",
        4_096,
        "The broker decides how dense an index is.",
        low=0,
        effect=False,
    )
    segment_jitter_ms: int = key(
        "segment.jitter.ms",
        0,
        "Segments of one disk need not roll at different times.",
        kind=ConfigType.LONG,
        low=0,
        effect=False,
    )
    file_delete_delay_ms: int = key(
        "file.delete.delay.ms",
        60_000,
        "A deleted segment goes when nobody reads it.",
        kind=ConfigType.LONG,
        low=0,
        effect=False,
    )
    preallocate: bool = key("preallocate", False, "Files grow as they are written.", effect=False)
    unclean_election: bool = key(
        "unclean.leader.election.enable", False, "A single node elects no leader.", effect=False
    )
    flush_messages: int = key(
        "flush.messages",
        LONG_MAX,
        "The broker decides when records are durable.",
        kind=ConfigType.LONG,
        low=1,
        effect=False,
    )
    flush_ms: int = key(
        "flush.ms",
        LONG_MAX,
        "The broker decides when records are durable.",
        kind=ConfigType.LONG,
        low=0,
        effect=False,
    )
