"""A record that ends or blocks its worker each time costs only itself, whatever the broker counts.

The group allows five deliveries, as a group that no worker has prepared.  A broker counts every
delivery, also of records that no handler began.  So the records beside the one at fault would all
become dead letters with it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from sharegroup.client import AdminClient
from sharegroup.errors import KafkaError
from tests.integration.worker.dead import lying_in
from tests.integration.worker.processes import LOOK_SECONDS, WorkerProcess
from tests.integration.worker.test_running import send

SECONDS_MAX = 240.0 if "CHAOS" not in os.environ else 1_200.0
"""For hanging only: a worker is started several times, on a machine that others use too."""
CRASHES = 5
"""Of one such record: three in its topic, and two after it was put aside as a suspect."""
LONG = pytest.mark.skipif(
    "CHAOS" not in os.environ, reason="a minute or more of restarts; `make chaos` runs it"
)

APP = """
import functools, signal, sys

app = App("poison", bootstrap_servers={bootstrap!r}, grace="2s")
app.on(
    "record.dead_lettered",
    lambda event: note(f"letter {{event.details['reason']}} of {{event.topic}}"),
)
LIMITS = {{"share.delivery.count.limit": "5", **{configs!r}}}


@app.share_group({group!r}, topics={topic!r}, dead_letter=DeadLetter({group!r} + ".dead"),
                 group_configs=LIMITS, **{options!r})
{handler}
"""

ENDS = """
async def work(value: bytes) -> None:
    note(f"begin {value.decode()}")
    if value.startswith(b"poison"):
        os.abort()
    note(f"done {value.decode()}")
"""
ENDS_IN_A_THREAD = ENDS.replace("async def", "def")
ENDS_IN_A_BATCH = """
async def work(values: list[bytes]) -> None:
    for value in values:
        note(f"begin {value.decode()}")
    if any(value.startswith(b"poison") for value in values):
        os.abort()
    for value in values:
        note(f"done {value.decode()}")
"""
BLOCKS = """
async def work(value: bytes) -> None:
    note(f"begin {value.decode()}")
    if value.startswith(b"poison"):
        time.sleep(2.5)
    note(f"done {value.decode()}")
