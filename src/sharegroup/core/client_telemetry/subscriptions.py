"""Subscriptions: which clients push which of their metrics, and how often (KIP-714)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sharegroup.core.patterns import Pattern
from sharegroup.errors import InvalidConfig, InvalidRegularExpression

PATTERN_CHARACTERS_MAX = 200
TEXT_CHARACTERS_MAX = 250
"""Longer texts match no pattern."""

EVERY_METRIC = "*"
INTERVAL_MS_DEFAULT = 300_000

ATTRIBUTES = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""The attributes of a client that ``match`` may name."""


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """The facts about a client that a subscription may select by; the field names are those of
    `ATTRIBUTES`.
    """

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


@dataclass(frozen=True, slots=True)
class Subscription:
    """The metrics that matching clients push; an empty ``match`` selects every client."""

    name: str
    metrics: tuple[str, ...]
    """Prefixes of metric names, or `EVERY_METRIC`."""
    interval_ms: int
    match: Mapping[str, Pattern]

    def selects(self, client: ClientIdentity) -> bool:
        """Return whether all patterns match the client's attributes."""
        return all(
            _matches(pattern, getattr(client, attribute))
            for attribute, pattern in self.match.items()
        )


@dataclass(frozen=True, slots=True)
class RequestedMetrics:
    """The metrics that one client pushes, because of all subscriptions that select it."""

    metrics: tuple[str, ...]
    interval_ms: int


def parse_match(selectors: Iterable[str]) -> dict[str, Pattern]:
    """Parse ``attribute=pattern`` selectors; raise InvalidConfig for others."""
    match: dict[str, Pattern] = {}
    for selector in selectors:
        attribute, equals, pattern = (part.strip() for part in selector.partition("="))
        if not equals or not pattern or attribute not in ATTRIBUTES:
            raise InvalidConfig(
                f"match={selector[:100]!r}: expected attribute=pattern with one of the attributes "
                f"{', '.join(ATTRIBUTES)}"
            )
        match[attribute] = _pattern(attribute, pattern)
    return match


def _pattern(attribute: str, pattern: str) -> Pattern:
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise InvalidConfig(
            f"match: the pattern of {attribute} has at most {PATTERN_CHARACTERS_MAX} characters, "
            f"not {len(pattern)}"
        )
    try:
        compiled = Pattern(pattern)
    except InvalidRegularExpression as error:
        raise InvalidConfig(f"match: the pattern of {attribute}: {error}") from error
    return compiled


def _matches(pattern: Pattern, text: str) -> bool:
    if len(text) > TEXT_CHARACTERS_MAX:
        return False
    pattern.steps_taken = 0  # The limit is for each text.
    try:
        return pattern.matches(text)
    except InvalidRegularExpression:
        return False


def requested_metrics(
    subscriptions: Iterable[Subscription], client: ClientIdentity
) -> RequestedMetrics:
    """Return the union of the metrics that the client pushes, and the shortest interval."""
    interval_ms = INTERVAL_MS_DEFAULT
    metrics = set[str]()
    for subscription in subscriptions:
        if subscription.selects(client):
            metrics.update(subscription.metrics)
            interval_ms = min(interval_ms, subscription.interval_ms)
    # It selects what the other prefixes select, and more.
    if EVERY_METRIC in metrics:
        metrics = {EVERY_METRIC}
    return RequestedMetrics(tuple(sorted(metrics)), interval_ms)
