"""The metrics that clients push (KIP-714), and the metrics of the pushes."""

from __future__ import annotations

from sharegroup.broker.metrics.family import Family, MetricType

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
