"""Logs of equal batches that workloads read, written once for each broker; and new groups."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from tests.bench.equal_batches import describe_log, fill, log_folders
from tests.bench.peers.brokers import Peer
from tests.support.confluent_calls import set_group

_groups = count(1)
_written: dict[tuple[Peer, Log], str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A topic, and what is in it."""

    topic: str
    records: int
    record_bytes: int = 100
    batch_records: int = 500
    partitions: int = 1

    def on(self, peer: Peer) -> str:
        """Write it unless it is there; what its batches look like in the broker's files."""
        if (peer, self) not in _written:
            before = log_folders(peer.data)
            with peer.awake() as broker:
                fill(
                    broker.bootstrap_servers,
                    self.topic,
                    records=self.records,
                    record_bytes=self.record_bytes,
                    batch_records=self.batch_records,
                    partitions=self.partitions,
                )
            _written[peer, self] = describe_log(peer.data, besides=before)
        partitions = f"{self.partitions} partitions, one with " if self.partitions > 1 else ""
        return f"log {self.topic} of {peer.name}: {partitions}{_written[peer, self]}"


def new_group(bootstrap: str) -> str:
    """A share group that nobody used, beginning at the first record."""
    group = f"bench-{next(_groups)}"
    set_group(bootstrap, group, auto_offset_reset="earliest")
    return group
