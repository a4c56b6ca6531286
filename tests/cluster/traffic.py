"""Load on a cluster while a test breaks it, and the account of every record.

    producer: numbered records, one after the other in each partition
        |
        +--> a share group of several members in explicit mode: commit after each poll
        +--> an application: some records fail once, and run again from retry topics

    async with Traffic(cluster, topic) as traffic:
        await traffic.goes_on()             # everything works
        await broken(cluster.kill, 2)
        await traffic.goes_on()             # in every partition, for every member, with retries
        account = await traffic.settled()   # nothing is sent any more; everything is finished
    assert not account.problems

`Traffic.goes_on` looks only at records that were sent after it was called, so it says that no
partition, no member and no retry is stuck.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sharegroup.client import (
    AcknowledgementResult,
    AdminClient,
    AlterConfig,
    ConfigResource,
    NewTopic,
    Producer,
    Record as Taken,
    ResourceType,
    ShareConsumer,
)
from sharegroup.errors import KafkaError, NetworkException
from sharegroup.worker import App, Holding, Record, Retry
from tests.support.kafka_cluster import KafkaCluster

LIMIT_SECONDS = 120.0
"""For what ends by an event; long, because the machine may be slow."""
POLL_SECONDS = 0.5
PACE_SECONDS = 0.05
"""Between a partition's records, so that the load leaves room for the brokers."""
PAUSE_SECONDS = 0.2
FLAKY_EVERY = 10
"""Every tenth record fails at its first attempt."""
NOWHERE = Holding(longest_seconds=0)
"""Every retry goes to a retry topic."""
CONFIGS = {
    "share.auto.offset.reset": "earliest",
    "share.record.lock.duration.ms": "15000",
    "share.session.timeout.ms": "10000",
    "share.heartbeat.interval.ms": "1000",
}
NAMED_MAX = 10

Place = tuple[str, int, int]


class Delivery(NamedTuple):
    """A record was handed to a member."""

    member: int
    delivery_count: int
    at: float
    acquired_at: float


@dataclass
class Account:
    """What became of all records."""

    confirmed: dict[int, Place] = field(default_factory=dict)
    """By number, where a record was written."""
    refused: Counter[str] = field(default_factory=Counter)
    """Records of which nobody knows whether they were written, by error."""
    deliveries: dict[Place, list[Delivery]] = field(default_factory=lambda: defaultdict(list))
    numbers: dict[Place, int] = field(default_factory=dict)
    accepted: dict[Place, float] = field(default_factory=dict)
    """When a broker confirmed that a record was accepted."""
    failures: Counter[str] = field(default_factory=Counter)
    """Acknowledgements that failed, by error."""
    in_doubt: set[Place] = field(default_factory=set)
    """Records whose acknowledgement was sent and not answered: they may be accepted."""
    raised: list[str] = field(default_factory=list)
    """What polls and commits raised."""
    returned: list[str] = field(default_factory=list)
    """Deliveries after the confirmation."""
    handled: Counter[int] = field(default_factory=Counter)
    """How often the application finished a record, by number."""
    failed: Counter[int] = field(default_factory=Counter)
    pauses: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    """The longest time in seconds in which a member was given nothing."""

    @property
    def lost(self) -> list[int]:
        """Records that were confirmed, and that nobody of the group has accepted."""
        finished = self.accepted.keys() | self.in_doubt
        return [number for number, at in self.confirmed.items() if at not in finished]

    @property
    def unhandled(self) -> list[int]:
        """Records that were confirmed, and that the application has not finished."""
        return [number for number in self.confirmed if not self.handled[number]]

    @property
    def doubled(self) -> int:
        """How many records were delivered to the group more than once."""
        return sum(len(given) > 1 for given in self.deliveries.values())

    @property
    def handled_again(self) -> int:
        """How many records the application finished more than once."""
        return sum(times > 1 for times in self.handled.values())

    @property
    def problems(self) -> dict[str, object]:
        """What must not be, by kind."""
        kinds = {
            "lost": self.lost,
            "unhandled": self.unhandled,
            "returned": self.returned,
            "raised": self.raised,
        }
        return {kind: found[:NAMED_MAX] for kind, found in kinds.items() if found}

    def __str__(self) -> str:
        return (
            f"confirmed={len(self.confirmed)} refused={dict(self.refused)} "
            f"lost={len(self.lost)} unhandled={len(self.unhandled)} doubled={self.doubled} "
            f"handled_again={self.handled_again} returned={len(self.returned)} "
            f"failures={dict(self.failures)} raised={self.raised[:NAMED_MAX]} "
            f"pauses={[round(pause, 1) for _, pause in sorted(self.pauses.items())]}"
        )


