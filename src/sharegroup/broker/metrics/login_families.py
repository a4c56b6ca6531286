"""The metrics of logins by SASL."""

from __future__ import annotations

from collections.abc import Iterator

from sharegroup.broker.metrics.family import Family, MetricType
from sharegroup.broker.metrics.text import Value
from sharegroup.broker.parts import Parts

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


def login_samples(parts: Parts) -> Iterator[tuple[Family, tuple[str, ...], Value]]:
    """Yield the values of all metrics of logins."""
    logins = parts.logins
    for family, counts in (
        (LOGINS_SUCCEEDED, logins.succeeded),
        (LOGINS_RENEWED, logins.renewed),
        (LOGINS_FAILED, logins.failed),
    ):
        for (listener, mechanism), count in counts.items():
            yield family, (listener, mechanism or "none"), count
    yield LOGINS_PENDING, (), logins.pending.count
    yield LOGINS_EVICTED, (), logins.pending.evicted_count
    yield SESSIONS_EXPIRED, (), logins.expired_count
    yield SCRAM_CREDENTIALS, (), parts.topics.catalog.scram_credentials.count
    for outcome, count in (
        ("read", sum(keys.read_count for keys in logins.token_keys)),
        ("failed", sum(keys.failed_count for keys in logins.token_keys)),
    ):
        yield TOKEN_KEY_READINGS, (outcome,), count
