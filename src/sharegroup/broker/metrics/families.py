"""The metrics of the broker: every name, with its kind, unit, labels and meaning.

This table is the one place that names them.  `metrics` gives each of them its values, and
``docs/metrics.md`` is made from it.  Those that begin with ``kafka_`` are Apache Kafka's, as its
MBeans name them: meters are counters here, times are seconds, percentages are ratios, as is the
custom of Prometheus.  Those that begin with ``sharegroup_`` are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a value means, as the text format says it."""

    COUNTER = "counter"
    """A sum that only grows, and begins anew at a restart."""
    GAUGE = "gauge"
    """How things stand."""
    HISTOGRAM = "histogram"
    """How many values were at most as large as each of some bounds."""
    SUMMARY = "summary"
    """The number of values and their sum."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric; ``kafkas`` are the names of the MBean attributes that it stands for."""

    name: str
    kind: Kind
    unit: str
    text: str
    labels: tuple[str, ...] = ()
    kafkas: tuple[str, ...] = ()


_TOPIC = ("topic",)
_GROUP = ("group",)
_SHARE_PARTITION = ("group", "topic", "partition")
_REQUEST = ("request",)

REQUESTS: tuple[Family, ...] = (
    REQUEST_SECONDS := Family(
        "kafka_network_request_seconds", Kind.HISTOGRAM, "seconds",
        "Time from the whole request to its answer, a long poll's wait included; the count is "
        "the number of requests.",
        _REQUEST, ("RequestsPerSec", "TotalTimeMs"),
    ),
    REQUEST_LOCAL := Family(
        "kafka_network_request_local_seconds_total", Kind.COUNTER, "seconds",
        "Time for which requests kept the event loop's thread until they were decided.",
        _REQUEST, ("LocalTimeMs",),
    ),
    REQUEST_ERRORS := Family(
        "kafka_network_request_errors_total", Kind.COUNTER, "requests",
        "Requests refused as a whole, by the error's name.",
        ("request", "error"), ("ErrorsPerSec",),
    ),
    REQUEST_BYTES := Family(
        "kafka_network_request_bytes_total", Kind.COUNTER, "bytes",
        "Bytes of the requests.", _REQUEST, ("RequestBytes",),
    ),
    RESPONSE_BYTES := Family(
        "kafka_network_response_bytes_total", Kind.COUNTER, "bytes",
        "Bytes of the answers.", _REQUEST, ("ResponseBytes",),
    ),
)  # fmt: skip

TOPICS: tuple[Family, ...] = (
    SHARE_FETCHES := Family(
        "kafka_server_share_fetch_requests_total", Kind.COUNTER, "requests",
        "Share fetches of sessions with partitions of the topic.",
        _TOPIC, ("TotalShareFetchRequestsPerSec",),
    ),
    SHARE_FETCHES_FAILED := Family(
        "kafka_server_share_fetch_requests_failed_total", Kind.COUNTER, "requests",
        "Those answered with an error for some partition of the topic.",
        _TOPIC, ("FailedShareFetchRequestsPerSec",),
    ),
    ACKNOWLEDGEMENTS := Family(
        "kafka_server_share_acknowledgement_requests_total", Kind.COUNTER, "requests",
        "Requests that acknowledge records of the topic, share fetches that do it too.",
        _TOPIC, ("TotalShareAcknowledgementRequestsPerSec",),
    ),
    ACKNOWLEDGEMENTS_FAILED := Family(
        "kafka_server_share_acknowledgement_requests_failed_total", Kind.COUNTER, "requests",
        "Those of which some partition's acknowledgements failed.",
        _TOPIC, ("FailedShareAcknowledgementRequestsPerSec",),
    ),
    TOPIC_LOG_BYTES := Family(
        "sharegroup_topic_log_bytes", Kind.GAUGE, "bytes",
        "Bytes of the segments of all its partitions.", _TOPIC,
    ),
    TOPIC_LOG_OFFSETS := Family(
        "sharegroup_topic_log_offsets", Kind.GAUGE, "offsets",
        "Offsets between start and high watermark of all its partitions.", _TOPIC,
    ),
)  # fmt: skip

