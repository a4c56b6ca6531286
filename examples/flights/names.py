"""The names and numbers that the demo's processes share."""

from __future__ import annotations

FLIGHTS = "flights"
FLIGHTS_PARTITIONS = 3
DEAD = "flights.dead"
DISPATCH = "dispatch"
"""The share group of the workers."""
PIPELINE = "pipeline"
"""The share group of the streaming query."""
AUDIT = "audit"
"""The share group that reads the dead letters back."""
WORKERS = 6
DELIVERY_LIMIT = 5
ATTEMPTS = 5
"""Maximum number of attempts for one flight; after that it becomes a dead letter."""
BATCH_RECORDS = 500
PIPELINE_LOCKS = 10_000
"""Maximum number of records of a partition that are locked for the query.

A batch of the query holds its records for about a second. Apache Kafka allows no higher value.
"""

ORIGIN_PARTITION = "__dlq.errors.partition"
ORIGIN_OFFSET = "__dlq.errors.offset"
ORIGIN_GROUP = "__dlq.errors.group"
"""Headers of a dead letter, named as in KIP-1191."""
REASON = "__sharegroup.dead.reason"
"""The header with the reason, one word; only dead letters of the workers have it."""
