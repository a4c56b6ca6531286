"""The metrics that clients pushed (KIP-714), as Prometheus' text format shows them.

OpenTelemetry's ``org.apache.kafka.producer.record.send.total`` becomes
``kafka_client_producer_record_send_total``.  Its labels are those of the client's own, and the ids
of the client; `CLIENT_INFO` describes each client.  Clients choose the names, so names and labels
are reduced to allowed characters, and a series that another one already shows is left out:
Prometheus refuses a page that has a series twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from sharegroup.broker.metrics.text import Family, MetricType, label_pairs
from sharegroup.core.client_telemetry.pushed_values import PushedValues, Series
from sharegroup.core.client_telemetry.subscriptions import ClientIdentity

# The metrics about clients and users: pushed metrics, access, logins, quotas, transactions.


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


KAFKAS_PREFIX = "org.apache.kafka."
PREFIX = "kafka_client_"
NAMES_MAX = 2_000
"""Different metrics of all clients that one page shows."""

SERIES_PER_PAUSE = 50
RESOURCE_LABELS = (
    "client_rack",
    "group_id",
    "group_instance_id",
    "group_member_id",
    "transactional_id",
)
"""The attributes that Kafka's clients give their resource."""

_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_]")


class ClientValuesPage:
    """The part of a page of metrics that shows the values of clients."""

    __slots__ = ("_by_name", "_kinds", "left_out_count")

    def __init__(self) -> None:
        self._by_name: dict[str, dict[str, float]] = {}
        self._kinds: dict[str, str] = {}
        self.left_out_count = 0

    def collect(self, values: PushedValues) -> Iterator[None]:
        """Read the values in steps."""
        for client, series in values.series():
            for index, value in enumerate(series):
                self._add(client, value)
                if index % SERIES_PER_PAUSE == SERIES_PER_PAUSE - 1:
                    yield
            yield

    def texts(self) -> Iterator[str]:
        """Yield the lines of each metric, a few hundred at once."""
        for name, by_labels in self._by_name.items():
            yield f"# HELP {name} Pushed by clients.\n# TYPE {name} {self._kinds[name]}\n"
            series = iter(by_labels.items())
            while some := "".join(
                f"{name}{{{labels}}} {number}\n"
                for labels, number in islice(series, SERIES_PER_PAUSE)
            ):
                yield some

    def _add(self, client: ClientIdentity, value: Series) -> None:
        name = PREFIX + _NOT_ALLOWED.sub("_", value.name.removeprefix(KAFKAS_PREFIX))
        by_labels = self._by_name.get(name)
        if by_labels is None:
            if len(self._by_name) == NAMES_MAX:
                self.left_out_count += 1
                return
            by_labels = self._by_name[name] = {}
            self._kinds[name] = "counter" if value.is_counter else "gauge"
        labels = {
            "client_instance_id": client.client_instance_id,
            "client_id": client.client_id,
        }
        for label, text in value.labels:
            # The labels of a client do not replace its ids.
            labels.setdefault(_label_name(label), text)
        pairs = label_pairs(tuple(labels), tuple(labels.values()))
        if pairs in by_labels:
            self.left_out_count += 1
        by_labels.setdefault(pairs, value.value)


def info_labels(values: PushedValues) -> Iterator[tuple[str, ...]]:
    """Yield the labels of `CLIENT_INFO` for each client that pushes metrics."""
    for client, resource_labels in values.instances():
        known = dict(resource_labels)
        yield (
            client.client_instance_id,
            client.client_id,
            client.client_software_name,
            client.client_software_version,
            client.client_source_address,
            *(known.get(label, "") for label in RESOURCE_LABELS),
        )


def _label_name(label: str) -> str:
    """Return a valid label; names that begin with two underscores are Prometheus' own."""
    name = _NOT_ALLOWED.sub("_", label).lstrip("_")
    return name if name[:1].isalpha() else f"label_{name}"