SHARE_GROUPS: tuple[Family, ...] = (
    RECORD_ACKNOWLEDGEMENTS := Family(
        "kafka_server_share_group_record_acknowledgements_total", Kind.COUNTER, "records",
        "Records acknowledged, once that is durable. Gap counts offsets without a record; Kafka "
        "does not count those.",
        ("ack_type",), ("RecordAcknowledgementsPerSec",),
    ),
    PARTITION_LOAD := Family(
        "kafka_server_share_group_partition_load_seconds", Kind.HISTOGRAM, "seconds",
        "What it took to load a share partition when somebody first fetched from it.",
        (), ("PartitionLoadTimeMs",),
    ),
    FETCH_RATIO := Family(
        "kafka_server_share_group_fetch_ratio", Kind.HISTOGRAM, "ratio",
        "Of the partitions of a share fetch that brought records, those that had some.",
        _GROUP, ("RequestTopicPartitionsFetchRatio",),
    ),
    ACQUIRE_SECONDS := Family(
        "kafka_server_share_group_acquire_seconds", Kind.HISTOGRAM, "seconds",
        "Time from a share fetch to its records being locked, waiting for records included.",
        _GROUP, ("TopicPartitionsAcquireTimeMs",),
    ),
    DEAD_LETTERS := Family(
        "kafka_server_share_group_dead_letter_queue_records_total", Kind.COUNTER, "records",
        "Dead letters that are durable.", _GROUP, ("DeadLetterQueueRecordCount",),
    ),
    DEAD_LETTER_WRITES := Family(
        "kafka_server_share_group_dead_letter_queue_produce_requests_total", Kind.COUNTER,
        "batches", "Batches of dead letters handed to the queue's log.",
        _GROUP, ("DeadLetterQueueTotalProduceRequestsPerSec",),
    ),
    DEAD_LETTER_FAILURES := Family(
        "kafka_server_share_group_dead_letter_queue_produce_requests_failed_total", Kind.COUNTER,
        "attempts", "Attempts to write dead letters that led to nothing, whatever for.",
        _GROUP, ("DeadLetterQueueFailedProduceRequestsPerSec",),
    ),
    DEAD_LETTERS_NOT_COPIED := Family(
        "sharegroup_dead_letters_not_copied_total", Kind.COUNTER, "records",
        "Dead letters without their record, though the group has records copied.", _GROUP,
    ),
    DEAD_LETTERS_GIVEN_UP := Family(
        "sharegroup_dead_letters_given_up_total", Kind.COUNTER, "records",
        "Records archived without a dead letter, the group's dead-letter topic being unset.",
        _GROUP,
    ),
    DEAD_LETTERS_WAITING := Family(
        "sharegroup_dead_letters_waiting", Kind.GAUGE, "records",
        "Records that wait for their dead letter, in the share partitions in memory.",
    ),
    DEAD_LETTER_PARTITIONS := Family(
        "sharegroup_dead_letter_share_partitions", Kind.GAUGE, "share partitions",
        "Those with dead letters to write (pending), and of them those whose letters cannot be "
        "written now and are tried again (stalled).", ("state",),
    ),
    SHARE_PARTITIONS_LOADED := Family(
        "sharegroup_share_partitions", Kind.GAUGE, "share partitions",
        "Those in memory (loaded), and of them those that hold as many runs as they may and take "
        "no new records until some settle (full).", ("state",),
    ),
    LOCKS_TIMED_OUT := Family(
        "sharegroup_acquisition_lock_timeouts_total", Kind.COUNTER, "records",
        "Records whose lock ended before anybody settled them, in all share partitions.",
    ),
    LOCK_LATENESS := Family(
        "sharegroup_lock_expiry_lateness_seconds", Kind.HISTOGRAM, "seconds",
        "By how much the first lock had ended when a share partition's ended locks were given "
        "back.",
    ),
)  # fmt: skip

