"""What a worker is made of in earnest: this project's clients, against any Kafka that has share
groups.

One producer and one admin client for the process; for each topic of a group one share consumer, in
explicit mode, with a window that follows the speed of its handlers and locks that renew themselves.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any

from sharegroup.client import (
    AcknowledgementResult,
    AdminClient,
    ConfigEntry,
    ConfigResource,
    Producer,
    Record,
    RecordMetadata,
    ResourceType,
    ShareConsumer,
    WakeupError,
)
from sharegroup.client.config import ClientConfig, config_from
from sharegroup.errors import KafkaError
from sharegroup.worker.parts import GroupLimits, WorkerParts
from sharegroup.worker.ports import Header, Written
from sharegroup.worker.retrying.topics import RECORD_BYTES_MAX

if TYPE_CHECKING:
    from sharegroup.worker.application import Application
    from sharegroup.worker.transport.tier_log_kafka import KafkaTierLog

log = logging.getLogger(__name__)

RENEW_AGE_MS = 10 * 365 * 24 * 3600 * 1000
"""The worker ends what takes too long itself; no lock is let go for its age alone."""
NEVER_MS = 2**31 - 1
FETCH_RECORDS = 1_000
STRICT_BELOW = 100
"""Where so few records are wanted, a log batch of thousands would wait here, locked."""
BUSY_WAIT_MS = 100
"""A fetch that waits at the broker keeps acknowledgements waiting too."""
IDLE_WAIT_MS = 500
PAUSE_SECONDS = 0.1
DELIVERY_TIMEOUT_MS = 30_000
MAX_BLOCK_MS = 10_000

DELIVERIES = "share.delivery.count.limit"
LOCKS = "share.partition.max.record.locks"
RENEWAL = "share.renew.acknowledge.enable"
BROKER_PREFIX = "group."
"""A group that has no such setting of its own follows the broker's, with this before its name."""


class SystemClock:
    """Time as it passes; a `ports.Clock`."""

    now = staticmethod(time.monotonic)  # Twice for every record: without a call in between.

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    async def sleep_until(self, when: float) -> None:
        """Return when `now` has reached ``when``."""
        await asyncio.sleep(when - time.monotonic())


class KafkaSource:
    """A `ports.Source` over a ShareConsumer."""

    def __init__(self, group: str, topic: str, in_flight_bytes: int, **options: Any) -> None:
        self.topic = topic
        self._group = group
        self._consumer = ShareConsumer(
            topic,
            **options,
            group_id=group,
            share_acknowledgement_mode="explicit",
            in_flight_max=1,
            in_flight_bytes=in_flight_bytes,
            auto_renew=True,
            renew_age_max_ms=RENEW_AGE_MS,
            max_poll_interval_ms=NEVER_MS,
            max_poll_records=FETCH_RECORDS,
        )
        self._consumer.set_acknowledgement_commit_callback(self._acknowledged)

    @property
    def member_id(self) -> str:
        """The member's id, its own choice."""
        return self._consumer.member_id

    @property
    def lock_seconds(self) -> float | None:
        """How long a lock lives; None before the first record."""
        lock_ms = self._consumer.acquisition_lock_timeout_ms
        return None if lock_ms is None else lock_ms / 1000

    @property
    def is_joined(self) -> bool:
        """Whether the group's coordinator knows this member."""
        return self._consumer.flow.is_joined

    @property
    def renews(self) -> bool:
        """Whether locks are renewed."""
        return self._consumer.flow.renews

    async def take(self, room: int, wait_seconds: float) -> Sequence[Record]:
        """Up to ``room`` records as soon as there are some; none after ``wait_seconds``."""
        consumer = self._consumer
        in_flight = consumer.in_flight
        consumer.flow.resize(
            in_flight + room,
            acquire_mode="record_limit" if room < STRICT_BELOW else "batch_optimized",
            max_wait_ms=BUSY_WAIT_MS if in_flight else IDLE_WAIT_MS,
        )
        try:
            return await consumer.poll(wait_seconds, room)
        except WakeupError:
            return ()
        except KafkaError as error:
            if consumer.flow.failure is not None:
                raise
            log.warning("event=take.failed group=%s error=%r (trying on)", self._group, error)
            await asyncio.sleep(PAUSE_SECONDS)
            return ()

    def quiet(self, *, delivered_below: int) -> None:
        """Take nothing more; what was fetched ahead goes back."""
        self._consumer.flow.quiet(give_back_below=delivered_below)
        self._consumer.wakeup()

    def resume(self) -> None:
        """Take records again."""
        self._consumer.flow.resume()

    def flush(self) -> None:
        """Let what was settled leave."""
        self._consumer.commit_async()

    async def close(self, within_seconds: float) -> int:
        """Send what is settled, give back the rest, leave the group; how many went back."""
        report = await self._consumer.close(within_seconds)
        return sum(report.released.values())

    def _acknowledged(self, result: AcknowledgementResult) -> None:
        if result.error is None or result.is_renewal:
            return
        offsets = result.offsets
        log.warning(
            "event=acknowledgement.failed group=%s topic=%s partition=%s offsets=%s first=%s "
            "error=%r (they are delivered again)",
            self._group,
            *result.topic_partition,
            len(offsets),
            offsets[0] if len(offsets) else None,
            result.error,
        )


