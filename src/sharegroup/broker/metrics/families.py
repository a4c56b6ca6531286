"""The metrics of the broker: every name, with its kind, unit, labels and meaning.

This table is the only place that names them.  `values` computes their values, and
``docs/metrics.md`` is generated from it.  Metrics that begin with ``kafka_`` are Apache Kafka's,
named after its MBeans.  As is usual for Prometheus, meters are counters here, times are in seconds,
and percentages are ratios.  Metrics that begin with ``sharegroup_`` are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MetricType(StrEnum):
    """The type of a metric, as the text format names it."""

    COUNTER = "counter"
    """A sum that only grows, and begins anew at a restart."""
    GAUGE = "gauge"
    """A current value."""
    HISTOGRAM = "histogram"
    """The number of values up to each of several bounds."""
    SUMMARY = "summary"
    """The number of values and their sum."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric; ``kafkas`` are the names of the MBean attributes that it corresponds to."""

    name: str
    kind: MetricType
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
        "kafka_network_request_seconds", MetricType.HISTOGRAM, "seconds",
        "Time from the whole request to its answer, a long poll's wait included; the count is "
        "the number of requests.",
        _REQUEST, ("RequestsPerSec", "TotalTimeMs"),
    ),
    REQUEST_LOCAL := Family(
        "kafka_network_request_local_seconds_total", MetricType.COUNTER, "seconds",
        "Time for which requests kept the event loop's thread until they were decided.",
        _REQUEST, ("LocalTimeMs",),
    ),
    REQUEST_HOLDS := Family(
        "sharegroup_request_holds_total", MetricType.COUNTER, "requests",
        "Requests that kept the event loop for more than 50 ms without a pause.", _REQUEST,
    ),
    REQUEST_LONGEST_HOLD := Family(
        "sharegroup_request_longest_hold_seconds", MetricType.GAUGE, "seconds",
        "The longest of these times since the start; 0 if there was none.", _REQUEST,
    ),
    REQUEST_ERRORS := Family(
        "kafka_network_request_errors_total", MetricType.COUNTER, "requests",
        "Requests refused as a whole, by the error's name.",
        ("request", "error"), ("ErrorsPerSec",),
    ),
    REQUEST_BYTES := Family(
        "kafka_network_request_bytes_total", MetricType.COUNTER, "bytes",
        "Bytes of the requests.", _REQUEST, ("RequestBytes",),
    ),
    RESPONSE_BYTES := Family(
        "kafka_network_response_bytes_total", MetricType.COUNTER, "bytes",
        "Bytes of the answers.", _REQUEST, ("ResponseBytes",),
    ),
)  # fmt: skip

TOPICS: tuple[Family, ...] = (
    SHARE_FETCHES := Family(
        "kafka_server_share_fetch_requests_total", MetricType.COUNTER, "requests",
        "Share fetches of sessions with partitions of the topic.",
        _TOPIC, ("TotalShareFetchRequestsPerSec",),
    ),
    SHARE_FETCHES_FAILED := Family(
        "kafka_server_share_fetch_requests_failed_total", MetricType.COUNTER, "requests",
        "Share fetches answered with an error for a partition of the topic.",
        _TOPIC, ("FailedShareFetchRequestsPerSec",),
    ),
    ACKNOWLEDGEMENTS := Family(
        "kafka_server_share_acknowledgement_requests_total", MetricType.COUNTER, "requests",
        "Requests that acknowledge records of the topic, share fetches that do it too.",
        _TOPIC, ("TotalShareAcknowledgementRequestsPerSec",),
    ),
    ACKNOWLEDGEMENTS_FAILED := Family(
        "kafka_server_share_acknowledgement_requests_failed_total", MetricType.COUNTER, "requests",
        "Requests whose acknowledgements failed for a partition of the topic.",
        _TOPIC, ("FailedShareAcknowledgementRequestsPerSec",),
    ),
    TOPIC_LOG_BYTES := Family(
        "sharegroup_topic_log_bytes", MetricType.GAUGE, "bytes",
        "Bytes of the segments of all its partitions.", _TOPIC,
    ),
    TOPIC_LOG_OFFSETS := Family(
        "sharegroup_topic_log_offsets", MetricType.GAUGE, "offsets",
        "Offsets between start and high watermark of all its partitions.", _TOPIC,
    ),
)  # fmt: skip

