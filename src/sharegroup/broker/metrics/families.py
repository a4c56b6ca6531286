"""The metrics of the broker: every name, with its kind, unit, labels and meaning.

This table is the only place that names them.  `values` computes their values, and
``docs/metrics.md`` is generated from it.  Metrics that begin with ``kafka_`` are Apache Kafka's,
named after its MBeans.  As is usual for Prometheus, meters are counters here, times are in seconds,
and percentages are ratios.  Metrics that begin with ``sharegroup_`` are ours.
"""

from __future__ import annotations

from sharegroup.broker.metrics.client_values import ACCESS, CLIENTS, LOGINS, QUOTAS, TRANSACTIONS
from sharegroup.broker.metrics.text import Family, MetricType

_TOPIC = ("topic",)
_GROUP = ("group",)
_SHARE_PARTITION = ("group", "topic", "partition")
_REQUEST = ("request",)

REQUESTS: tuple[Family, ...] = (
    REQUEST_SECONDS := Family(
        "kafka_network_request_seconds", MetricType.HISTOGRAM, "seconds",
        "Time from the complete request to its response, including the wait of a long poll; the "
        "count is the number of requests.",
        _REQUEST, ("RequestsPerSec", "TotalTimeMs"),
    ),
    REQUEST_LOCAL := Family(
        "kafka_network_request_local_seconds_total", MetricType.COUNTER, "seconds",
        "Time for which requests used the event loop's thread until their response was determined.",
        _REQUEST, ("LocalTimeMs",),
    ),
    REQUEST_HOLDS := Family(
        "sharegroup_request_holds_total", MetricType.COUNTER, "requests",
        "Requests that blocked the event loop for more than 50 ms.", _REQUEST,
    ),
    REQUEST_LONGEST_HOLD := Family(
        "sharegroup_request_longest_hold_seconds", MetricType.GAUGE, "seconds",
        "The longest time since the start for which such a request blocked the event loop; 0 if "
        "none did.", _REQUEST,
    ),
    REQUEST_ERRORS := Family(
        "kafka_network_request_errors_total", MetricType.COUNTER, "requests",
        "Requests that failed completely, by the name of the error.",
        ("request", "error"), ("ErrorsPerSec",),
    ),
    REQUEST_BYTES := Family(
        "kafka_network_request_bytes_total", MetricType.COUNTER, "bytes",
        "Bytes of requests.", _REQUEST, ("RequestBytes",),
    ),
    RESPONSE_BYTES := Family(
        "kafka_network_response_bytes_total", MetricType.COUNTER, "bytes",
        "Bytes of responses.", _REQUEST, ("ResponseBytes",),
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
        "Requests that acknowledge records of the topic, including share fetches.",
        _TOPIC, ("TotalShareAcknowledgementRequestsPerSec",),
    ),
    ACKNOWLEDGEMENTS_FAILED := Family(
        "kafka_server_share_acknowledgement_requests_failed_total", MetricType.COUNTER, "requests",
        "Requests whose acknowledgements failed for a partition of the topic.",
        _TOPIC, ("FailedShareAcknowledgementRequestsPerSec",),
    ),
    TOPIC_LOG_BYTES := Family(
        "sharegroup_topic_log_bytes", MetricType.GAUGE, "bytes",
        "Bytes of the segments of all partitions of the topic.", _TOPIC,
    ),
    TOPIC_LOG_OFFSETS := Family(
        "sharegroup_topic_log_offsets", MetricType.GAUGE, "offsets",
        "Offsets between the start offset and the high watermark of all partitions of the topic.",
        _TOPIC,
    ),
)  # fmt: skip

