"""The reasons why a record becomes a dead letter, one word for each.

`decide` and the runner choose one of these; `sharegroup dlq list --reason` filters by them.  Dead
letters that the broker wrote have Kafka's sentences instead, which map to the same words.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class DeadLetterReason(StrEnum):
    """Why a record is a dead letter; `REASONS` has a sentence for each member."""

    REJECTED = "rejected"
    ATTEMPTS_EXHAUSTED = "attempts-exhausted"
    NOT_RETRIED = "not-retried"
    UNREADABLE = "unreadable"
    DELIVERIES_EXHAUSTED = "deliveries-exhausted"
    UNROUTED = "unrouted"
    DAMAGED = "damaged"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    UNKNOWN = "unknown"
    """The dead letter names no reason that this version knows; see its message."""

    @classmethod
    def of(cls, text: str) -> DeadLetterReason:
        """Return the reason that a dead letter names, or UNKNOWN."""
        return cls(text) if text in cls.__members__.values() else cls.UNKNOWN


REASONS: Mapping[DeadLetterReason, str] = {
    DeadLetterReason.REJECTED: "The handler raised Reject.",
    DeadLetterReason.ATTEMPTS_EXHAUSTED: "The record failed as often as its retry policy allows.",
    DeadLetterReason.NOT_RETRIED: (
        "The record failed with an error that its retry policy does not retry."
    ),
    DeadLetterReason.UNREADABLE: "The value of the record cannot be decoded for its handler.",
    DeadLetterReason.DELIVERIES_EXHAUSTED: (
        "The record reached its group's delivery count limit without success."
    ),
    DeadLetterReason.UNROUTED: "The group has no handler for the topic of the record.",
    DeadLetterReason.DAMAGED: "The record cannot be read from the log.",
    DeadLetterReason.CANCELLED: "The record was cancelled while it waited.",
    DeadLetterReason.EXPIRED: "The record was too old when its handler was to run.",
    DeadLetterReason.UNKNOWN: (
        "The dead letter names no reason that this version knows; see its message."
    ),
}
"""All reasons, with the sentence that a dead letter contains for each."""

OF_THE_BROKER: Mapping[str, DeadLetterReason] = {
    "Offset rejected by client.": DeadLetterReason.REJECTED,
    "Offset delivery count exceeded the threshold.": DeadLetterReason.DELIVERIES_EXHAUSTED,
    "Offset could not be read from the log.": DeadLetterReason.DAMAGED,
}
"""Values of `__dlq.errors.message` in dead letters of brokers; only our broker writes the third."""