SHARE_GROUPS: tuple[Family, ...] = (
    RECORD_ACKNOWLEDGEMENTS := Family(
        "kafka_server_share_group_record_acknowledgements_total", MetricType.COUNTER, "records",
        "Records acknowledged, once that is durable. Gap counts offsets without a record; Kafka "
        "does not count those.",
        ("ack_type",), ("RecordAcknowledgementsPerSec",),
    ),
    PARTITION_LOAD := Family(
        "kafka_server_share_group_partition_load_seconds", MetricType.HISTOGRAM, "seconds",
        "Time to load a share partition at the first fetch from it.",
        (), ("PartitionLoadTimeMs",),
    ),
    FETCH_RATIO := Family(
        "kafka_server_share_group_fetch_ratio", MetricType.HISTOGRAM, "ratio",
        "Of the partitions of a share fetch that brought records, those that had some.",
        _GROUP, ("RequestTopicPartitionsFetchRatio",),
    ),
    ACQUIRE_SECONDS := Family(
        "kafka_server_share_group_acquire_seconds", MetricType.HISTOGRAM, "seconds",
        "Time from a share fetch to its records being locked, waiting for records included.",
        _GROUP, ("TopicPartitionsAcquireTimeMs",),
    ),
    DEAD_LETTERS := Family(
        "kafka_server_share_group_dead_letter_queue_records_total", MetricType.COUNTER, "records",
        "Dead letters that are durable.", _GROUP, ("DeadLetterQueueRecordCount",),
    ),
    DEAD_LETTER_WRITES := Family(
        "kafka_server_share_group_dead_letter_queue_produce_requests_total", MetricType.COUNTER,
        "batches", "Batches of dead letters handed to the queue's log.",
        _GROUP, ("DeadLetterQueueTotalProduceRequestsPerSec",),
    ),
    DEAD_LETTER_FAILURES := Family(
        "kafka_server_share_group_dead_letter_queue_produce_requests_failed_total",
        MetricType.COUNTER, "attempts", "Failed attempts to write dead letters, for any reason.",
        _GROUP, ("DeadLetterQueueFailedProduceRequestsPerSec",),
    ),
    DEAD_LETTERS_NOT_COPIED := Family(
        "sharegroup_dead_letters_not_copied_total", MetricType.COUNTER, "records",
        "Dead letters without their record, although the group copies records.", _GROUP,
    ),
    DEAD_LETTERS_GIVEN_UP := Family(
        "sharegroup_dead_letters_given_up_total", MetricType.COUNTER, "records",
        "Records archived without a dead letter, because the group's dead-letter topic was unset.",
        _GROUP,
    ),
    DEAD_LETTERS_WAITING := Family(
        "sharegroup_dead_letters_waiting", MetricType.GAUGE, "records",
        "Records that wait for their dead letter, in the share partitions in memory.",
    ),
    DEAD_LETTER_PARTITIONS := Family(
        "sharegroup_dead_letter_share_partitions", MetricType.GAUGE, "share partitions",
        "Share partitions with dead letters to write (pending), and those of them whose dead "
        "letters cannot be written now and are retried (stalled).", ("state",),
    ),
    SHARE_PARTITIONS_LOADED := Family(
        "sharegroup_share_partitions", MetricType.GAUGE, "share partitions",
        "Share partitions in memory (loaded), and those of them that are at their limit of runs "
        "and take no new records until some are settled (full).", ("state",),
    ),
    LOCKS_TIMED_OUT := Family(
        "sharegroup_acquisition_lock_timeouts_total", MetricType.COUNTER, "records",
        "Records whose lock ended before they were settled, in all share partitions.",
    ),
    LOCK_LATENESS := Family(
        "sharegroup_lock_expiry_lateness_seconds", MetricType.HISTOGRAM, "seconds",
        "Time from the first lock deadline until the ended locks of a share partition were "
        "released.",
    ),
)  # fmt: skip

