"""A replica that lags is elected: the log ends before what clients have written and settled.

    offset      0         100         200          250
    broker A    | early    | doomed    |                       killed, was alone in sync
    broker B    | early    | late                  |           elected
    group                               ^ its start offset, durable at the share coordinator

What was written to A alone is lost: that is what `unclean.leader.election.enable` means.  A
group whose start offset is ahead of the log's end does not see what is written below it, and goes
on behind it, as with Kafka's own clients.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from sharegroup.client import Producer, Record as Taken, ShareConsumer
from sharegroup.worker import App, Holding, Record, Retry
from tests.cluster.clients import begin_at_the_start
from tests.cluster.conftest import all_of_it
from tests.cluster.traffic import LIMIT_SECONDS, POLL_SECONDS
from tests.cluster.unclean import create_on_two, until_led
from tests.support.kafka_cluster import KafkaCluster

pytestmark = all_of_it

EARLY, DOOMED, LATE, LAST = 100, 100, 150, 10


class Counting:
    """A member in explicit mode: which records it was given, and which acceptances are durable."""

    def __init__(self, cluster: KafkaCluster, topic: str, group: str) -> None:
        self.accepted: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self._topic = topic
        self._options = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": group}
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Counting:
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _read(self) -> None:
        async with ShareConsumer(
            self._topic, **self._options, share_acknowledgement_mode="explicit"
        ) as consumer:
            while True:
                records = await consumer.poll(timeout=POLL_SECONDS)
                consumer.accept(records)
                if not any((await consumer.commit()).values()):
                    self.accepted.update(_text(record) for record in records)
                self._changed.set()

    async def until(self, *wanted: str) -> None:
        assert self._task is not None
        async with asyncio.timeout(LIMIT_SECONDS):
            while not set(wanted) <= self.accepted.keys():
                assert not self._task.done(), self._task.exception()
                self._changed.clear()
                await self._changed.wait()


def _text(record: Taken) -> str:
    return (record.value or b"").decode()


def _named(kind: str, count: int) -> list[str]:
    return [f"{kind} {number}" for number in range(count)]


async def _prepared(cluster: KafkaCluster, topic: str, replicas: tuple[int, int]) -> None:
    groups = [f"{topic}.{name}" for name in ("readers", "worker", "holding", "later")]
    await create_on_two(cluster, topic, replicas)
    await begin_at_the_start(cluster, groups)


def _application(cluster: KafkaCluster, topic: str, handled: Counter[str]) -> App:
    app = App("unclean", bootstrap_servers=cluster.bootstrap_servers, grace="5s")

    @app.share_group(
        f"{topic}.worker",
        topics=topic,
        retry=Retry(max_attempts=5, initial_delay="200ms", multiplier=1),
        retry_tiers=("200ms",),
        holding=Holding(longest_seconds=0),
    )
    async def handle(text: str, record: Record) -> None:
        if text.endswith("7") and record.attempt == 1:
            raise ConnectionError(text)
        handled[text] += 1

    return app


async def _hold(consumer: ShareConsumer, kind: str) -> list[Taken]:
    """Accept records until there are some of a kind; these stay in hand."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            records = await consumer.poll(timeout=POLL_SECONDS)
            if any(_text(record).startswith(kind) for record in records):
                return records
            consumer.accept(records)
            await consumer.commit()


async def _settle_too_late(consumer: ShareConsumer, held: list[Taken], last: str) -> set[str]:
    """Accept what its leader forgot: an error, not a hang; then read to the last record."""
    consumer.accept(held)
    async with asyncio.timeout(LIMIT_SECONDS):
        errors = await consumer.commit()
        assert errors
        assert all(errors.values()), errors
        seen: set[str] = set()
        while last not in seen:
            records = await consumer.poll(timeout=POLL_SECONDS)
            seen.update(map(_text, records))
            consumer.accept(records)
            await consumer.commit()
    return seen


async def _until_handled(handled: Counter[str], wanted: set[str]) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while not wanted <= handled.keys():
            await asyncio.sleep(0.05)


def test_state_ahead_of_the_log_hides_lower_records_and_clients_continue(
    cluster: KafkaCluster,
) -> None:
    async def run() -> None:
        topic = "unclean"
        await _prepared(cluster, topic, (1, 2))
        alone = await asyncio.to_thread(cluster.leader_of, topic, 0)
        lagging = 3 - alone
        handled: Counter[str] = Counter()
        early, doomed = _named("early", EARLY), _named("doomed", DOOMED)
        late, last = _named("late", LATE), _named("last", LAST)
        async with (
            Producer(bootstrap_servers=cluster.bootstrap_servers) as producer,
            Counting(cluster, topic, f"{topic}.readers") as reader,
            ShareConsumer(
                topic,
                bootstrap_servers=cluster.bootstrap_servers,
                group_id=f"{topic}.holding",
                share_acknowledgement_mode="explicit",
            ) as holder,
            _application(cluster, topic, handled),
        ):

            async def send(texts: list[str]) -> list[int]:
                async with asyncio.timeout(LIMIT_SECONDS):
                    futures = [await producer.send(topic, text.encode()) for text in texts]
                    return [(await future).offset for future in futures]

            assert await send(early) == list(range(EARLY))
            await reader.until(*early)
            await asyncio.to_thread(cluster.kill, lagging)
            await until_led(cluster, topic, alone, {alone})
            assert await send(doomed) == list(range(EARLY, EARLY + DOOMED))
            held = await _hold(holder, "doomed")
            await reader.until(*doomed)
            await _until_handled(handled, set(doomed))
            await asyncio.to_thread(cluster.kill, alone)
            await asyncio.to_thread(cluster.start, lagging)
            await until_led(cluster, topic, lagging, {lagging})

            assert await send(late) == list(range(EARLY, EARLY + LATE))
            await reader.until(*late[DOOMED:])
            await asyncio.to_thread(cluster.mend)
            await send(last)
            await reader.until(*last)
            await _until_handled(handled, set(last))
            seen_by_holder = await _settle_too_late(holder, held, last[-1])
            async with Counting(cluster, topic, f"{topic}.later") as later:
                await later.until(*early, *late, *last)
        assert reader.accepted == Counter([*early, *doomed, *late[DOOMED:], *last])
        assert later.accepted == Counter([*early, *late, *last])
        assert {*late, *last} <= seen_by_holder
        assert {*early, *late[DOOMED:], *last} <= handled.keys()

    asyncio.run(run())
