"""Every limit of the broker: what it bounds, what a peer gets at the limit, and its metric.

``docs/limits.md`` is made from this table.  To add a limit:

1. Declare its configuration key in one of the ``*_config.py`` modules of ``broker/configuration``,
   with its default and range.  A limit without a key is a module constant with a docstring.
2. Add a row to the tuple of its subject: below, or in `state` for the state of sessions,
   groups and topics.  ``setting`` is the key, or ``module:CONSTANT`` with the module's path below
   ``sharegroup`` (``broker.server.dispatch:ELEMENTS_MAX``).  The default is read from the key or
   the constant; do not repeat it here.
3. Set ``memory_each`` to the bytes that one unit costs if the limit is a memory budget of the
   whole broker.  The sum over all budgets must stay within 530 MB (`MEMORY_BYTES_MAX`).
4. ``metric`` names a family of ``broker/metrics/families.py``, or is empty if there is none.
5. Run ``python -m tests.docs.write_docs``.

``tests/unit/broker/test_limits.py`` fails if a key whose name contains ``max`` or ``limit`` has
no row here and no entry in `NO_LIMITS`, if a setting or metric does not exist, or if the memory
budgets add up to more than 530 MB.
"""

from __future__ import annotations

from tests.docs.limits.access import ACCESS, TLS
from tests.docs.limits.limit import Limit
from tests.docs.limits.state import (
    CLIENT_METRICS,
    GROUPS,
    QUOTAS,
    SESSIONS,
    TOPICS,
    TRANSACTIONS,
)

MEMORY_BYTES_MAX = 530_000_000
"""The sum of the defaults of all memory budgets; resident memory stays below idle plus this."""

