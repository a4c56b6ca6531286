"""All workloads, in the order of the report."""

from __future__ import annotations

from tests.bench.peers.lines import Workload
from tests.bench.peers.workloads.acknowledge_each import AcknowledgeEach
from tests.bench.peers.workloads.cli_start import CliStart
from tests.bench.peers.workloads.clients import Clients
from tests.bench.peers.workloads.first_record import FirstRecord
from tests.bench.peers.workloads.growth import Growth
from tests.bench.peers.workloads.java_consume import JavaConsume, SingleRecordBatches
from tests.bench.peers.workloads.latency import Latency
from tests.bench.peers.workloads.memory import Memory
from tests.bench.peers.workloads.plain_consume import PlainConsume
from tests.bench.peers.workloads.produce import Produce
from tests.bench.peers.workloads.share_consume import Explicit, Implicit, LargeRecords
from tests.bench.peers.workloads.sharing import Sharing
from tests.bench.peers.workloads.spark import Spark, SparkDefaultLimits
from tests.bench.peers.workloads.start import Start
from tests.bench.peers.workloads.tls import Tls
from tests.bench.peers.workloads.transactions import Transactions

WORKLOADS: tuple[Workload, ...] = (
    Implicit(),
    Explicit(),
    LargeRecords(),
    JavaConsume(),
    SingleRecordBatches(),
    FirstRecord(),
    Start(),
    Memory(),
    Latency(),
    Produce(),
    Clients(),
    AcknowledgeEach(),
    Spark(),
    Growth(),
    Sharing(),
    CliStart(),
    SparkDefaultLimits(),
    Transactions(),
    PlainConsume(),
    Tls(),
)
