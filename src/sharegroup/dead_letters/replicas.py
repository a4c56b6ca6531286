"""The default number of replicas of topics that a worker or a redrive creates.

A topic has three replicas, or one per broker if there are fewer brokers.  Its min ISR is one less
than its replicas, so one broker may be down.
"""

from __future__ import annotations

REPLICAS_DEFAULT = 3
MIN_INSYNC = "min.insync.replicas"


def default_replicas(brokers: int) -> int:
    """The replication factor of a new topic on a cluster with this number of brokers."""
    assert brokers >= 1, brokers
    return min(REPLICAS_DEFAULT, brokers)


def default_min_insync(replicas: int) -> int:
    """The min ISR of a topic with this number of replicas."""
    return max(1, replicas - 1)
