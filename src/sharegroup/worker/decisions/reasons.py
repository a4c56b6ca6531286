"""Why a record is among the dead letters: one word for each way there.

`decide` and the runner choose one of these; `sharegroup dlq list --reason` filters by them.  A
letter that the broker wrote says it in Kafka's own sentences, which are read as the same words.
"""

from __future__ import annotations

from collections.abc import Mapping

REJECTED = "rejected"
ATTEMPTS_EXHAUSTED = "attempts-exhausted"
NOT_RETRIED = "not-retried"
UNREADABLE = "unreadable"
DELIVERIES_EXHAUSTED = "deliveries-exhausted"
UNROUTED = "unrouted"
DAMAGED = "damaged"
UNKNOWN = "unknown"

REASONS: Mapping[str, str] = {
    REJECTED: "The handler raised Reject.",
    ATTEMPTS_EXHAUSTED: "It failed as often as its retry policy allows.",
    NOT_RETRIED: "It failed with an error that its retry policy does not try again.",
    UNREADABLE: "Its bytes are not what the handler takes.",
    DELIVERIES_EXHAUSTED: "It was delivered as often as the group allows, and never finished.",
    UNROUTED: "The group has no handler for the topic that it came from.",
    DAMAGED: "The broker could not read it from the log.",
    UNKNOWN: "The letter does not say, or in words that are not known here.",
}
"""Every reason, and the sentence that a letter has beside it."""

OF_THE_BROKER: Mapping[str, str] = {
    "Offset rejected by client.": REJECTED,
    "Offset delivery count exceeded the threshold.": DELIVERIES_EXHAUSTED,
    "Offset could not be read from the log.": DAMAGED,
}
"""What `__dlq.errors.message` says in the broker's letters; the third is our broker's."""