SHARE_GROUPS: tuple[Family, ...] = (
    RECORD_ACKNOWLEDGEMENTS := Family(
        "kafka_server_share_group_record_acknowledgements_total", MetricType.COUNTER, "records",
        "Records whose acknowledgement is durable. The type gap counts offsets without a record, "
        "which Kafka does not count.",
        ("ack_type",), ("RecordAcknowledgementsPerSec",),
    ),
    PARTITION_LOAD := Family(
        "kafka_server_share_group_partition_load_seconds", MetricType.HISTOGRAM, "seconds",
        "Time to load a share partition at the first fetch from it.",
        (), ("PartitionLoadTimeMs",),
    ),
    FETCH_RATIO := Family(
        "kafka_server_share_group_fetch_ratio", MetricType.HISTOGRAM, "ratio",
        "Fraction of the partitions of a share fetch that returned records; fetches without "
        "records are not counted.",
        _GROUP, ("RequestTopicPartitionsFetchRatio",),
    ),
    ACQUIRE_SECONDS := Family(
        "kafka_server_share_group_acquire_seconds", MetricType.HISTOGRAM, "seconds",
        "Time from a share fetch until its records are locked, including the wait for records.",
        _GROUP, ("TopicPartitionsAcquireTimeMs",),
    ),
    DEAD_LETTERS := Family(
        "kafka_server_share_group_dead_letter_queue_records_total", MetricType.COUNTER, "records",
        "Dead letters that are durable.", _GROUP, ("DeadLetterQueueRecordCount",),
    ),
    DEAD_LETTER_WRITES := Family(
        "kafka_server_share_group_dead_letter_queue_produce_requests_total", MetricType.COUNTER,
        "batches", "Batches of dead letters written to the log of the dead-letter topic.",
        _GROUP, ("DeadLetterQueueTotalProduceRequestsPerSec",),
    ),
    DEAD_LETTER_FAILURES := Family(
        "kafka_server_share_group_dead_letter_queue_produce_requests_failed_total",
        MetricType.COUNTER, "attempts", "Failed attempts to write dead letters, for any reason.",
        _GROUP, ("DeadLetterQueueFailedProduceRequestsPerSec",),
    ),
    DEAD_LETTERS_NOT_COPIED := Family(
        "sharegroup_dead_letters_not_copied_total", MetricType.COUNTER, "records",
        "Dead letters without a copy of their record, although the group copies records.", _GROUP,
    ),
    DEAD_LETTERS_GIVEN_UP := Family(
        "sharegroup_dead_letters_given_up_total", MetricType.COUNTER, "records",
        "Records archived without a dead letter, because the group's dead-letter topic was unset.",
        _GROUP,
    ),
    DEAD_LETTERS_REFUSED := Family(
        "sharegroup_dead_letters_refused_total", MetricType.COUNTER, "records",
        "Records archived without a dead letter, because the user who set the group's dead-letter "
        "topic may not write to it, or not create it.", _GROUP,
    ),
    DEAD_LETTERS_THROTTLED := Family(
        "sharegroup_dead_letters_throttled_total", MetricType.COUNTER, "waits",
        "Waits of dead letters for the produce quota of the user who set the group's dead-letter "
        "topic.", _GROUP,
    ),
    DEAD_LETTERS_WAITING := Family(
        "sharegroup_dead_letters_waiting", MetricType.GAUGE, "records",
        "Records of the share partitions in memory that wait for their dead letter.",
    ),
    DEAD_LETTER_PARTITIONS := Family(
        "sharegroup_dead_letter_share_partitions", MetricType.GAUGE, "share partitions",
        "Share partitions with dead letters to write (pending), and the number of these whose "
        "dead letters cannot be written at present or wait for a quota (stalled).", ("state",),
    ),
    SHARE_PARTITIONS_LOADED := Family(
        "sharegroup_share_partitions", MetricType.GAUGE, "share partitions",
        "Share partitions in memory (loaded), and the number of these that deliver no new records "
        "until some are settled or due, because they are at their limit of runs or of delayed "
        "records (full), or of records whose keys they know (keys_full).", ("state",),
    ),
    KEY_ORDER_RECORDS := Family(
        "sharegroup_key_order_records", MetricType.GAUGE, "records",
        "Records whose keys are known, of all share partitions whose group has "
        "`sharegroup.order.by=key`.",
    ),
    DELIVERY_STOPPED := Family(
        "sharegroup_share_group_delivery_stopped", MetricType.GAUGE, "share groups",
        "1 if members of the share group get no records because its setting says so (paused), or "
        "at most one at a time because too many failed (breaker). Other groups are left out.",
        ("group", "reason"),
    ),
    LOCKS_TIMED_OUT := Family(
        "sharegroup_acquisition_lock_timeouts_total", MetricType.COUNTER, "records",
        "Records of all share partitions whose lock expired before they were settled.",
    ),
    LOCK_LATENESS := Family(
        "sharegroup_lock_expiry_lateness_seconds", MetricType.HISTOGRAM, "seconds",
        "Time from the first lock deadline until the expired locks of a share partition were "
        "released.",
    ),
)  # fmt: skip

