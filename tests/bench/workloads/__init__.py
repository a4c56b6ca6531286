"""All workloads, in the order of the report."""

from __future__ import annotations

from tests.bench.lines import Workload
from tests.bench.workloads.cli_start import CliStart
from tests.bench.workloads.first_record import FirstRecord
from tests.bench.workloads.latency import Latency
from tests.bench.workloads.memory import Memory
from tests.bench.workloads.our_consumer import OurConsumer
from tests.bench.workloads.produce import Produce
from tests.bench.workloads.share_consume import ShareConsume
from tests.bench.workloads.spark import Spark, SparkDefaultLimits
from tests.bench.workloads.start import StartAfterKill, StartEmpty

WORKLOADS: tuple[Workload, ...] = (
    ShareConsume(explicit=False),
    ShareConsume(explicit=True),
    OurConsumer(),
    Produce(),
    FirstRecord(),
    StartEmpty(),
    StartAfterKill(),
    Memory(),
    Latency(),
    CliStart(),
    Spark(),
    SparkDefaultLimits(),
)