CONNECTIONS: tuple[Limit, ...] = (
    Limit(
        setting="max.connections",
        unit="connections",
        bounds="open connections",
        answer="the connection replaces an idle one, or is closed immediately",
        metric="sharegroup_connections_refused_total",
    ),
    Limit(
        setting="max.connections.per.ip",
        unit="connections",
        bounds="open connections from one address",
        answer="the connection is closed immediately",
        metric="sharegroup_connections_refused_total",
    ),
    *TLS,
    Limit(
        setting="sharegroup.user.connections.max",
        unit="connections",
        bounds="open connections of one user",
        answer="the connection is closed after its login",
        metric="sharegroup_connections_refused_total",
    ),
    Limit(
        setting="sharegroup.user.bytes.percent",
        unit="%",
        bounds="bytes of `queued.max.request.bytes` and of `sharegroup.answers.max.bytes` that the "
        "connections of one user hold together",
        answer="its requests are not read, and its fetches wait, until there is room",
    ),
    Limit(
        setting="sharegroup.user.limits.percent",
        unit="%",
        bounds="part of each of the limits for sessions, groups, group settings, committed "
        "offsets, transactional ids, partitions, client ids with quotas and waiting batches that "
        "one user may hold, if an authorizer limits its rights "
        "([What users share without quotas](quotas.md#what-users-share-without-quotas))",
        answer="what it gets at that limit; for transactional ids its own idle ones are forgotten",
        metric="sharegroup_user_part_refused_total",
    ),
    Limit(
        setting="broker.load.admission:IDLE_EVICTION_MS",
        unit="ms",
        bounds="time without a request after which a new connection may replace a connection",
        answer="the new connection is closed if it cannot replace another one",
        metric="sharegroup_connections_evicted_total",
    ),
    Limit(
        setting="sharegroup.unauthenticated.connections.max",
        unit="connections",
        bounds="open connections to listeners with SASL that are not logged in",
        answer="a new connection replaces the oldest one of the address with the most of them",
        metric="sharegroup_logins_evicted_total",
    ),
    Limit(
        setting="sharegroup.unauthenticated.connections.per.ip.max",
        unit="connections",
        bounds="the same, from one address",
        answer="a new connection replaces the oldest one of its address",
        metric="sharegroup_logins_evicted_total",
    ),
    Limit(
        setting="sharegroup.login.timeout.ms",
        unit="ms",
        bounds="time until a login is complete",
        answer="the connection is closed",
        metric="sharegroup_logins_failed_total",
    ),
    Limit(
        setting="broker.server.sasl_login:LOGIN_FRAME_BYTES_MAX",
        unit="bytes",
        bounds="a request before the login, and a message of PLAIN or SCRAM",
        answer="the connection is closed",
        metric="sharegroup_logins_failed_total",
    ),
    Limit(
        setting="sasl.server.max.receive.size",
        unit="bytes",
        bounds="a message with a token",
        answer="the connection is closed",
        metric="sharegroup_logins_failed_total",
    ),
    Limit(
        setting="broker.server.sasl_login:MESSAGES_MAX",
        unit="messages",
        bounds="messages of a mechanism in one login",
        answer="SASL_AUTHENTICATION_FAILED, and the connection is closed",
        metric="sharegroup_logins_failed_total",
    ),
    Limit(
        setting="broker.server.sasl_login:RENEWAL_PAUSE_MS",
        unit="ms",
        bounds="time between two logins of one connection",
        answer="ILLEGAL_SASL_STATE",
    ),
    Limit(
        setting="broker.load.log_limit:LINES_MAX",
        unit="lines",
        bounds="log lines in a second about failed logins, about violations of the protocol, and "
        "about TLS handshakes that failed and connections that were closed: as many of each, at "
        "most one for each address",
        answer="the next line says how many were not logged",
    ),
    Limit(
        setting="sharegroup.scram.credentials.max",
        unit="credentials",
        bounds="SCRAM credentials of all users",
        answer="POLICY_VIOLATION",
        metric="sharegroup_scram_credentials",
    ),
    Limit(
        setting="broker.access.token_keys:KEY_SET_BYTES_MAX",
        unit="bytes",
        bounds="a key set that verifies tokens",
        answer="the keys of the last reading are used",
        metric="sharegroup_token_key_readings_total",
    ),
    Limit(
        setting="broker.access.token_keys:READ_MS_MAX",
        unit="ms",
        bounds="time until a key set is read",
        answer="the keys of the last reading are used",
        metric="sharegroup_token_key_readings_total",
    ),
    Limit(
        setting="broker.access.token_keys:UNKNOWN_KEY_PAUSE_MS",
        unit="ms",
        bounds="time between two readings of a key set because of tokens with unknown keys",
        answer="the token is refused",
        metric="sharegroup_token_key_readings_total",
    ),
    Limit(
        setting="connections.max.idle.ms",
        unit="ms",
        bounds="time without a request",
        answer="the connection is closed",
    ),
    Limit(
        setting="sharegroup.frame.progress.timeout.ms",
        unit="ms",
        bounds="time until a request is complete or a response is read",
        answer="the connection is closed",
    ),
    Limit(
        setting="broker.metrics.endpoint:CONNECTIONS_MAX",
        unit="connections",
        bounds="connections of the metrics endpoint",
        answer="the oldest connection without a complete request is closed; if there is none, the "
        "new one",
    ),
    Limit(
        setting="broker.metrics.endpoint:REQUEST_SECONDS_MAX",
        unit="s",
        bounds="time until an HTTP request is complete",
        answer="the connection is closed",
    ),
    Limit(
        setting="broker.metrics.endpoint:STALL_SECONDS_MAX",
        unit="s",
        bounds="time for which a client reads nothing of a metrics response",
        answer="the connection is closed",
    ),
    Limit(
        setting="broker.metrics.endpoint:REQUEST_BYTES_MAX",
        unit="bytes",
        bounds="the head of an HTTP request",
        answer="the connection is closed",
    ),
)