EACH_SHARE_PARTITION: tuple[Family, ...] = (
    LOCK_TIMEOUTS := Family(
        "kafka_server_share_partition_acquisition_lock_timeouts_total", MetricType.COUNTER,
        "records", "Records whose lock expired before they were settled.",
        _SHARE_PARTITION, ("AcquisitionLockTimeoutPerSec",),
    ),
    IN_FLIGHT := Family(
        "kafka_server_share_partition_in_flight_messages", MetricType.GAUGE, "offsets",
        "Offsets between the start offset and the end offset of the share partition.",
        _SHARE_PARTITION, ("InFlightMessageCount",),
    ),
    IN_FLIGHT_RUNS := Family(
        "kafka_server_share_partition_in_flight_batches", MetricType.GAUGE, "runs",
        "Runs of neighbouring offsets in the same delivery state; their number determines the "
        "memory use.",
        _SHARE_PARTITION, ("InFlightBatchCount",),
    ),
    BATCH_MESSAGES := Family(
        "kafka_server_share_partition_batch_messages", MetricType.SUMMARY, "offsets",
        "Offsets of each range that was delivered to a member.",
        _SHARE_PARTITION, ("InFlightBatchMessageCount",),
    ),
    FETCH_LOCK := Family(
        "kafka_server_share_partition_fetch_lock_seconds", MetricType.SUMMARY, "seconds",
        "Time for which one fetch had exclusive use of the share partition. The rate of the sum "
        "is Kafka's ratio of time.",
        _SHARE_PARTITION, ("FetchLockTimeMs", "FetchLockRatio"),
    ),
    RECORDS := Family(
        "sharegroup_share_partition_records", MetricType.GAUGE, "offsets",
        "Offsets in flight that are not settled: available again or not yet delivered "
        "(available), locked by a member (acquired), or waiting for their dead letter (archiving); "
        "also released and not yet due (delayed), where there are some.",
        (*_SHARE_PARTITION, "state"),
    ),
    LAG := Family(
        "sharegroup_share_partition_lag", MetricType.GAUGE, "offsets",
        "Offsets up to the high watermark that are not settled.", _SHARE_PARTITION,
    ),
    FULL := Family(
        "sharegroup_share_partition_full", MetricType.GAUGE, "0 or 1",
        "1 if the share partition is at its limit of runs or of delayed records, and delivers no "
        "new records until some are settled or due.",
        _SHARE_PARTITION,
    ),
)  # fmt: skip
"""Metrics with a series for each share partition in memory, up to a limit."""

SESSIONS: tuple[Family, ...] = (
    SESSION_EVICTIONS := Family(
        "kafka_server_share_session_evictions_total", MetricType.COUNTER, "sessions",
        "Share sessions that were closed with their connection, or to make room for others.",
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
        "fetch for consumers without a share group.", ("protocol",),
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
        "Partitions and share partitions for which these share fetches wait, counted once per "
        "request.",
        (), ("PurgatorySize",),
    ),
    DELAYED_EXPIRED := Family(
        "kafka_server_delayed_share_fetches_expired_total", MetricType.COUNTER, "requests",
        "Share fetches that waited and returned no records.", (), ("ExpiresPerSec",),
    ),
    WAITING := Family(
        "sharegroup_waiting_requests", MetricType.GAUGE, "requests",
        "Requests of all kinds that wait for an event.",
    ),
)  # fmt: skip

