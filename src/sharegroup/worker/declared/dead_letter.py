"""Where records go that can't be done."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The worker writes them, with all that is known of their failure.

    ``topic`` None: ``<group>.dead``.
    """

    topic: str | None = None
    partitions: int = 1
    retention: float | str | None = "14d"


@dataclass(frozen=True, slots=True)
class BrokerDeadLetter:
    """The broker writes them (KIP-1191; Apache Kafka 4.4, and ours); the reason is Kafka's."""

    topic: str
