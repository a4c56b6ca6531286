"""What a workload reports: lines, whom they are compared with, and their measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from tests.bench.peers.brokers import FLUSHED, FSYNC, KAFKA, OS, Peer


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """One comparison: a line's value of one peer, and whom it is held against."""

    ours: str
    """The peer whose value is compared, by its name."""
    rival: str
    reach: float | None = None
    """The least ratio that is wanted; None: the comparison is only told."""
    line: str | None = None
    """The rival's line, by its ``what``; None: the same line."""
    behind_max: float | None = None
    """To reach is to be at most so much behind, in the line's unit, whatever the ratio."""


def with_kafka(
    fsync: float | None = None,
    os: float | None = None,
    *,
    flushed: float | None = None,
    flushes: bool = False,
    behind_max: float | None = None,
) -> tuple[Against, ...]:
    """Both of our durabilities against Kafka; with ``flushes`` also against one that flushes."""
    both = (
        Against(ours=FSYNC, rival=KAFKA, reach=fsync, behind_max=behind_max),
        Against(ours=OS, rival=KAFKA, reach=os, behind_max=behind_max),
    )
    return (*both, Against(ours=FSYNC, rival=FLUSHED, reach=flushed)) if flushes else both


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One figure of a workload."""

    what: str
    unit: str
    higher_is_better: bool
    against: tuple[Against, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One measurement of one line."""

    value: float
    broker_cpu_s: float | None = None
    client_cpu_s: float | None = None
    peak_pss_mib: float | None = None
    """The most memory that the broker had while it was measured; None: not watched."""
    syncs: int | None = None
    """Syncs of our broker from its start to its clean stop; None: not counted."""
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def measured(value: float, result: Mapping[str, float], peer: Peer, note: str = "") -> Measured:
    """A value with what it cost: CPU as the client counted it, the rest as the peer did."""
    return Measured(
        value=value,
        broker_cpu_s=result.get("broker_cpu_s"),
        client_cpu_s=result.get("client_cpu_s"),
        peak_pss_mib=peer.peak_pss_mib,
        syncs=peer.syncs(),
        note=note,
    )


def as_rate(result: Mapping[str, float], peer: Peer) -> Measured:
    """A client's result as records per second."""
    return measured(result["counted"] / result["seconds"], result, peer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much a run moves.  Workloads take what they need as a fraction of ``records``."""

    records: int = 2_000_000
    record_bytes: int = 100
    batch_records: int = 500
    big_log_bytes: int = 2_000_000_000
    spark_batches: int = 50
    """Micro-batches at the default limit of locks."""
    latency_seconds: int = 2
    """Of each rate, in each pair; longer where that would be too few records."""
    held_max: int = 1_000_000
    """Records in flight, at most."""
    waiting_seconds: int = 5

    @classmethod
    def quick(cls) -> Scale:
        """Enough to see that every workload works; not enough to quote."""
        return cls(
            records=400_000,
            big_log_bytes=100_000_000,
            spark_batches=5,
            latency_seconds=1,
            held_max=100_000,
            waiting_seconds=2,
        )


class Workload(Protocol):
    """One of these in each module of `tests.bench.peers.workloads`, or two."""

    name: str
    title: str
    headline: bool
    """Measured by ``make bench-peers`` itself, over six pairs; the others by ``--full``."""
    lines: tuple[Line, ...]
    peers: tuple[str, ...]
    """Who takes part, by name and in this order."""
    warms_up: tuple[str, ...]
    """Who measures once uncounted first: where a virtual machine lives on from round to round, its
    compiler must have seen the load.  Our broker is another process in each measurement."""

    def prepare(self, peer: Peer, scale: Scale) -> str:
        """Make what `measure` needs; returns what is worth a note in the report."""

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured | None, ...]:
        """Measure once: one result per line, in the order of the lines.  None: this peer has no
        such line."""