COORDINATORS: tuple[Family, ...] = (
    GROUPS := Family(
        "kafka_group_coordinator_groups", MetricType.GAUGE, "groups",
        "Groups by type: share, classic, or consumer for those of KIP-848.",
        ("protocol",), ("group-count",),
    ),
    GROUP_STATES := Family(
        "kafka_group_coordinator_share_groups", MetricType.GAUGE, "groups",
        "Share groups by state: Empty or Stable. A deleted group is not counted.",
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
        "Share partitions of all groups that have a state, in memory or not.",
    ),
    CONSUMER_GROUP_STATES := Family(
        "kafka_group_coordinator_classic_groups", MetricType.GAUGE, "groups",
        "Consumer groups of the classic protocol by state.", ("state",), ("classic-group-count",),
    ),
    MODERN_GROUP_STATES := Family(
        "kafka_group_coordinator_consumer_groups", MetricType.GAUGE, "groups",
        "Consumer groups of the consumer protocol (KIP-848) by state.",
        ("state",), ("consumer-group-count",),
    ),
    MODERN_GROUP_BYTES := Family(
        "sharegroup_consumer_groups_bytes", MetricType.GAUGE, "bytes",
        "Approximate memory of the members, topic names and assigned partitions of all consumer "
        "groups of the consumer protocol (KIP-848).",
    ),
    MODERN_REBALANCES := Family(
        "kafka_group_coordinator_consumer_group_rebalances_total", MetricType.COUNTER, "rebalances",
        "Increases of the group epoch, over all consumer groups of the consumer protocol "
        "(KIP-848).", (), ("consumer-group-rebalance-rate", "consumer-group-rebalance-count"),
    ),
    REBALANCES := Family(
        "kafka_group_coordinator_share_group_rebalances_total", MetricType.COUNTER, "rebalances",
        "Increases of the group epoch, over all share groups.",
        (), ("share-group-rebalance-rate", "share-group-rebalance-count"),
    ),
    STATE_LOAD := Family(
        "kafka_share_coordinator_load_seconds", MetricType.GAUGE, "seconds",
        "Time to read the complete state topic at start.",
        (), ("partition-load-time-max", "partition-load-time-avg"),
    ),
    STATE_WRITES := Family(
        "kafka_share_coordinator_writes_total", MetricType.COUNTER, "batches",
        "Batches of records written to the state topic.", (), ("write-rate", "write-total"),
    ),
    STATE_WRITE_SECONDS := Family(
        "kafka_share_coordinator_write_seconds", MetricType.HISTOGRAM, "seconds",
        "Time from the decision about an acknowledgement until it is durable.",
        (), ("write-latency-avg", "write-latency-max", "batch-flush-time-ms", "batch-flush-rate"),
    ),
    STATE_PARTITIONS := Family(
        "kafka_share_coordinator_partitions", MetricType.GAUGE, "partitions",
        "Partitions of the state topic with a log (active), and partitions whose log accepts no "
        "writes at present (failed). No partition is loading while the broker serves requests.",
        ("state",), ("num-partitions",),
    ),
    LAST_PRUNED := Family(
        "kafka_share_coordinator_last_pruned_offset", MetricType.GAUGE, "offset",
        "Offset up to which a partition of the state topic was last pruned.",
        ("topic", "partition"), ("last-pruned-offset",),
    ),
)  # fmt: skip