REQUESTS: tuple[Limit, ...] = (
    Limit(
        setting="socket.request.max.bytes",
        unit="bytes",
        bounds="one request",
        answer="the connection is closed",
        metric="sharegroup_bad_requests_total",
    ),
    Limit(
        setting="queued.max.request.bytes",
        unit="bytes",
        bounds="requests of all connections that are being received or wait for their responses",
        answer="the connection is not read; connections without progress are closed",
        metric="sharegroup_budget_used_bytes",
        memory_each=1,
    ),
    Limit(
        setting="sharegroup.answers.max.bytes",
        unit="bytes",
        bounds="responses of all connections that are not sent yet",
        answer="fetches wait and lock nothing; connections that read nothing are closed",
        metric="sharegroup_budget_used_bytes",
        memory_each=1,
    ),
    Limit(
        setting="sharegroup.connection.answer.max.bytes",
        unit="bytes",
        bounds="responses of one connection that are not sent yet",
        answer="further requests of the connection wait",
    ),
    Limit(
        setting="sharegroup.connection.requests.max",
        unit="requests",
        bounds="requests of one connection without a response",
        answer="the connection is not read until responses are read",
    ),
    Limit(
        setting="broker.server.dispatch:ELEMENTS_MAX",
        unit="elements",
        bounds="array elements of one request",
        answer="the connection is closed",
        metric="sharegroup_bad_requests_total",
    ),
    Limit(
        setting="broker.load.slices:SLICE_MS",
        unit="ms",
        bounds="work for long requests in one iteration of the event loop",
        answer="the request is answered later",
    ),
    Limit(
        setting="broker.load.slices:RESTS",
        unit="slices",
        bounds="pause of long requests after a slice, in which other requests are answered",
        answer="the request is answered later",
    ),
    Limit(
        setting="broker.groups.state_preparations:AT_ONCE",
        unit="share partitions",
        bounds="share partitions that one heartbeat initializes without a pause",
        answer="the heartbeat is answered later",
    ),
    Limit(
        setting="broker.load.slices:WORKING_MAX",
        unit="requests",
        bounds="long requests that are processed at a time",
        answer="the request is answered later",
    ),
    Limit(
        setting="errors:TEXT_BYTES_MAX",
        unit="bytes",
        bounds="text of an error",
        answer="the text is truncated",
    ),
    Limit(
        setting="fetch.max.bytes",
        unit="bytes",
        bounds="records of one fetch response",
        answer="the response has fewer records",
    ),
    Limit(
        setting="broker.load.waiting:WAIT_MS_MAX",
        unit="ms",
        bounds="time for which a share fetch waits",
        answer="the response is sent at this time",
    ),
    Limit(
        setting="broker.handlers.settings.configs:RESOURCES_MAX",
        unit="resources",
        bounds="resources of one DescribeConfigs request",
        answer="INVALID_REQUEST",
    ),
)