class KafkaOutbox:
    """A `ports.Outbox` over a Producer."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Awaitable[Written]:
        """Awaiting it gives where the record lies, durable, or raises KafkaError."""
        delivery = self._producer.send_now(
            topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )
        if delivery is not None:
            return delivery
        return self._send(topic, value, key, headers, partition, timestamp_ms)

    async def _send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[Header],
        partition: int | None,
        timestamp_ms: int | None,
    ) -> RecordMetadata:
        return await self._producer.send_and_wait(
            topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )


def client_options(app: Application) -> dict[str, Any]:
    """What every client of the application is made with."""
    return {
        "bootstrap_servers": app.bootstrap,
        "client_id": app.name,
        **app.client_options,
    }


def open_admin(app: Application) -> AdminClient:
    """An admin client that reaches the application's cluster as the application does."""
    return AdminClient(**client_options(app))


def kafka_parts(app: Application) -> WorkerParts:
    """The parts of a worker that runs in earnest."""
    options = client_options(app)
    producer = Producer(
        **options,
        delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
        max_block_ms=MAX_BLOCK_MS,
        request_bytes_max=RECORD_BYTES_MAX,
    )
    admin = open_admin(app)
    config = config_from(ClientConfig, options)

    def open_source(group: str, topic: str, in_flight_bytes: int) -> KafkaSource:
        return KafkaSource(group, topic, in_flight_bytes, **options)

    def open_tier_log(group: str) -> KafkaTierLog:
        from sharegroup.worker.declared.names import scheduler_group
        from sharegroup.worker.transport.tier_log_kafka import KafkaTierLog

        return KafkaTierLog(config, admin, scheduler_group(group))

    async def group_limits(group: str) -> GroupLimits:
        return await limits_of(admin, group)

    async def close() -> None:
        await producer.close()
        await admin.close()

    return WorkerParts(
        open_source=open_source,
        outbox=KafkaOutbox(producer),
        clock=SystemClock(),
        open_tier_log=open_tier_log,
        admin=admin,
        group_limits=group_limits,
        close=close,
    )


async def limits_of(admin: AdminClient, group: str) -> GroupLimits:
    """What the broker allows this group: its own settings, else the broker's, else Kafka's."""
    of_group = await _configs(admin, ConfigResource(ResourceType.GROUP, group))
    of_broker: dict[str, ConfigEntry] = {}
    if not {DELIVERIES, LOCKS} <= of_group.keys():
        cluster = await admin.describe_cluster()
        node = str(cluster.nodes[0].node_id)
        of_broker = await _configs(admin, ConfigResource(ResourceType.BROKER, node))

    def value(name: str, otherwise: str) -> str:
        entry = of_group.get(name) or of_broker.get(BROKER_PREFIX + name)
        return otherwise if entry is None or entry.value is None else entry.value

    default = GroupLimits()
    return GroupLimits(
        deliveries=int(value(DELIVERIES, str(default.deliveries))),
        locks=int(value(LOCKS, str(default.locks))),
        renewal=value(RENEWAL, "true").lower() == "true",
    )


async def _configs(admin: AdminClient, resource: ConfigResource) -> dict[str, ConfigEntry]:
    result = (await admin.describe_configs([resource]))[resource]
    if isinstance(result, KafkaError):
        log.info("event=configs.unknown resource=%s error=%r", resource.name, result)
        return {}
    return result
