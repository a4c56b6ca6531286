"""Handlers that fail, and run again from retry topics; on either broker (`conftest`)."""

from __future__ import annotations

import asyncio
import signal
import time
from itertools import pairwise
from pathlib import Path

import pytest

from sharegroup.client import AdminClient, Producer, TopicPartition
from sharegroup.client.admin.types import SharePartitionOffset
from sharegroup.dead_letters.story_headers import story_of
from sharegroup.worker import App, DeadLetter, Holding, Record, Retry
from tests.integration.worker.collecting import Collected, on_a_loop
from tests.integration.worker.dead import lying_in, make_topics, until_there
from tests.integration.worker.processes import WorkerProcess
from tests.support.limits import HANGING_SECONDS

TIERS = ("200ms", "1s", "3s")
NOWHERE = Holding(longest_seconds=0)
"""Every retry, however short, goes to a retry topic."""


def app_of(bootstrap: str) -> App:
    return App("retrying", bootstrap_servers=bootstrap, grace="5s")


async def owned(app: App) -> None:
    """Wait until the application's schedulers own their tiers."""
    async with asyncio.timeout(HANGING_SECONDS):
        assert app.worker is not None
        while not all(scheduler.snapshot() for scheduler in app.worker.schedulers):
            await asyncio.sleep(0.02)


async def send(bootstrap: str, topic: str, value: bytes) -> None:
    async with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
        headers = [("trace", b"\xff"), ("trace", None)]
        await producer.send_and_wait(topic, value, key=b"k", headers=headers)


@on_a_loop
async def test_failed_record_runs_again_in_time_for_its_group_alone(
    bootstrap: str, group: str, topic: str
) -> None:
    app, runs = app_of(bootstrap), Collected()
    retry = Retry(max_attempts=5, initial_delay="300ms", multiplier=2.5, jitter=0)

    @app.share_group(group, topics=topic, retry=retry, retry_tiers=TIERS, holding=NOWHERE)
    async def bill(value: bytes, record: Record) -> None:
        runs.add("run", time.time(), record)
        if record.attempt < 4:
            raise TimeoutError(f"run {record.attempt}")

    @app.share_group(f"{group}.other", topics=topic)
    async def other(value: bytes) -> None:
        runs.add("other")

    await make_topics(bootstrap, topic)
    async with app:
        await owned(app)
        await send(bootstrap, topic, b"a")
        await runs.wait_for(5)
        await asyncio.sleep(0.2)
    assert len(runs.seen("other")) == 1, "another group has nothing to do with it"
    assert len(await lying_in(bootstrap, topic)) == 1
    times = [at for at, _ in runs.seen("run")]
    assert len(times) == 4
    pauses = [after - before for before, after in pairwise(times)]
    for pause, delay in zip(pauses, (0.3, 0.75, 1.875), strict=True):
        assert delay <= pause <= delay * 1.1 + 0.4, "the rest is a busy machine's"
    last: Record = runs.seen("run")[-1][1]
    assert (last.topic, last.partition, last.offset, last.key) == (topic, 0, 0, b"k")
    assert tuple(last.headers) == (("trace", b"\xff"), ("trace", None))
    assert [attempt.message for attempt in last.history] == ["run 1", "run 2", "run 3"]
    assert last.delivery_attempt == 1, "waiting spends no delivery"


@on_a_loop
async def test_record_that_fails_to_the_end_takes_its_whole_history_to_the_dead_letters(
    bootstrap: str, group: str, topic: str
) -> None:
    app = app_of(bootstrap)

    @app.share_group(
        group, topics=topic,
        retry=Retry(max_attempts=3, initial_delay="300ms", multiplier=1, jitter=0),
        retry_tiers=TIERS, holding=NOWHERE, dead_letter=DeadLetter(f"{group}.dead"),
    )  # fmt: skip
    async def bill(value: bytes) -> None:
        raise ConnectionError("gone")

    await make_topics(bootstrap, topic)
    async with app:
        await owned(app)
        await send(bootstrap, topic, b"a")
        (letter,) = await until_there(bootstrap, f"{group}.dead", 1)
    story = story_of(letter.headers)
    assert story.failures == 3
    assert [attempt.number for attempt in story.attempts] == [1, 2, 3]
    assert story.origin is not None
    assert story.origin[:3] == (topic, 0, 0)
    assert [header for header in letter.headers if header[0] == "trace"] == [
        ("trace", b"\xff"),
        ("trace", None),
    ]


@on_a_loop
async def test_record_sent_with_a_delay_runs_after_it(
    bootstrap: str, group: str, topic: str
) -> None:
    app, runs = app_of(bootstrap), Collected()

    @app.share_group(group, topics=topic, retry_tiers=TIERS)
    async def remind(text: str, record: Record) -> None:
        runs.add("run", time.time(), text, record.topic)

    await make_topics(bootstrap, topic)
    async with app:
        await owned(app)
        sent = time.time()
        await remind.send("now")
        await remind.send("later", delay="1200ms")
        await runs.wait_for(2)
    (_, now, _), (at, later, name) = runs.seen("run")
    assert (now, later, name) == ("now", "later", topic)
    assert at - sent >= 1.2, "how late it may be is judged in virtual time"
    assert len(await lying_in(bootstrap, topic)) == 1, "it never lies in the application's topic"


async def settled(bootstrap: str, group: str, topic: str) -> None:
    """Wait until the group is done with the first record of its topic."""
    where = TopicPartition(topic, 0)
    async with AdminClient(bootstrap_servers=bootstrap) as admin, asyncio.timeout(HANGING_SECONDS):
        while True:
            offsets = (await admin.list_share_group_offsets({group: [where]}))[group]
            assert isinstance(offsets, dict), offsets
            found = offsets[where]
            if isinstance(found, SharePartitionOffset) and found.lag == 0:
                return
            await asyncio.sleep(0.05)


WAITING = """
app = App("waiting", bootstrap_servers="{bootstrap}", grace="2s")
from sharegroup.worker import Holding, Record

@app.share_group("{group}", topics="{topic}", holding=Holding(longest_seconds=0),
                 retry=Retry(max_attempts=3, initial_delay="2s", jitter=0),
                 retry_tiers=("500ms", "2s"))
async def bill(text: str, record: Record) -> None:
    note(f"{{text}} {{record.attempt}}")
    if record.attempt == 1:
        raise TimeoutError
"""


@pytest.mark.slow
def test_waiting_retry_survives_the_end_of_its_worker(
    bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    text = WAITING.format(bootstrap=bootstrap, group=group, topic=topic)
    asyncio.run(make_topics(bootstrap, topic))
    with WorkerProcess(tmp_path, text) as worker:
        worker.wait_ready()
        asyncio.run(send(bootstrap, topic, b"a"))
        worker.wait_noted("a 1")
        asyncio.run(until_there(bootstrap, f"{group}.retry.2s", 1))
        asyncio.run(settled(bootstrap, group, topic))
        worker.signal(signal.SIGKILL)
        worker.wait()
        worker.start()
        worker.wait_noted("a 2")
        assert worker.noted() == ["a 1", "a 2"]
