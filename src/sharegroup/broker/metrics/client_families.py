"""The metrics about clients and users: pushed metrics, access, logins, quotas, transactions."""

from __future__ import annotations

from sharegroup.broker.metrics.text import Family, MetricType

CLIENTS: tuple[Family, ...] = (
    CLIENT_INFO := Family(
        "sharegroup_client_info", MetricType.GAUGE, "",
        "1 for each client that pushes metrics; the labels describe it. A label is empty if it "
        "does not apply to the client.",
        (
            "client_instance_id", "client_id", "client_software_name", "client_software_version",
            "client_address", "client_rack", "group_id", "group_instance_id", "group_member_id",
            "transactional_id",
        ),
    ),
    CLIENT_INSTANCES := Family(
        "kafka_server_client_metrics_instances", MetricType.GAUGE, "clients",
        "Clients that asked which metrics to push.", (), ("instance-count",),
    ),
    CLIENT_THROTTLED := Family(
        "kafka_server_client_metrics_throttled_total", MetricType.COUNTER, "requests",
        "Requests for subscriptions, and pushes, that came before their interval was over.",
        (), ("throttle-rate", "throttle-count"),
    ),
    CLIENT_UNKNOWN := Family(
        "kafka_server_client_metrics_unknown_subscriptions_total", MetricType.COUNTER, "requests",
        "Pushes for a subscription that the client does not have any more.",
        (), ("unknown-subscription-request-rate", "unknown-subscription-request-count"),
    ),
    CLIENT_VALUES := Family(
        "sharegroup_client_metrics_values_total", MetricType.COUNTER, "values",
        "Values that clients pushed.", (), ("plugin-export-rate", "plugin-export-count"),
    ),
    CLIENT_VALUES_DROPPED := Family(
        "sharegroup_client_metrics_values_dropped_total", MetricType.COUNTER, "values",
        "Pushed values that were not kept: no numbers, with too long names or labels, or beyond "
        "the limit of one client.",
    ),
    CLIENT_BYTES := Family(
        "sharegroup_client_metrics_bytes", MetricType.GAUGE, "bytes",
        "Approximate memory of the values that clients pushed.",
    ),
)  # fmt: skip
"""The metrics that clients push (KIP-714), and the metrics of the pushes."""

ACCESS: tuple[Family, ...] = (
    ACLS := Family(
        "sharegroup_acls", MetricType.GAUGE, "ACLs", "ACLs.", (), ("acls-total-count",),
    ),
    DENIALS := Family(
        "sharegroup_authorization_denied_total", MetricType.COUNTER, "denials",
        "Operations that the authorizer denied, by the name of the listener.",
        ("listener",), ("authorization-denied-rate-per-minute",),
    ),
    AUDIT_LINES_SUPPRESSED := Family(
        "sharegroup_audit_lines_suppressed_total", MetricType.COUNTER, "lines",
        "Lines about denials and administrative requests that were not written, because one "
        "principal caused more than 10 of a kind in a second.",
    ),
    LOG_LINES_SUPPRESSED := Family(
        "sharegroup_log_lines_suppressed_total", MetricType.COUNTER, "lines",
        "Lines of the log that were not written, because their event had more than 1,000 lines, "
        "and then more than 2 in a second; `event=log_lines_suppressed` names the events.",
    ),
)  # fmt: skip
"""The metrics of ACLs, denials, the audit log and the log."""

_LOGIN = ("listener", "mechanism")

LOGINS: tuple[Family, ...] = (
    LOGINS_SUCCEEDED := Family(
        "sharegroup_logins_total", MetricType.COUNTER, "logins",
        "First logins of connections that succeeded.",
        _LOGIN, ("successful-authentication-total",),
    ),
    LOGINS_RENEWED := Family(
        "sharegroup_logins_renewed_total", MetricType.COUNTER, "logins",
        "Further logins of connections that succeeded (KIP-368).",
        _LOGIN, ("successful-reauthentication-total",),
    ),
    LOGINS_FAILED := Family(
        "sharegroup_logins_failed_total", MetricType.COUNTER, "logins",
        "Logins that failed, or were not complete in time. The mechanism is `none` if the client "
        "had not named one.",
        _LOGIN, ("failed-authentication-total", "failed-reauthentication-total"),
    ),
    LOGINS_PENDING := Family(
        "sharegroup_logins_pending", MetricType.GAUGE, "connections",
        "Connections to listeners with SASL that are not logged in.",
    ),
    LOGINS_EVICTED := Family(
        "sharegroup_logins_evicted_total", MetricType.COUNTER, "connections",
        "Connections that were not logged in and were closed for a new one.",
    ),
    SESSIONS_EXPIRED := Family(
        "sharegroup_login_sessions_expired_total", MetricType.COUNTER, "connections",
        "Connections that were closed because their client had not logged in again in time.",
        (), ("expired-connections-killed-count",),
    ),
    SCRAM_CREDENTIALS := Family(
        "sharegroup_scram_credentials", MetricType.GAUGE, "credentials",
        "SCRAM credentials of all users.",
    ),
    TOKEN_KEY_READINGS := Family(
        "sharegroup_token_key_readings_total", MetricType.COUNTER, "readings",
        "Readings of the key sets of OAUTHBEARER, by outcome.", ("outcome",),
    ),
)  # fmt: skip

QUOTAS: tuple[Family, ...] = (
    QUOTA_ENTITIES := Family(
        "sharegroup_client_quota_entities", MetricType.GAUGE, "entities",
        "Users, client ids and addresses that have quotas.",
    ),
    QUOTA_METERS := Family(
        "sharegroup_client_quota_meters", MetricType.GAUGE, "clients",
        "Clients whose use is counted separately, once for each of their quotas.",
    ),
    QUOTA_METERS_SHARED := Family(
        "sharegroup_client_quota_meters_shared_total", MetricType.COUNTER, "requests",
        "How often a client was counted together with others, because there are too many clients.",
    ),
    THROTTLED := Family(
        "sharegroup_throttled_total", MetricType.COUNTER, "requests",
        "Requests that were answered with a throttle time, and connections that were refused, by "
        "quota.",
        ("quota",),
    ),
    THROTTLE_SECONDS := Family(
        "sharegroup_throttle_seconds_total", MetricType.COUNTER, "seconds",
        "Sum of the throttle times of all answers, by quota.", ("quota",), ("throttle-time",),
    ),
    USER_PART_REFUSALS := Family(
        "sharegroup_user_part_refused_total", MetricType.COUNTER, "requests",
        "Requests that were refused, got no session, or shared the limit of a quota, because one "
        "user may hold only a part of what all users share, by what is shared.",
        ("shared",),
    ),
)  # fmt: skip

TRANSACTIONS: tuple[Family, ...] = (
    TRANSACTIONAL_IDS := Family(
        "sharegroup_transactional_ids", MetricType.GAUGE, "ids",
        "Transactional ids by the state of their transaction.", ("state",),
    ),
    TRANSACTIONS_BYTES := Family(
        "sharegroup_transactions_bytes", MetricType.GAUGE, "bytes",
        "Approximate memory of all transactional ids and their partitions.",
    ),
    TRANSACTIONS_ENDED := Family(
        "sharegroup_transactions_total", MetricType.COUNTER, "transactions",
        "Transactions that were decided, by outcome; those that timed out count as aborted, too.",
        ("outcome",),
    ),
    TRANSACTION_MARKERS := Family(
        "sharegroup_transaction_markers_total", MetricType.COUNTER, "markers",
        "Markers that were written to partitions at the end of transactions.",
    ),
)  # fmt: skip