EACH_SHARE_PARTITION: tuple[Family, ...] = (
    LOCK_TIMEOUTS := Family(
        "kafka_server_share_partition_acquisition_lock_timeouts_total", Kind.COUNTER, "records",
        "Records whose lock ended before anybody settled them.",
        _SHARE_PARTITION, ("AcquisitionLockTimeoutPerSec",),
    ),
    IN_FLIGHT := Family(
        "kafka_server_share_partition_in_flight_messages", Kind.GAUGE, "offsets",
        "Offsets between start and end offset of the share partition.",
        _SHARE_PARTITION, ("InFlightMessageCount",),
    ),
    IN_FLIGHT_RUNS := Family(
        "kafka_server_share_partition_in_flight_batches", Kind.GAUGE, "runs",
        "Runs of neighbouring offsets in one state; they are what memory is needed for.",
        _SHARE_PARTITION, ("InFlightBatchCount",),
    ),
    BATCH_MESSAGES := Family(
        "kafka_server_share_partition_batch_messages", Kind.SUMMARY, "offsets",
        "Offsets of each range that was handed to a member.",
        _SHARE_PARTITION, ("InFlightBatchMessageCount",),
    ),
    FETCH_LOCK := Family(
        "kafka_server_share_partition_fetch_lock_seconds", Kind.SUMMARY, "seconds",
        "Time for which one fetch had the share partition for itself. The rate of its sum is "
        "Kafka's ratio of time.",
        _SHARE_PARTITION, ("FetchLockTimeMs", "FetchLockRatio"),
    ),
    RECORDS := Family(
        "sharegroup_share_partition_records", Kind.GAUGE, "offsets",
        "Offsets in flight that are not settled: available again or not yet delivered "
        "(available), with a member (acquired), waiting for their dead letter (archiving).",
        (*_SHARE_PARTITION, "state"),
    ),
    LAG := Family(
        "sharegroup_share_partition_lag", Kind.GAUGE, "offsets",
        "Offsets up to the high watermark that are not settled.", _SHARE_PARTITION,
    ),
    FULL := Family(
        "sharegroup_share_partition_full", Kind.GAUGE, "0 or 1",
        "Whether so many runs are held that no new records are taken until some settle.",
        _SHARE_PARTITION,
    ),
)  # fmt: skip
"""With series for each share partition in memory, up to a limit."""

SESSIONS: tuple[Family, ...] = (
    SESSION_EVICTIONS := Family(
        "kafka_server_share_session_evictions_total", Kind.COUNTER, "sessions",
        "Share sessions that ended because their connection did.",
        (), ("ShareSessionEvictionsPerSec",),
    ),
    SESSION_PARTITIONS := Family(
        "kafka_server_share_session_partitions", Kind.GAUGE, "partitions",
        "Partitions of all share sessions, each counted once per session.",
        (), ("SharePartitionsCount",),
    ),
    SESSIONS_OPEN := Family(
        "kafka_server_share_sessions", Kind.GAUGE, "sessions",
        "Share sessions.", (), ("ShareSessionsCount",),
    ),
    DELAYED := Family(
        "kafka_server_delayed_share_fetches", Kind.GAUGE, "requests",
        "Share fetches that wait for records.", (), ("NumDelayedOperations",),
    ),
    DELAYED_WATCHES := Family(
        "kafka_server_delayed_share_fetch_watches", Kind.GAUGE, "keys",
        "What those wait for: each partition and share partition, counted for each request.",
        (), ("PurgatorySize",),
    ),
    DELAYED_EXPIRED := Family(
        "kafka_server_delayed_share_fetches_expired_total", Kind.COUNTER, "requests",
        "Share fetches that waited and got no records.", (), ("ExpiresPerSec",),
    ),
    WAITING := Family(
        "sharegroup_waiting_requests", Kind.GAUGE, "requests",
        "Requests of all kinds that wait for something to happen.",
    ),
)  # fmt: skip

