"""The names of the headers of a dead letter that the broker, the worker and Spark share."""

from __future__ import annotations

KAFKA_PREFIX = "__dlq.errors."
"""The prefix of Kafka's headers, which say where the record was and why it is here (KIP-1191)."""

NOT_COPIED = "sharegroup.dlq.not.copied"
"""A header that Kafka does not have: the reason why a letter lacks the record to copy."""