"""


class Lives:
    """A worker that is started again whenever it has died."""

    def __init__(
        self, worker: WorkerProcess, bootstrap: str, group: str, *, poison: int = 1
    ) -> None:
        self.worker = worker
        self._bootstrap = bootstrap
        self._dead = f"{group}.dead"
        self.deaths = 0
        self.deaths_max = poison * CRASHES

    def until(self, honest: set[str], letters: int) -> Counter[str]:
        """Run it until all these records are done and so many records have letters."""
        limit = time.monotonic() + SECONDS_MAX
        worker = self.worker
        while True:
            noted = Counter(worker.noted())
            done = {line.partition(" ")[2] for line in noted if line.startswith("done ")}
            if honest <= done and (not letters or len(self.letters_of()) >= letters):
                return noted
            assert time.monotonic() < limit, f"{sorted(honest - done)} are missing: {worker.told()}"
            process = worker._process
            assert process is not None
            if process.poll() is not None:
                self.deaths += 1
                assert self.deaths <= self.deaths_max, worker.told()
                worker.start()
            time.sleep(LOOK_SECONDS)

    def letters_of(self) -> set[str]:
        """The values of the records with a dead letter; a crash may have doubled a letter."""
        if not any(line.startswith("letter ") for line in self.worker.noted()):
            return set()
        letters = asyncio.run(lying_in(self._bootstrap, self._dead))
        return {(letter.value or b"").decode() for letter in letters}


def worker_of(
    folder: Path, bootstrap: str, group: str, topic: str, handler: str, **options: object
) -> WorkerProcess:
    configs = options.pop("configs", {})
    text = APP.format(
        bootstrap=bootstrap,
        group=group,
        topic=topic,
        handler=handler.strip(),
        options=options,
        configs=configs,
    )
    return WorkerProcess(folder, text, wait_seconds_max=SECONDS_MAX)


def lag_of(bootstrap: str, group: str, topic: str) -> int:
    """The number of records of the topic that the group has not settled."""

    async def ask() -> int:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            listed = (await admin.list_share_group_offsets({group: None}))[group]
            assert not isinstance(listed, KafkaError), listed
            lags = [
                None if isinstance(found, KafkaError) else found.lag
                for place, found in listed.items()
                if place.topic == topic
            ]
            return sum(1 if lag is None else lag for lag in lags)

    return asyncio.run(ask())


def values_of(count: int, *poison: int) -> list[bytes]:
    return [b"poison-%d" % n if n in poison else b"%d" % n for n in range(count)]


def honest(values: list[bytes]) -> set[str]:
    return {value.decode() for value in values if not value.startswith(b"poison")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("handler", "options"),
    [
        pytest.param(ENDS, {}, id="loop", marks=LONG),
        pytest.param(ENDS_IN_A_THREAD, {"concurrency": 4}, id="thread"),
        pytest.param(ENDS_IN_A_BATCH, {}, id="batch", marks=LONG),
        pytest.param(ENDS, {"concurrency": 1}, id="one-at-a-time", marks=LONG),
    ],
)
def test_record_that_ends_its_worker_becomes_the_only_letter(
    bootstrap: str, group: str, topic: str, tmp_path: Path, handler: str, options: dict[str, object]
) -> None:
    values = values_of(41, 20)
    with worker_of(tmp_path, bootstrap, group, topic, handler, **options) as worker:
        worker.wait_ready()
        asyncio.run(send(bootstrap, topic, *values))
        lives = Lives(worker, bootstrap, group)
        noted = lives.until(honest(values), letters=1)
        worker.signal(signal.SIGTERM)
        worker.wait()
    assert lives.letters_of() == {"poison-20"}, worker.told()
    assert noted[f"letter deliveries-exhausted of {group}.retry"] == 1
    assert noted["begin poison-20"] == CRASHES == lives.deaths


@LONG
def test_several_such_records_become_the_only_letters(
    bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    """They meet: a crash of one must not undo what is known of another, nor count for it."""
    poison = (3, 4, 17)
    values = values_of(41, *poison)
    with worker_of(tmp_path, bootstrap, group, topic, ENDS) as worker:
        worker.wait_ready()
        asyncio.run(send(bootstrap, topic, *values))
        lives = Lives(worker, bootstrap, group, poison=len(poison))
        noted = lives.until(honest(values), letters=len(poison))
        worker.signal(signal.SIGTERM)
        worker.wait()
    assert lives.letters_of() == {"poison-3", "poison-4", "poison-17"}, worker.told()
    assert sum(noted[f"begin poison-{number}"] for number in poison) <= len(poison) * CRASHES


@pytest.mark.slow
def test_record_that_blocks_the_event_loop_beyond_its_lock_costs_only_itself(
    bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    """Its own end depends on who is first: if no other member got it, its acceptance may count."""
    values = values_of(41, 20)
    short_lock = {"share.record.lock.duration.ms": "1500"}
    with worker_of(tmp_path, bootstrap, group, topic, BLOCKS, configs=short_lock) as worker:
        worker.wait_ready()
        asyncio.run(send(bootstrap, topic, *values))
        lives = Lives(worker, bootstrap, group)
        noted = lives.until(honest(values), letters=0)
        worker.wait_until(lambda: lag_of(bootstrap, group, topic) == 0, "the end of every record")
        worker.signal(signal.SIGTERM)
        worker.wait()
    assert lives.letters_of() <= {"poison-20"}, worker.told()
    assert sum(noted[f"done {name}"] for name in honest(values)) <= 2 * len(values)
    assert lives.deaths == 0