COORDINATORS: tuple[Family, ...] = (
    GROUPS := Family(
        "kafka_group_coordinator_groups", Kind.GAUGE, "groups",
        "Groups by protocol: share, or classic for ordinary consumer groups.",
        ("protocol",), ("group-count",),
    ),
    GROUP_STATES := Family(
        "kafka_group_coordinator_share_groups", Kind.GAUGE, "groups",
        "Share groups by state: Empty or Stable; a dead one is gone.",
        ("state",), ("share-group-count",),
    ),
    CONSUMER_GROUP_STATES := Family(
        "kafka_group_coordinator_classic_groups", Kind.GAUGE, "groups",
        "Ordinary consumer groups by state.", ("state",), ("classic-group-count",),
    ),
    REBALANCES := Family(
        "kafka_group_coordinator_share_group_rebalances_total", Kind.COUNTER, "rebalances",
        "How often the epoch of some share group went up.",
        (), ("share-group-rebalance-rate", "share-group-rebalance-count"),
    ),
    STATE_LOAD := Family(
        "kafka_share_coordinator_load_seconds", Kind.GAUGE, "seconds",
        "What it took to read the whole state topic at start.",
        (), ("partition-load-time-max", "partition-load-time-avg"),
    ),
    STATE_WRITES := Family(
        "kafka_share_coordinator_writes_total", Kind.COUNTER, "batches",
        "Batches of records written to the state topic.", (), ("write-rate", "write-total"),
    ),
    STATE_WRITE_SECONDS := Family(
        "kafka_share_coordinator_write_seconds", Kind.HISTOGRAM, "seconds",
        "Time from an acknowledgement's decision to its being durable.",
        (), ("write-latency-avg", "write-latency-max", "batch-flush-time-ms", "batch-flush-rate"),
    ),
    STATE_PARTITIONS := Family(
        "kafka_share_coordinator_partitions", Kind.GAUGE, "partitions",
        "Partitions of the state topic: with a log (active), or whose log takes no writes now "
        "(failed); none is ever loading while the broker serves.",
        ("state",), ("num-partitions",),
    ),
    LAST_PRUNED := Family(
        "kafka_share_coordinator_last_pruned_offset", Kind.GAUGE, "offset",
        "Up to where a partition of the state topic was last pruned.",
        ("topic", "partition"), ("last-pruned-offset",),
    ),
)  # fmt: skip

PROCESS: tuple[Family, ...] = (
    LOOP_LAG := Family(
        "sharegroup_loop_lag_seconds", Kind.HISTOGRAM, "seconds",
        "By how much the event loop was late for a call ten times a second: everything waits "
        "so long now and then.",
        (), ("event-queue-time-ms", "thread-idle-ratio-min", "thread-idle-ratio-avg"),
    ),
    SYNCS := Family(
        "sharegroup_sync_seconds", Kind.SUMMARY, "seconds",
        "Rounds of syncs to disk; each makes durable what was written since the last.",
    ),
    LOG_BYTES := Family(
        "sharegroup_log_bytes", Kind.GAUGE, "bytes",
        "Bytes of the segments of all topics, internal ones included.",
    ),
    CONNECTIONS := Family(
        "sharegroup_connections", Kind.GAUGE, "connections",
        "Open connections.", (), ("connection-count",),
    ),
    CONNECTIONS_OPENED := Family(
        "sharegroup_connections_opened_total", Kind.COUNTER, "connections",
        "Connections that were accepted.", (), ("connection-creation-total",),
    ),
    CONNECTIONS_REFUSED := Family(
        "sharegroup_connections_refused_total", Kind.COUNTER, "connections",
        "Connections closed at once, because max.connections were open.",
    ),
    BAD_REQUESTS := Family(
        "sharegroup_bad_requests_total", Kind.COUNTER, "requests",
        "Requests that broke the protocol and ended their connection.",
    ),
    CPU := Family(
        "process_cpu_seconds_total", Kind.COUNTER, "seconds",
        "CPU time of the process, user and system.",
    ),
    LEFT_OUT := Family(
        "sharegroup_metrics_left_out", Kind.GAUGE, "series' owners",
        "Share partitions, groups and topics beyond the limits, which have no series of their "
        "own in this answer.", ("of",),
    ),
)  # fmt: skip

FAMILIES = (
    *REQUESTS, *TOPICS, *SHARE_GROUPS, *EACH_SHARE_PARTITION, *SESSIONS, *COORDINATORS, *PROCESS
)  # fmt: skip
"""All of them, in the order in which they are given out."""

NOT_HERE = {
    "event-queue-size": "there is no queue: a request is decided when it comes",
    "event-processing-time-ms": "it is in the local time of the requests",
    "event-purgatory-time-ms": "it is in `kafka_share_coordinator_write_seconds`",
    "batch-linger-time-ms": "nothing lingers: what comes while the disk syncs shares the next sync",
    "batch-buffer-cache-size-bytes": "batches are encoded when they are written; none is kept",
    "batch-buffer-cache-discard-count": "the same",
}
"""Kafka's metrics of share groups that would mean nothing here, and why."""
