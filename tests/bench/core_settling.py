"""What one record's settlement costs in core: the row `core` of issue 5, without anything else.

    python -m tests.bench.core_settling [--records N] [--rounds N]

All records are in flight in one lock; each is accepted by itself, in random order.  Printed are
acknowledgements a second (best and median of the rounds) and bytes a run, as tracemalloc counts
them, where every other record is accepted, which makes the most runs there can be.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
import tracemalloc

from sharegroup.core.delivery.delivery import (
    AckBatch,
    AcquireRequest,
    LogBatches,
    SharePartitionLimits,
)
from sharegroup.core.delivery.share_partition import SharePartition
from sharegroup.ids import MemberId
from sharegroup.protocol_enums import AcknowledgeType

MEMBER = MemberId("a" * 22)
LIMITS = SharePartitionLimits(in_flight_max=1_000_000, runs_max=1_000_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    speeds = [accepts_a_second(options.records, seed) for seed in range(options.rounds)]
    print(f"accepts/s   best {max(speeds):,.0f}   median {statistics.median(speeds):,.0f}")
    print(f"bytes a run {bytes_a_run(options.records):.1f}")


def in_flight(records: int) -> SharePartition:
    """So many records, locked by one acquire."""
    partition = SharePartition(0)
    log = LogBatches(0, [0], [records])
    wanted = AcquireRequest(records, records)
    partition.acquire(MEMBER, log, request=wanted, limits=LIMITS, now_ms=0)
    return partition


def accepts_a_second(records: int, seed: int) -> float:
    partition = in_flight(records)
    offsets = random.Random(seed).sample(range(records), records)
    requests = [(AckBatch(offset, offset + 1, (AcknowledgeType.ACCEPT,)),) for offset in offsets]
    began = time.process_time()
    for request in requests:
        partition.acknowledge(MEMBER, request, limits=LIMITS, now_ms=1)
    seconds = time.process_time() - began
    assert partition.start_offset == records
    return records / seconds


def bytes_a_run(records: int) -> float:
    partition = in_flight(2 * records)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for offset in range(1, 2 * records, 2):
        request = (AckBatch(offset, offset + 1, (AcknowledgeType.ACCEPT,)),)
        partition.acknowledge(MEMBER, request, limits=LIMITS, now_ms=1)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / partition.snapshot().run_count


if __name__ == "__main__":
    main()