class Traffic:
    """A producer, a share group and an application; a context manager that starts and ends them.

    ``options`` are those of every client beside the addresses; ``admin_options`` those of the one
    that creates the topic and configures the groups, if they are others.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        topic: str,
        *,
        partitions: int = 6,
        members: int = 3,
        options: Mapping[str, Any] | None = None,
        admin_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.cluster = cluster
        self.topic = topic
        self.group = f"{topic}.readers"
        self.partitions = partitions
        self.account = Account()
        self.app = self._application(dict(options or {}))
        self._options: dict[str, Any] = {
            "bootstrap_servers": cluster.bootstrap_servers,
            **(options or {}),
        }
        self._admin_options = {**self._options, **(admin_options or {})}
        self._members = members
        self._given_at: dict[int, float] = {}
        self._latest: dict[int, int] = {}
        """By member, the last record that it was given."""
        self._accepted_latest: dict[int, int] = dict.fromkeys(range(partitions), -1)
        self._handled_latest: dict[int, int] = dict.fromkeys(range(partitions), -1)
        self._retried_latest = -1
        self._number = 0
        self._changed = asyncio.Event()
        self._ending = self._ended = False
        """Whether the producers, and whether the members are to end."""
        self._producers: list[asyncio.Task[None]] = []
        self._consumers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Traffic:
        await self._prepare()
        self._producers = [
            asyncio.create_task(self._produce(partition)) for partition in range(self.partitions)
        ]
        self._consumers = [
            asyncio.create_task(self._consume(member)) for member in range(self._members)
        ]
        await self.app.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._ending = self._ended = True
        tasks = [*self._producers, *self._consumers]
        if error[0] is not None:
            for task in tasks:
                task.cancel()
        await asyncio.wait(tasks, timeout=LIMIT_SECONDS)
        await self.app.stop()

    async def goes_on(self, seconds: float = LIMIT_SECONDS) -> float:
        """Wait until new records went everywhere; how many seconds that took.

        In each partition one is accepted and one handled, each member is given one, and one has
        failed and run again.
        """
        begun = time.monotonic()
        first = self._number

        def stuck() -> str:
            late = [
                *(f"partition {at} of the group" for at in _below(self._accepted_latest, first)),
                *(f"partition {at} of the worker" for at in _below(self._handled_latest, first)),
                *(
                    f"member {member}"
                    for member in range(self._members)
                    if self._latest.get(member, -1) < first
                ),
            ]
            if self._retried_latest < first:
                late.append("retries")
            return ", ".join(late)

        await self._until(stuck, seconds)
        return time.monotonic() - begun

    async def settled(self, seconds: float = LIMIT_SECONDS) -> Account:
        """End the producer, and wait until everything is accepted and handled."""
        self._ending = True
        await asyncio.wait(self._producers)
        account = self.account

        def unfinished() -> str:
            return f"lost {account.lost}, unhandled {account.unhandled}" * bool(
                account.lost or account.unhandled
            )

        with contextlib.suppress(AssertionError):  # The account says it.
            await self._until(unfinished, seconds)
        print(account)
        return account

    async def _until(self, missing: Callable[[], str], seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                while missing():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(
                f"stuck for {seconds} s: {missing()[:2000]}; {self.account}"
            ) from None

    async def _prepare(self) -> None:
        new = NewTopic(self.topic, self.partitions, 3)
        groups = [self.group, f"{self.topic}.worker"]
        async with AdminClient(**self._admin_options) as admin:
            assert await admin.create_topics([new]) == {self.topic: None}
            changed = await admin.incremental_alter_configs(
                {
                    ConfigResource(ResourceType.GROUP, group): [
                        AlterConfig(name, value) for name, value in CONFIGS.items()
                    ]
                    for group in groups
                }
            )
        assert not any(changed.values()), changed
        await asyncio.to_thread(self.cluster.wait_until_whole)

    async def _produce(self, partition: int) -> None:
        """One record after the other, so that a partition that stands still stops no other."""
        account = self.account
        async with Producer(**self._options) as producer:
            while not self._ending:
                number = self._number
                self._number += 1
                try:
                    sent = await producer.send_and_wait(
                        self.topic, str(number).encode(), partition=partition
                    )
                except KafkaError as error:
                    account.refused[type(error).__name__] += 1
                else:
                    account.confirmed[number] = (self.topic, partition, sent.offset)
                self._changed.set()
                await asyncio.sleep(PACE_SECONDS)

    async def _consume(self, member: int) -> None:
        consumer = ShareConsumer(
            self.topic,
            **self._options,
            group_id=self.group,
            share_acknowledgement_mode="explicit",
        )
        consumer.set_acknowledgement_commit_callback(self._told)
        async with consumer:
            while not self._ended:
                try:
                    for record in await consumer.poll(timeout=POLL_SECONDS):
                        self._given(member, record, consumer.acquisition_lock_timeout_ms or 0)
                        record.accept()
                    await consumer.commit()
                except (KafkaError, TimeoutError) as error:
                    self.account.raised.append(repr(error))
                    await asyncio.sleep(PAUSE_SECONDS)

    def _given(self, member: int, record: Taken, lock_ms: int) -> None:
        now, place = time.monotonic(), (record.topic, record.partition, record.offset)
        number = int(record.value or b"")
        account = self.account
        delivery = Delivery(member, record.delivery_count, now, record.deadline - lock_ms / 1000)
        account.numbers.setdefault(place, number)
        account.deliveries[place].append(delivery)
        if place in account.accepted:
            account.returned.append(
                f"{place}, accepted {now - account.accepted[place]:.1f} s ago: "
                f"{account.deliveries[place]}"
            )
        pause = now - self._given_at.get(member, now)
        account.pauses[member] = max(account.pauses[member], pause)
        self._given_at[member] = now
        self._latest[member] = max(self._latest.get(member, -1), number)

    def _told(self, result: AcknowledgementResult) -> None:
        """The callback of acknowledgements."""
        account = self.account
        topic, partition = result.topic_partition
        if result.error is not None:
            account.failures[type(result.error).__name__] += len(result.offsets)
            if isinstance(result.error, NetworkException):
                account.in_doubt.update((topic, partition, offset) for offset in result.offsets)
        else:
            for offset in result.offsets:
                place = (topic, partition, offset)
                if place in account.numbers:  # Offsets without a record are acknowledged too.
                    account.accepted.setdefault(place, time.monotonic())
                    number = account.numbers[place]
                    if number > self._accepted_latest[partition]:
                        self._accepted_latest[partition] = number
        self._changed.set()

    def _application(self, options: dict[str, Any]) -> App:
        app = App(
            "traffic", bootstrap_servers=self.cluster.bootstrap_servers, client=options, grace="10s"
        )
        account = self.account

        @app.share_group(
            f"{self.topic}.worker",
            topics=self.topic,
            retry=Retry(max_attempts=50, initial_delay="200ms", multiplier=1),
            retry_tiers=("200ms",),
            holding=NOWHERE,
        )
        async def handle(text: str, record: Record) -> None:
            number = int(text)
            if number % FLAKY_EVERY == 0 and record.attempt == 1:
                account.failed[number] += 1
                raise ConnectionError(f"number {number}")
            account.handled[number] += 1
            if record.attempt > 1:
                self._retried_latest = max(self._retried_latest, number)
            elif number > self._handled_latest[record.partition]:
                self._handled_latest[record.partition] = number
            self._changed.set()

        return app


def _below(latest: Mapping[int, int], first: int) -> list[int]:
    return [partition for partition, number in latest.items() if number < first]