EACH_SHARE_PARTITION: tuple[Family, ...] = (
    LOCK_TIMEOUTS := Family(
        "kafka_server_share_partition_acquisition_lock_timeouts_total", MetricType.COUNTER,
        "records", "Records whose lock ended before they were settled.",
        _SHARE_PARTITION, ("AcquisitionLockTimeoutPerSec",),
    ),
    IN_FLIGHT := Family(
        "kafka_server_share_partition_in_flight_messages", MetricType.GAUGE, "offsets",
        "Offsets between start and end offset of the share partition.",
        _SHARE_PARTITION, ("InFlightMessageCount",),
    ),
    IN_FLIGHT_RUNS := Family(
        "kafka_server_share_partition_in_flight_batches", MetricType.GAUGE, "runs",
        "Runs of neighbouring offsets in one state; their number determines the memory in use.",
        _SHARE_PARTITION, ("InFlightBatchCount",),
    ),
    BATCH_MESSAGES := Family(
        "kafka_server_share_partition_batch_messages", MetricType.SUMMARY, "offsets",
        "Offsets of each range that was handed to a member.",
        _SHARE_PARTITION, ("InFlightBatchMessageCount",),
    ),
    FETCH_LOCK := Family(
        "kafka_server_share_partition_fetch_lock_seconds", MetricType.SUMMARY, "seconds",
        "Time for which one fetch had the share partition for itself. The rate of its sum is "
        "Kafka's ratio of time.",
        _SHARE_PARTITION, ("FetchLockTimeMs", "FetchLockRatio"),
    ),
    RECORDS := Family(
        "sharegroup_share_partition_records", MetricType.GAUGE, "offsets",
        "Offsets in flight that are not settled: available again or not yet delivered "
        "(available), with a member (acquired), waiting for their dead letter (archiving).",
        (*_SHARE_PARTITION, "state"),
    ),
    LAG := Family(
        "sharegroup_share_partition_lag", MetricType.GAUGE, "offsets",
        "Offsets up to the high watermark that are not settled.", _SHARE_PARTITION,
    ),
    FULL := Family(
        "sharegroup_share_partition_full", MetricType.GAUGE, "0 or 1",
        "Whether it is at its limit of runs and takes no new records until some are settled.",
        _SHARE_PARTITION,
    ),
)  # fmt: skip
"""Metrics with a series for each share partition in memory, up to a limit."""

SESSIONS: tuple[Family, ...] = (
    SESSION_EVICTIONS := Family(
        "kafka_server_share_session_evictions_total", MetricType.COUNTER, "sessions",
        "Share sessions that ended because their connection did, or because another needed room.",
        (), ("ShareSessionEvictionsPerSec",),
    ),
    SESSION_PARTITIONS := Family(
        "kafka_server_share_session_partitions", MetricType.GAUGE, "partitions",
        "Partitions of all share sessions, each counted once per session.",
        (), ("SharePartitionsCount",),
    ),
    SESSIONS_OPEN := Family(
        "kafka_server_share_sessions", MetricType.GAUGE, "sessions",
        "Share sessions.", (), ("ShareSessionsCount",),
    ),
    SESSIONS_REFUSED := Family(
        "sharegroup_sessions_refused_total", MetricType.COUNTER, "sessions",
        "Sessions that were not opened, or did not grow, because of a limit; protocol: share, or "
        "fetch for ordinary consumers.", ("protocol",),
    ),
    FETCH_SESSIONS_OPEN := Family(
        "kafka_server_fetch_sessions", MetricType.GAUGE, "sessions",
        "Fetch sessions.", (), ("NumIncrementalFetchSessions",),
    ),
    FETCH_SESSION_PARTITIONS := Family(
        "kafka_server_fetch_session_partitions", MetricType.GAUGE, "partitions",
        "Partitions of all fetch sessions, each counted once per session.",
        (), ("NumIncrementalFetchPartitionsCached",),
    ),
    FETCH_SESSION_EVICTIONS := Family(
        "kafka_server_fetch_session_evictions_total", MetricType.COUNTER, "sessions",
        "Fetch sessions that were closed to make room for others.",
        (), ("IncrementalFetchSessionEvictionsPerSec",),
    ),
    DELAYED := Family(
        "kafka_server_delayed_share_fetches", MetricType.GAUGE, "requests",
        "Share fetches that wait for records.", (), ("NumDelayedOperations",),
    ),
    DELAYED_WATCHES := Family(
        "kafka_server_delayed_share_fetch_watches", MetricType.GAUGE, "keys",
        "What those wait for: each partition and share partition, counted for each request.",
        (), ("PurgatorySize",),
    ),
    DELAYED_EXPIRED := Family(
        "kafka_server_delayed_share_fetches_expired_total", MetricType.COUNTER, "requests",
        "Share fetches that waited and got no records.", (), ("ExpiresPerSec",),
    ),
    WAITING := Family(
        "sharegroup_waiting_requests", MetricType.GAUGE, "requests",
        "Requests of all kinds that wait for something to happen.",
    ),
)  # fmt: skip

