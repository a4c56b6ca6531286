"""The lines that README shows, from ``docs/benchmarks.json``.

The last ones are those where a peer is ahead: README must not leave out what a reader would find.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.bench.peers.brokers import FSYNC, OS
from tests.bench.peers.report import NONE, table
from tests.bench.peers.workloads.acknowledge_each import BARE, WORKER

LINES = (
    (
        *("P1", "confluent ShareConsumer, implicit, 100 B, batches of 500, 1 partition"),
        "share consume, 100 B, records a second",
    ),
    (
        *("P2", "confluent ShareConsumer, explicit acknowledge of each, 100 B, batches of 500"),
        "the same, each record acknowledged by itself",
    ),
    (
        *("P6", "new share group: subscribe to first record, confluent"),
        "a new group's first record",
    ),
    (
        *("P7", "start to first metadata answer, after kill -9 with 2 GB of 64 KB batches"),
        "start after `kill -9` with a log of 2 GB",
    ),
    (
        *("P9", "produce to consume, 1,000 records/s, 1 partition, p99"),
        "produce to consume at 1,000 records a second, p99",
    ),
    ("P12", BARE, "a handler call and an accept for each record, our client and broker"),
    ("P12", WORKER, "the same with our worker framework"),
    (
        *("P9", "produce to consume, 100 records/s, 1 partition, p99"),
        "produce to consume at 100 records a second, p99",
    ),
    (
        *("P13", "Spark kafka-share : Spark 4.0.0 kafka, 4 partitions, 100 B, in the batches"),
        "Spark beside Spark's own Kafka source, 100 B, in the batches",
    ),
    (
        *("P13", "Spark kafka-share : Spark 4.0.0 kafka, 4 partitions, 1 KiB, whole query"),
        "Spark beside Spark's own Kafka source, 1 KiB, whole query",
    ),
)
"""Workload, line, and what it is in README's words."""


def headline(results: Mapping[str, Any]) -> str:
    """A table of those lines that were measured."""
    rows = [
        _row(says, [said for said in results[name]["comparisons"] if said["what"] == what])
        for name, what, says in LINES
        if name in results
    ]
    return "\n".join(table(("ours : peer", "peer", "with `fsync`", "with `os`"), rows))


def _row(says: str, compared: list[dict[str, Any]]) -> list[str]:
    """One line; a peer that was not there is left out.

    So is a comparison without a target, unless the line has no other.
    """
    measured = [said for said in compared if said["ratio"] is not None]
    there = [said for said in measured if said["reach"] is not None] or measured
    peers = list(dict.fromkeys(said["peer_is"] for said in there))
    ratios = [
        " / ".join(
            f"{said['ratio']:.3g}"
            for peer in peers
            for said in there
            if (said["peer_is"], said["ours_is"]) == (peer, durability)
        )
        for durability in (FSYNC, OS)
    ]
    return [says, " / ".join(peers) or NONE, *(ratio or NONE for ratio in ratios)]