PROCESS: tuple[Family, ...] = (
    LOOP_LAG := Family(
        "sharegroup_loop_lag_seconds", MetricType.HISTOGRAM, "seconds",
        "Delay of a call that the event loop runs ten times a second; every request may be "
        "delayed by this time.",
        (), ("event-queue-time-ms", "thread-idle-ratio-min", "thread-idle-ratio-avg"),
    ),
    SYNCS := Family(
        "sharegroup_sync_seconds", MetricType.SUMMARY, "seconds",
        "Rounds of syncs to disk; each round makes all writes since the previous one durable.",
    ),
    LOG_BYTES := Family(
        "sharegroup_log_bytes", MetricType.GAUGE, "bytes",
        "Bytes of the segments of all topics, including internal topics.",
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
        "Connections that were closed immediately because max.connections, or "
        "max.connections.per.ip of their address, was reached.",
    ),
    TLS_HANDSHAKES := Family(
        "sharegroup_tls_handshakes_total", MetricType.COUNTER, "handshakes",
        "TLS handshakes by listener and result: completed or failed.", ("listener", "result"),
    ),
    TLS_PENDING := Family(
        "sharegroup_tls_handshakes_pending", MetricType.GAUGE, "handshakes",
        "Connections whose TLS handshake is not complete.",
    ),
    TLS_EXPIRES := Family(
        "sharegroup_tls_certificate_expires_timestamp_seconds", MetricType.GAUGE, "seconds",
        "Time at which the certificate of a listener expires, in seconds since 1970.",
        ("listener",),
    ),
    TLS_SECONDS := Family(
        "sharegroup_tls_handshake_seconds_total", MetricType.COUNTER, "seconds",
        "Processor time that TLS handshakes took on the event loop.",
    ),
    CONNECTIONS_EVICTED := Family(
        "sharegroup_connections_evicted_total", MetricType.COUNTER, "connections",
        "Idle connections that were replaced by a new one because max.connections was reached.",
    ),
    BUDGET_USED := Family(
        "sharegroup_budget_used_bytes", MetricType.GAUGE, "bytes",
        "Bytes that connections hold: requests that are being received or wait for their "
        "responses, and responses that are not sent yet.", ("budget",),
    ),
    BUDGET_LIMIT := Family(
        "sharegroup_budget_limit_bytes", MetricType.GAUGE, "bytes",
        "Limits of sharegroup_budget_used_bytes: queued.max.request.bytes and "
        "sharegroup.answers.max.bytes.",
        ("budget",),
    ),
    BUDGET_WAITS := Family(
        "sharegroup_budget_waits_total", MetricType.COUNTER, "waits",
        "Waits of connections and fetches for room in a budget.", ("budget",),
    ),
    BUDGET_EVICTIONS := Family(
        "sharegroup_budget_evictions_total", MetricType.COUNTER, "connections",
        "Connections that were closed because they made no progress while others needed room in a "
        "budget.",
        ("budget",),
    ),
    BAD_REQUESTS := Family(
        "sharegroup_bad_requests_total", MetricType.COUNTER, "requests",
        "Requests that violated the protocol, which closed their connection.",
    ),
    UNREADABLE_BATCHES := Family(
        "sharegroup_unreadable_batches_total", MetricType.COUNTER, "batches",
        "Large batches that cannot be read, so that share groups skipped their offsets; counted "
        "once per group.",
    ),
    UNREADABLE_RECORDS := Family(
        "sharegroup_unreadable_records_total", MetricType.COUNTER, "records",
        "Offsets that were archived for a share group because the log cannot read their batch; "
        "counted for each group.",
    ),
    RECORD_JOBS := Family(
        "sharegroup_record_jobs_total", MetricType.COUNTER, "batches",
        "Large batches that were decompressed or parsed: for lookups by timestamp, for the keys "
        "of compacted topics and for share groups.",
    ),
    RECORD_JOBS_WAITING := Family(
        "sharegroup_record_jobs_waiting", MetricType.GAUGE, "batches",
        "Large batches that wait to be decompressed or parsed.",
    ),
    CPU := Family(
        "process_cpu_seconds_total", MetricType.COUNTER, "seconds",
        "CPU time of the process, user and system.",
    ),
    DESCRIPTORS := Family(
        "process_open_fds", MetricType.GAUGE, "descriptors",
        "File descriptors that the process has open.",
    ),
    DESCRIPTORS_MAX := Family(
        "process_max_fds", MetricType.GAUGE, "descriptors", "Soft limit of open file descriptors.",
    ),
    PRODUCERS := Family(
        "sharegroup_producers", MetricType.GAUGE, "producers",
        "Idempotent producers whose state the broker keeps, counted once per partition.",
    ),
    PRODUCERS_FORGOTTEN := Family(
        "sharegroup_producers_forgotten_total", MetricType.COUNTER, "producers",
        "Idempotent producers whose state was removed because of the limit "
        "sharegroup.producers.max.",
    ),
    SET_ASIDE_BYTES := Family(
        "sharegroup_set_aside_bytes", MetricType.GAUGE, "bytes",
        "Bytes that recovery and repair moved to `set-aside`, measured every minute.",
    ),
    DIRECTORY_LOST := Family(
        "sharegroup_data_directory_lost", MetricType.GAUGE, "",
        "1 if the data directory was deleted, moved or replaced; the broker confirms no more "
        "writes.",
    ),
    FENCED_LOGS := Family(
        "sharegroup_fenced_logs", MetricType.GAUGE, "logs",
        "Logs that refuse appends because the disk is full or fails, until a probe succeeds.",
    ),
    OPEN_FILES := Family(
        "sharegroup_open_files", MetricType.GAUGE, "files", "Open files of the logs and journals.",
    ),
    OPEN_FILES_MAX := Family(
        "sharegroup_open_files_max", MetricType.GAUGE, "files",
        "Limit of open files, without the files of a running round of syncs.",
    ),
    DESCRIPTOR_SHORTAGES := Family(
        "sharegroup_descriptor_shortages_total", MetricType.COUNTER, "attempts",
        "Attempts to open a file that failed until other files were closed.",
    ),
    LEFT_OUT := Family(
        "sharegroup_metrics_left_out", MetricType.GAUGE, "series' owners",
        "Share partitions, groups and topics beyond the limits, which have no series of their own "
        "in this response.", ("of",),
    ),
)  # fmt: skip

FAMILIES = (
    *REQUESTS, *TOPICS, *SHARE_GROUPS, *EACH_SHARE_PARTITION, *SESSIONS, *COORDINATORS,
    *TRANSACTIONS, *LOGINS, *PROCESS, *CLIENTS, *ACCESS, *QUOTAS,
)  # fmt: skip
"""All metrics, in the order of the output."""

NOT_HERE = {
    "event-queue-size": "there is no queue: a request is processed when it arrives",
    "event-processing-time-ms": "included in `kafka_network_request_local_seconds_total`",
    "event-purgatory-time-ms": "included in `kafka_share_coordinator_write_seconds`",
    "batch-linger-time-ms": "no linger: writes that arrive during a sync share the next one",
    "batch-buffer-cache-size-bytes": "batches are encoded when they are written; no buffer is kept",
    "batch-buffer-cache-discard-count": "the same",
}
"""Kafka's metrics of share groups that have no meaning here, with the reason."""
