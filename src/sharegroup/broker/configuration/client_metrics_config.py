"""The settings of a client metrics subscription: resources of type ``client-metrics`` (KIP-714)."""

from __future__ import annotations

from collections.abc import Mapping

from sharegroup.broker.configuration.config_values import ConfigPart, entries, key, parse_part
from sharegroup.core.client_telemetry.subscriptions import Subscription, parse_match
from sharegroup.errors import InvalidConfig, InvalidRequest

INTERVAL_MS_MIN = 100
INTERVAL_MS_MAX = 3_600_000
SUBSCRIPTIONS_MAX = 100
"""Client metrics resources; each one is compared with each new client."""

NAME_CHARACTERS_MAX = 249
CHARACTERS_MAX = 4_096
"""Characters of all values of one resource."""


class ClientMetricsConfig(ConfigPart):
    """The settings of one subscription."""

    metrics: tuple[str, ...] = key(
        "metrics",
        (),
        "Prefixes of the names of the metrics that clients push; `*` for all.",
    )
    interval_ms: int = key(
        "interval.ms", 300_000, "Time between two pushes of a client, 100 to 3600000."
    )
    match: tuple[str, ...] = key(
        "match",
        (),
        "Selects clients by `attribute=pattern`; all selectors have to match. Empty: all clients.",
    )


def parse_client_metrics(name: str, settings: Mapping[str, str]) -> Subscription:
    """Parse and check the settings of a resource; the errors are those of Kafka."""
    known = [entry.metadata["name"] for entry in entries(ClientMetricsConfig)]
    if unknown := next((setting for setting in settings if setting not in known), None):
        raise InvalidRequest(
            f"{unknown[:100]!r} is no setting of client metrics; there are {', '.join(known)}"
        )
    if sum(map(len, settings.values())) > CHARACTERS_MAX:
        raise InvalidConfig(
            f"the settings of client metrics may have {CHARACTERS_MAX} characters together"
        )
    config = parse_part(ClientMetricsConfig, settings)
    if not INTERVAL_MS_MIN <= config.interval_ms <= INTERVAL_MS_MAX:
        raise InvalidRequest(
            f"interval.ms={config.interval_ms}: expected {INTERVAL_MS_MIN} to {INTERVAL_MS_MAX}"
        )
    return Subscription(name, config.metrics, config.interval_ms, parse_match(config.match))
