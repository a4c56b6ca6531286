"""The metrics of client quotas."""

from __future__ import annotations

from sharegroup.broker.metrics.family import Family, MetricType

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
