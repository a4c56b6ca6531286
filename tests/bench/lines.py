"""What a benchmark reports: lines, their measurements, and what every workload must offer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Protocol

from tests.bench.peers import Peer


class BenchError(Exception):
    """A workload did not do what it is measured for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One figure of a workload, and the ratio to reach; above 1 is better for us."""

    what: str
    unit: str
    higher_is_better: bool
    reach_fsync: float
    reach_os: float
    rival: str | None = None
    """Compare with this line of the same peer; None: with the same line of Apache Kafka."""
    value_max: float | None = None
    """To reach is a value of at most this, in the line's unit; None: the ratio counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One measurement of one line."""

    value: float
    broker_cpu_s: float | None = None
    client_cpu_s: float | None = None
    syncs: int | None = None
    """Syncs of our broker from its start to its clean stop; None: not counted."""
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much a run moves; ``--quick`` and ``--records`` make it less."""

    records: int = 5_000_000
    record_bytes: int = 100
    batch_records: int = 500
    big_log_bytes: int = 1_000_000_000
    spark_batches: int = 50
    """Micro-batches at the default limit of locks."""
    latency_seconds: int = 20
    latency_rate: int = 1_000

    @classmethod
    def quick(cls) -> Scale:
        """Enough to see that every workload works; not enough to quote."""
        return cls(records=200_000, big_log_bytes=50_000_000, spark_batches=10, latency_seconds=3)


class Workload(Protocol):
    """One module of `tests.bench.workloads` holds one of these."""

    name: str
    lines: tuple[Line, ...]
    warms_up: bool
    """Measure once uncounted before the first round, for Kafka's compiler to see the load."""

    def prepare(self, peer: Peer, scale: Scale) -> str:
        """Make what `measure` needs; returns what is worth a note in the report."""

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured, ...]:
        """Measure once: one result per line, in the order of the lines."""

    def applies_to(self, peer: Peer) -> bool:
        """Whether this peer takes part."""
