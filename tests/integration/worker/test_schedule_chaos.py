"""Each due run is one record, while the processes that make runs are killed and frozen.

Three processes of one application share its schedules, all of which are due in each second, and
all missed runs are to be made.  Two of them are of an old deployment and one is of a new one, with
a higher revision and one more schedule.  Their clocks differ by seconds.  Meanwhile one after the
other is killed and started again, or stopped for longer than its session lasts and continued.

In the end the committed records of the topic are read: of each schedule there is one run for each
second from its first to its last, with no second missing and none twice.

``CHAOS=all`` (`make chaos`) makes more than 10,000 runs.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import pytest

from sharegroup.client.fetch.record_reading import partition_ranges, read_records
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import ReadingConfig
from sharegroup.schedules.schedule import RUN_HEADER, parsed_run
from tests.integration.worker.processes import WorkerProcess
from tests.support.limits import HANGING_SECONDS

IS_LONG = bool(os.environ.get("CHAOS"))
SCHEDULES = 100 if IS_LONG else 12
FAULTS = 16 if IS_LONG else 2
RUNS_MIN = 10_000 if IS_LONG else 200
SEED = int(os.environ.get("SEED", "7"))
FROZEN_SECONDS = 12.0
"""Longer than the session of a member, so that another process owns its partitions meanwhile."""
CALM_SECONDS_MAX = 3.0
CATCH_UP_SECONDS_MAX = 3 * HANGING_SECONDS
CLOCKS_MS = (0, -4_000, 7_000)
"""By how much the clock of each process is wrong."""
OLD, NEW = 1, 2

APPLICATION = """
import sharegroup.worker.ports as ports

right = ports.RealTimeClock.wall_ms
ports.RealTimeClock.wall_ms = lambda clock: right(clock) + {clock_ms}

app = App({name!r}, bootstrap_servers={bootstrap!r}, grace="1s")

@app.share_group({group!r}, topics={topic!r}, retry=None, dead_letter=None)
async def tick(text: str) -> None: ...

for number in range({schedules}):
    app.every("1s", to=tick, payload="revision {revision}", name=f"s{{number}}", missed="all",
              revision={revision})
"""


async def runs_in(bootstrap: str, topic: str) -> Counter[str]:
    """How often the committed records of a topic have the id of each run."""
    cluster = Cluster(ReadingConfig(bootstrap_servers=bootstrap))
    ids: Counter[str] = Counter()
    try:
        for unread in await partition_ranges(cluster, topic):
            async for records in read_records(cluster, unread, committed=True):
                ids.update(dict(record.headers)[RUN_HEADER].decode() for record in records)
    finally:
        cluster.close()
    return ids


def seconds_by_schedule(ids: Counter[str]) -> dict[str, list[int]]:
    seconds: dict[str, list[int]] = {}
    for text in ids:
        run = parsed_run(text)
        assert run is not None, text
        seconds.setdefault(run.schedule, []).append(round(run.due.timestamp()))
    return {name: sorted(moments) for name, moments in seconds.items()}


def break_workers(workers: list[WorkerProcess], chance: random.Random) -> None:
    """Kill or freeze one after the other."""
    for number in range(FAULTS):
        victim = workers[(number + chance.randrange(2)) % len(workers)]
        time.sleep(chance.uniform(1.0, CALM_SECONDS_MAX))
        if number % 2:
            victim.signal(signal.SIGKILL)
            victim.wait()
            victim.start()
        else:
            victim.signal(signal.SIGSTOP)
            time.sleep(FROZEN_SECONDS)
            victim.signal(signal.SIGCONT)


def wait_caught_up(bootstrap: str, topic: str, names: set[str]) -> Counter[str]:
    """The runs, once each schedule has one of this moment or later, and there are enough."""
    now, limit = datetime.now().astimezone().timestamp(), time.monotonic() + CATCH_UP_SECONDS_MAX
    while True:
        ids = asyncio.run(runs_in(bootstrap, topic))
        seconds = seconds_by_schedule(ids)
        is_recent = seconds.keys() >= names and all(seconds[name][-1] >= now for name in names)
        if is_recent and ids.total() > RUNS_MIN:
            return ids
        missing = names - seconds.keys()
        assert time.monotonic() < limit, f"no run of {missing}, or too few: {ids.total()}"
        time.sleep(1.0)


@pytest.mark.slow
def test_killed_and_frozen_processes_make_each_run_once(
    bootstrap: str, topic: str, group: str, tmp_path: Path
) -> None:
    workers = []
    for number, clock_ms in enumerate(CLOCKS_MS):
        revision = NEW if number == len(CLOCKS_MS) - 1 else OLD
        text = APPLICATION.format(
            name=topic,
            bootstrap=bootstrap,
            group=group,
            topic=topic,
            clock_ms=clock_ms,
            revision=revision,
            schedules=SCHEDULES + (revision == NEW),
        )
        workers.append(WorkerProcess(tmp_path / str(number), text))
    with ExitStack() as stack:
        for worker in workers:
            stack.enter_context(worker)
            worker.wait_ready()
        break_workers(workers, random.Random(SEED))
        ids = wait_caught_up(bootstrap, topic, {f"s{number}" for number in range(SCHEDULES + 1)})

    assert {text: count for text, count in ids.items() if count > 1} == {}
    for name, seconds in seconds_by_schedule(ids).items():
        assert seconds == list(range(seconds[0], seconds[-1] + 1)), name
