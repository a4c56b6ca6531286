"""The sizes of sessions: fetch sessions and share sessions have the same."""

from __future__ import annotations

PARTITIONS_MAX = 30_000
"""Number of partitions of one session.

A series of requests must not name more than a single request could.
"""

ALL_PARTITIONS_MAX = 64_000
"""Number of partitions of all sessions of one kind, by default, of `PARTITION_BYTES` each."""

PARTITION_BYTES = 520
"""Memory of one partition in a session, measured with a topic of its own for each partition."""