RECORDS: tuple[Limit, ...] = (
    Limit(
        setting="message.max.bytes",
        unit="bytes",
        bounds="one record batch",
        answer="MESSAGE_TOO_LARGE",
    ),
    Limit(
        setting="wire.batches.batches:RECORDS_PER_COMPRESSED_BYTE_MAX",
        unit="records per byte",
        bounds="records that a compressed batch claims for each byte of its body",
        answer="INVALID_RECORD",
    ),
    Limit(
        setting="wire.batches.batches:RECORDS_MAX",
        unit="records",
        bounds="records that a compressed batch claims",
        answer="INVALID_RECORD",
    ),
    Limit(
        setting="sharegroup.decompressed.max.bytes",
        unit="bytes",
        bounds="records that are decompressed at a time, and records that one ListOffsets request "
        "decodes",
        answer="the batch is checked in pieces; ListOffsets skips it, or REQUEST_TIMED_OUT",
        metric="sharegroup_record_jobs_total",
        memory_each=1,
    ),
    Limit(
        setting="broker.share.batch_checks:LARGE_BATCH_RECORDS",
        unit="records",
        bounds="records of a batch that is delivered to share groups before the broker has read it",
        answer="if the batch cannot be read, its offsets are archived immediately",
        metric="sharegroup_unreadable_batches_total",
    ),
    Limit(
        setting="broker.share.batch_checks:THIN_BATCH_RECORDS",
        unit="records",
        bounds="the same limit for a batch with fewer bytes than records",
        answer="if the batch cannot be read, its offsets are archived immediately",
        metric="sharegroup_unreadable_batches_total",
    ),
    Limit(
        setting="broker.share.key_orders:KEYS_MAX",
        unit="records",
        bounds="records with a key that are known of one share partition, if its group has "
        "`sharegroup.order.by=key`",
        answer="the share partition delivers no records behind these until some are settled",
        metric="sharegroup_key_order_records",
    ),
    Limit(
        setting="broker.share.key_orders:ALL_KEYS_MAX",
        unit="records",
        bounds="the same for all share partitions together, but each may know "
        "`broker.share.key_orders:KEYS_MIN` records",
        answer="the share partition delivers no records behind these until some are settled",
        metric="sharegroup_key_order_records",
    ),
    Limit(
        setting="storage.log.compaction:BATCH_RECORDS_MAX",
        unit="records",
        bounds="records of a batch that compaction decodes",
        answer="the batch is not compacted",
    ),
    Limit(
        setting="broker.share.dead_letter_records:ORIGINAL_RECORDS_MAX",
        unit="records",
        bounds="records of a batch from which one record is copied to a dead-letter topic",
        answer="the dead letter has no copy of its record",
    ),
    Limit(
        setting="broker.share.dead_letter_records:ORIGINAL_HEADERS_MAX",
        unit="headers",
        bounds="headers of a record that is copied to a dead-letter topic",
        answer="the dead letter has no copy of its record",
    ),
    Limit(
        setting="broker.share.dead_letter_records:ORIGINAL_STREAM_BYTES_MAX",
        unit="bytes",
        bounds="decompressed size of a batch from which one record is copied",
        answer="the dead letter has no copy of its record",
    ),
    Limit(
        setting="wire.batches.record_walk:STREAM_BYTES_MAX",
        unit="bytes",
        bounds="decompressed size of a large batch that is checked before members get it",
        answer="the rest is delivered unchecked",
    ),
    Limit(
        setting="broker.load.produced_batches:WAITING_BYTES_MAX",
        unit="bytes",
        bounds="batches that wait until their records are checked or compressed (large batches for "
        "compacted topics; topics with a compression.type)",
        answer="REQUEST_TIMED_OUT",
        metric="sharegroup_record_jobs_waiting",
        memory_each=1,
    ),
    Limit(
        setting="log.message.timestamp.before.max.ms",
        unit="ms",
        bounds="time by which a record's timestamp is before the broker's time",
        answer="INVALID_TIMESTAMP",
    ),
    Limit(
        setting="log.message.timestamp.after.max.ms",
        unit="ms",
        bounds="time by which a record's timestamp is after the broker's time",
        answer="INVALID_TIMESTAMP",
    ),
    Limit(
        setting="wire.batches.compression:GZIP_MEMBERS_MAX",
        unit="members",
        bounds="members of the gzip stream of one batch",
        answer="the batch counts as damaged",
    ),
    Limit(
        setting="wire.batches.compression_streams:PIECE_BYTES",
        unit="bytes",
        bounds="a piece of a batch that is decompressed as a stream; with lz4 up to 4 MiB",
        answer="the batch has more pieces",
    ),
    Limit(
        setting="wire.batches.compression_streams:SNAPPY_WINDOW_BYTES",
        unit="bytes",
        bounds="how far back a copy in a large block of snappy may reach",
        answer="the rest of the batch is unreadable",
    ),
    Limit(
        setting="wire.batches.compression:ZSTD_WINDOW_BYTES_MAX",
        unit="bytes",
        bounds="the window of a zstd frame",
        answer="CORRUPT_MESSAGE",
    ),
)