COORDINATORS: tuple[Family, ...] = (
    GROUPS := Family(
        "kafka_group_coordinator_groups", MetricType.GAUGE, "groups",
        "Groups by protocol: share, or classic for ordinary consumer groups.",
        ("protocol",), ("group-count",),
    ),
    GROUP_STATES := Family(
        "kafka_group_coordinator_share_groups", MetricType.GAUGE, "groups",
        "Share groups by state: Empty or Stable; a dead one is gone.",
        ("state",), ("share-group-count",),
    ),
    SHARE_GROUP_BYTES := Family(
        "sharegroup_share_groups_bytes", MetricType.GAUGE, "bytes",
        "Approximate memory of the ids, members and topic names of all share groups.",
    ),
    GROUP_SETTINGS_BYTES := Family(
        "sharegroup_group_settings_bytes", MetricType.GAUGE, "bytes",
        "Approximate memory of the settings of all groups.",
    ),
    COMMITTED_OFFSETS_BYTES := Family(
        "sharegroup_committed_offsets_bytes", MetricType.GAUGE, "bytes",
        "Approximate memory of the committed offsets of all consumer groups.",
    ),
    SHARE_PARTITIONS_INITIALIZED := Family(
        "sharegroup_share_partitions_initialized", MetricType.GAUGE, "share partitions",
        "Share partitions that have a state, of all groups, in memory or not.",
    ),
    CONSUMER_GROUP_STATES := Family(
        "kafka_group_coordinator_classic_groups", MetricType.GAUGE, "groups",
        "Ordinary consumer groups by state.", ("state",), ("classic-group-count",),
    ),
    REBALANCES := Family(
        "kafka_group_coordinator_share_group_rebalances_total", MetricType.COUNTER, "rebalances",
        "How often the epoch of some share group went up.",
        (), ("share-group-rebalance-rate", "share-group-rebalance-count"),
    ),
    STATE_LOAD := Family(
        "kafka_share_coordinator_load_seconds", MetricType.GAUGE, "seconds",
        "Time to read the whole state topic at start.",
        (), ("partition-load-time-max", "partition-load-time-avg"),
    ),
    STATE_WRITES := Family(
        "kafka_share_coordinator_writes_total", MetricType.COUNTER, "batches",
        "Batches of records written to the state topic.", (), ("write-rate", "write-total"),
    ),
    STATE_WRITE_SECONDS := Family(
        "kafka_share_coordinator_write_seconds", MetricType.HISTOGRAM, "seconds",
        "Time from an acknowledgement's decision to its being durable.",
        (), ("write-latency-avg", "write-latency-max", "batch-flush-time-ms", "batch-flush-rate"),
    ),
    STATE_PARTITIONS := Family(
        "kafka_share_coordinator_partitions", MetricType.GAUGE, "partitions",
        "Partitions of the state topic: with a log (active), or whose log takes no writes now "
        "(failed); none is ever loading while the broker serves.",
        ("state",), ("num-partitions",),
    ),
    LAST_PRUNED := Family(
        "kafka_share_coordinator_last_pruned_offset", MetricType.GAUGE, "offset",
        "The offset up to which a partition of the state topic was last pruned.",
        ("topic", "partition"), ("last-pruned-offset",),
    ),
)  # fmt: skip

