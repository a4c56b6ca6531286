"""All workloads, in the order of the report."""

from __future__ import annotations

from tests.bench.lines import Workload
from tests.bench.workloads.first_record import FirstRecord
from tests.bench.workloads.latency import Latency
from tests.bench.workloads.memory import Memory
from tests.bench.workloads.own_consumer import OwnConsumer
from tests.bench.workloads.produce import Produce
from tests.bench.workloads.share_consume import ShareConsume
from tests.bench.workloads.start import StartAfterKill, StartEmpty

WORKLOADS: tuple[Workload, ...] = (
    ShareConsume(explicit=False),
    ShareConsume(explicit=True),
    OwnConsumer(),
    Produce(),
    FirstRecord(),
    StartEmpty(),
    StartAfterKill(),
    Memory(),
    Latency(),
)