FILES: tuple[Limit, ...] = (
    Limit(
        setting="sharegroup.set.aside.max.bytes",
        unit="bytes",
        bounds="bytes on disk that recovery moved to `set-aside` before it truncated a log",
        answer="no error: the oldest entries are removed, with a warning",
    ),
    Limit(
        setting="storage.disk.stored_file:OPEN_FILES_MAX",
        unit="files",
        bounds="open files of all logs that have no write waiting for a sync",
        answer="no error: the least recently used file is closed",
        metric="sharegroup_open_files",
    ),
    Limit(
        setting="storage.disk.stored_file:OPEN_FILES_CEILING",
        unit="files",
        bounds="open files of all logs; at most one eighth of the file descriptors of the process",
        answer="no error: files are synced and closed",
        metric="sharegroup_open_files_max",
    ),
    Limit(
        setting="broker.load.descriptors:DESCRIPTORS_RESERVE",
        unit="descriptors",
        bounds="file descriptors that neither connections nor logs use",
        answer="no error",
        metric="process_open_fds",
    ),
    Limit(
        setting="storage.disk.files:SPARE_DESCRIPTORS",
        unit="descriptors",
        bounds="file descriptors that storage reserves for the case that the process has none left",
        answer="no error",
        metric="sharegroup_descriptor_shortages_total",
    ),
)

METRICS: tuple[Limit, ...] = (
    Limit(
        setting="broker.metrics.values:SHARE_PARTITIONS_MAX",
        unit="share partitions",
        bounds="share partitions with their own series",
        answer="no error: sums still include the others",
        metric="sharegroup_metrics_left_out",
    ),
    Limit(
        setting="broker.metrics.values:GROUPS_MAX",
        unit="groups",
        bounds="groups with their own series",
        answer="no error: sums still include the others",
        metric="sharegroup_metrics_left_out",
    ),
    Limit(
        setting="broker.share.dead_letters:GROUPS_COUNTED_MAX",
        unit="groups",
        bounds="groups whose dead letters are counted, also after their deletion",
        answer="no error: the oldest count restarts",
    ),
    Limit(
        setting="broker.metrics.values:TOPICS_MAX",
        unit="topics",
        bounds="topics with their own series",
        answer="no error: sums still include the others",
        metric="sharegroup_metrics_left_out",
    ),
)

SUBJECTS: tuple[tuple[str, tuple[Limit, ...]], ...] = (
    ("Connections", CONNECTIONS),
    ("Requests and responses", REQUESTS),
    ("Records", RECORDS),
    ("Sessions", SESSIONS),
    ("Groups", GROUPS),
    ("Transactions", TRANSACTIONS),
    ("Topics and settings", TOPICS),
    ("Access control", ACCESS),
    ("Files", FILES),
    ("Metrics", METRICS),
    ("Metrics that clients push", CLIENT_METRICS),
    ("Client quotas", QUOTAS),
)

LIMITS: tuple[Limit, ...] = tuple(limit for _, limits in SUBJECTS for limit in limits)

_RANGE = "limits the values that a group may set"

NO_LIMITS: dict[str, str] = {
    "max.connections.per.ip.overrides": "sets `max.connections.per.ip` for specific addresses",
    "connections.max.reauth.ms": "says when a client has to log in again",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "a pause of the broker's own",
    "group.max.session.timeout.ms": _RANGE,
    "group.consumer.max.assignment.interval.ms": _RANGE,
    "group.consumer.max.heartbeat.interval.ms": _RANGE,
    "group.consumer.max.session.timeout.ms": _RANGE,
    "group.share.delivery.count.limit": "decides when a record is archived",
    "group.share.max.assignment.interval.ms": _RANGE,
    "group.share.max.delivery.count.limit": _RANGE,
    "group.share.max.heartbeat.interval.ms": _RANGE,
    "group.share.max.partition.max.record.locks": _RANGE,
    "group.share.max.record.lock.duration.ms": _RANGE,
    "group.share.max.session.timeout.ms": _RANGE,
    "group.share.min.delivery.count.limit": _RANGE,
    "group.share.min.partition.max.record.locks": _RANGE,
    "log.cleaner.max.compaction.lag.ms": "decides when a log is compacted",
    "max.decompressed.message.bytes": "is within `sharegroup.decompressed.max.bytes`",
}
"""Keys that are named like limits but bound nothing that a peer can grow, with the reason."""