PROCESS: tuple[Family, ...] = (
    LOOP_LAG := Family(
        "sharegroup_loop_lag_seconds", MetricType.HISTOGRAM, "seconds",
        "By how much the event loop was late for a call ten times a second: everything waits "
        "so long now and then.",
        (), ("event-queue-time-ms", "thread-idle-ratio-min", "thread-idle-ratio-avg"),
    ),
    SYNCS := Family(
        "sharegroup_sync_seconds", MetricType.SUMMARY, "seconds",
        "Rounds of syncs to disk; each makes durable what was written since the last.",
    ),
    LOG_BYTES := Family(
        "sharegroup_log_bytes", MetricType.GAUGE, "bytes",
        "Bytes of the segments of all topics, internal ones included.",
    ),
    CONNECTIONS := Family(
        "sharegroup_connections", MetricType.GAUGE, "connections",
        "Open connections.", (), ("connection-count",),
    ),
    CONNECTIONS_OPENED := Family(
        "sharegroup_connections_opened_total", MetricType.COUNTER, "connections",
        "Connections that were accepted.", (), ("connection-creation-total",),
    ),
    CONNECTIONS_REFUSED := Family(
        "sharegroup_connections_refused_total", MetricType.COUNTER, "connections",
        "Connections closed at once, because max.connections, or max.connections.per.ip of their "
        "address, were open.",
    ),
    CONNECTIONS_EVICTED := Family(
        "sharegroup_connections_evicted_total", MetricType.COUNTER, "connections",
        "Idle connections that were closed for a new one, because max.connections were open.",
    ),
    BUDGET_USED := Family(
        "sharegroup_budget_used_bytes", MetricType.GAUGE, "bytes",
        "Bytes that connections hold: of requests that are being received or wait for their "
        "answers, and of answers that are not sent yet.", ("budget",),
    ),
    BUDGET_LIMIT := Family(
        "sharegroup_budget_limit_bytes", MetricType.GAUGE, "bytes",
        "The limit of these bytes: queued.max.request.bytes and sharegroup.answers.max.bytes.",
        ("budget",),
    ),
    BUDGET_WAITS := Family(
        "sharegroup_budget_waits_total", MetricType.COUNTER, "waits",
        "How often a connection or a fetch had to wait for room in a budget.", ("budget",),
    ),
    BUDGET_EVICTIONS := Family(
        "sharegroup_budget_evictions_total", MetricType.COUNTER, "connections",
        "Connections that were closed because they made no progress while others needed room.",
        ("budget",),
    ),
    BAD_REQUESTS := Family(
        "sharegroup_bad_requests_total", MetricType.COUNTER, "requests",
        "Requests that broke the protocol and ended their connection.",
    ),
    UNREADABLE_BATCHES := Family(
        "sharegroup_unreadable_batches_total", MetricType.COUNTER, "batches",
        "Large batches whose offsets share groups passed over, because they cannot be read; once "
        "for each group.",
    ),
    RECORD_JOBS := Family(
        "sharegroup_record_jobs_total", MetricType.COUNTER, "batches",
        "Large batches that were decompressed or walked, for lookups by timestamp, for the keys "
        "of compacted topics and for share groups.",
    ),
    RECORD_JOBS_WAITING := Family(
        "sharegroup_record_jobs_waiting", MetricType.GAUGE, "batches",
        "Large batches that wait for their turn to be decompressed or walked.",
    ),
    CPU := Family(
        "process_cpu_seconds_total", MetricType.COUNTER, "seconds",
        "CPU time of the process, user and system.",
    ),
    DESCRIPTORS := Family(
        "process_open_fds", MetricType.GAUGE, "descriptors",
        "Descriptors that the process has open.",
    ),
    DESCRIPTORS_MAX := Family(
        "process_max_fds", MetricType.GAUGE, "descriptors", "The soft limit of them.",
    ),
    PRODUCERS := Family(
        "sharegroup_producers", MetricType.GAUGE, "producers",
        "Idempotent producers that are remembered, counted once for each partition.",
    ),
    PRODUCERS_FORGOTTEN := Family(
        "sharegroup_producers_forgotten_total", MetricType.COUNTER, "producers",
        "Those that were forgotten because there were too many.",
    ),
    SET_ASIDE_BYTES := Family(
        "sharegroup_set_aside_bytes", MetricType.GAUGE, "bytes",
        "What recovery and repair put into `set-aside`, measured every minute.",
    ),
    DIRECTORY_LOST := Family(
        "sharegroup_data_directory_lost", MetricType.GAUGE, "",
        "1 if the data directory was deleted, moved or replaced: nothing is confirmed any more.",
    ),
    OPEN_FILES := Family(
        "sharegroup_open_files", MetricType.GAUGE, "files", "Open files of the logs and journals.",
    ),
    OPEN_FILES_MAX := Family(
        "sharegroup_open_files_max", MetricType.GAUGE, "files",
        "The limit of them, except for those in a round of syncs.",
    ),
    DESCRIPTOR_SHORTAGES := Family(
        "sharegroup_descriptor_shortages_total", MetricType.COUNTER, "attempts",
        "Files that could not be opened before others were closed.",
    ),
    LEFT_OUT := Family(
        "sharegroup_metrics_left_out", MetricType.GAUGE, "series' owners",
        "Share partitions, groups and topics beyond the limits, which have no series of their "
        "own in this answer.", ("of",),
    ),
)  # fmt: skip

FAMILIES = (
    *REQUESTS, *TOPICS, *SHARE_GROUPS, *EACH_SHARE_PARTITION, *SESSIONS, *COORDINATORS, *PROCESS
)  # fmt: skip
"""All metrics, in the order of the output."""

NOT_HERE = {
    "event-queue-size": "there is no queue: a request is decided when it comes",
    "event-processing-time-ms": "it is in the local time of the requests",
    "event-purgatory-time-ms": "it is in `kafka_share_coordinator_write_seconds`",
    "batch-linger-time-ms": "no linger: writes that arrive during a sync share the next one",
    "batch-buffer-cache-size-bytes": "batches are encoded when they are written; none is kept",
    "batch-buffer-cache-discard-count": "the same",
}
"""Kafka's metrics of share groups that have no meaning here, with the reason."""
