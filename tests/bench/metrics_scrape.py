"""What a scrape costs the others: the broker's metrics with 10,000 share partitions in memory.

    python -m tests.bench.metrics_scrape [--share-partitions N] [--scrapes N]

A broker in this process; another process scrapes it.  Meanwhile a call that is due each
millisecond notes for how long the event loop was at work since the last, in CPU time, so that
other programs of the machine do not count.  Printed are lines and bytes of an answer, its
duration, the broker's CPU time for it, and the longest of those turns, beside the same without
a scrape.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from sharegroup.ids import GroupId, SharePartitionKey, TopicName
from sharegroup.testing import broker

GROUPS = 10
SCRAPE = (
    "import sys, urllib.request; text = urllib.request.urlopen(sys.argv[1]).read();"
    "print(text.count(b'\\n'), len(text))"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--share-partitions", type=int, default=10_000)
    parser.add_argument("--scrapes", type=int, default=5)
    options = parser.parse_args()
    asyncio.run(measure(options.share_partitions, options.scrapes))


async def measure(share_partitions: int, scrapes: int) -> None:
    async with broker({"sharegroup.metrics.port": "0"}) as running:
        parts = running.running.parts
        partitions = share_partitions // GROUPS
        topic = await parts.topics.create(TopicName("orders"), partitions=partitions, settings={})
        for number in range(share_partitions):
            group_id = GroupId(f"group-{number % GROUPS}")
            key = SharePartitionKey(group_id, topic.topic_id, number // GROUPS)
            parts.share_coordinator.initialize(key, state_epoch=1, start_offset=0)
            parts.share_partitions.get(key)
        assert running.running.metrics is not None
        url = f"http://127.0.0.1:{running.running.metrics.port}/metrics"
        quiet = await longest_turn(asyncio.sleep(1))
        print(f"no scrape: longest turn {quiet * 1000:.1f} ms")
        for _ in range(scrapes):
            began, cpu = time.perf_counter(), time.process_time()
            longest = await longest_turn(scrape(url))
            cpu = time.process_time() - cpu
            print(
                f"  {time.perf_counter() - began:.2f} s, broker CPU {cpu:.2f} s, "
                f"longest turn {longest * 1000:.1f} ms"
            )


async def scrape(url: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SCRAPE, url), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    print("lines, bytes:", *out.decode().split(), end="  ")


async def longest_turn(work: object) -> float:
    """The most CPU time that the thread of the event loop took between two calls, a ms apart."""
    assert asyncio.iscoroutine(work)
    task = asyncio.ensure_future(work)
    longest = 0.0
    while not task.done():
        used = time.thread_time()
        await asyncio.sleep(0.001)
        longest = max(longest, time.thread_time() - used)
    task.result()
    return longest


if __name__ == "__main__":
    main()
