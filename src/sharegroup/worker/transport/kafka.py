"""The parts of a worker on a real cluster, made with this project's clients.

They work with any Kafka that has share groups.  A process has one producer and one admin client.
Each topic of a group has one share consumer in explicit mode; its window follows the speed of the
handlers, and its locks are renewed automatically.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import re
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from sharegroup.client import (
    AcknowledgementResult,
    AcquireMode,
    AdminClient,
    ConfigEntry,
    ConfigResource,
    Producer,
    Record,
    ResourceType,
    ShareConsumer,
    WakeupError,
)
from sharegroup.client.net.cluster import Reachability, reachability_of
from sharegroup.client.settings.client_config import ClientConfig, config_from
from sharegroup.client.settings.kafka_properties import shared_options
from sharegroup.client.share.consumer.flow_control import FlowControl
from sharegroup.client.share.consumer.record import UnreadableDelivery
from sharegroup.errors import KafkaError
from sharegroup.schedules.schedule import owners_group
from sharegroup.waiting.retry_topics import scheduler_group
from sharegroup.worker.consuming.group_log import GroupReading
from sharegroup.worker.parts import ShareGroupLimits, WorkerParts
from sharegroup.worker.ports import RealTimeClock, SendOptions, WrittenRecord
from sharegroup.worker.records.unreadable_range import UnreadableRange
from sharegroup.worker.retrying.postponer import RECORD_BYTES_MAX

if TYPE_CHECKING:
    from sharegroup.worker.application import Application
    from sharegroup.worker.results.asks import ReplyLog
    from sharegroup.worker.retrying.tier_log import TierLog
    from sharegroup.worker.scheduling.schedule_store import ScheduleAccess
    from sharegroup.worker.transport.group_log_kafka import KafkaGroupLog
    from sharegroup.worker.transport.tier_log_kafka import KafkaTierLog
    from sharegroup.worker.transport.tier_moves_kafka import KafkaTierMoves

log = logging.getLogger(__name__)

RENEW_AGE_MS = 10 * 365 * 24 * 3600 * 1000
"""Locks are renewed whatever their age, because the worker itself ends slow handlers."""
NEVER_MS = 2**31 - 1
FETCH_RECORDS = 1_000
STRICT_BELOW = 100
"""Below this room the acquire mode is ``record_limit``.

With ``batch_optimized`` a fetch for a few records could lock a log batch of thousands.
"""
BUSY_WAIT_MS = 100
"""A fetch waits at the broker for this time only, because it delays acknowledgements meanwhile."""
IDLE_WAIT_MS = 500
LOOK_SECONDS = 1.0
PAUSE_SECONDS = 0.1
"""The pause after an error that may be transient, before records are taken again."""
DELIVERY_TIMEOUT_MS = 30_000
MAX_BLOCK_MS = 10_000

DELIVERIES = "share.delivery.count.limit"
LOCKS = "share.partition.max.record.locks"
RENEWAL = "share.renew.acknowledge.enable"
COUNT = re.compile(r"[1-9][0-9]{0,9}")
"""A count as Kafka writes it; its settings have no more digits than 2,147,483,647."""
BROKER_PREFIX = "group."
"""The prefix of the broker's setting that applies to groups without a setting of their own."""


class KafkaSource:
    """Takes records of one topic through a ShareConsumer; a `ports.RecordSource`."""

    def __init__(
        self,
        group: str,
        topic: str,
        in_flight_bytes: int,
        *,
        pause_seconds: float = PAUSE_SECONDS,
        **options: Any,
    ) -> None:
        """``options`` are those of the consumer."""
        self.topic = topic
        self.look_seconds = LOOK_SECONDS
        self._pause_seconds = pause_seconds
        self._group = group
        self._consumer = ShareConsumer(
            topic,
            **options,
            group_id=group,
            share_acknowledgement_mode="explicit",
            # Only until the first `take`, which sets it before each poll.
            in_flight_max=1,
            in_flight_bytes=in_flight_bytes,
            auto_renew=True,
            renew_age_max_ms=RENEW_AGE_MS,
            # A worker does not poll while it has no room, however long its handlers run.
            max_poll_interval_ms=NEVER_MS,
            max_poll_records=FETCH_RECORDS,
        )
        self._control = FlowControl(self._consumer)
        self._buried: dict[int, int] = {}
        """The last unreadable batch whose letter is durable, by partition."""
        self._consumer.set_acknowledgement_commit_callback(self._acknowledged)

    @property
    def member_id(self) -> str:
        """The member id, which the client chooses."""
        return self._consumer.member_id

    @property
    def lock_seconds(self) -> float | None:
        """The lock duration in seconds; None before the first record."""
        lock_ms = self._consumer.acquisition_lock_timeout_ms
        return None if lock_ms is None else lock_ms / 1000

    @property
    def is_joined(self) -> bool:
        """Whether this member has joined the group."""
        return self._control.is_joined

    @property
    def reachability(self) -> Reachability:
        """Which brokers its consumer reaches."""
        health = self._consumer.health()
        return Reachability(health.is_connected, health.lost_brokers)

    @property
    def renews(self) -> bool:
        """Whether locks are renewed."""
        return self._control.renews

    async def take(
        self, room: int, wait_seconds: float
    ) -> Sequence[Record] | tuple[UnreadableRange]:
        """Take up to ``room`` records, and wait for the first at most ``wait_seconds``.

        Offsets that cannot be read are returned alone, as one UnreadableRange.

        Raises KafkaError if the consumer has failed for good; transient errors are logged.
        """
        consumer = self._consumer
        in_flight = consumer.in_flight
        self._control.resize(
            # The window of the client also counts the records that handlers have.
            in_flight + room,
            acquire_mode=AcquireMode.RECORD_LIMIT
            if room < STRICT_BELOW
            else AcquireMode.BATCH_OPTIMIZED,
            max_wait_ms=BUSY_WAIT_MS if in_flight else IDLE_WAIT_MS,
        )
        try:
            return await consumer.poll(wait_seconds, room)
        # `quiet` has ended the poll.
        except WakeupError:
            return ()
        except UnreadableDelivery as error:
            self._control.keep(error)
            return (UnreadableRange(error, self._buried),)
        except KafkaError as error:
            if self._control.failure is not None:
                raise
            log.warning(
                "event=take.failed group=%s error=%r action='the fetch is retried'",
                self._group,
                error,
            )
            await asyncio.sleep(self._pause_seconds)
            return ()

    def quiet(self, *, delivered_below: int) -> Sequence[Record]:
        """Stop taking records; of those fetched ahead, release some and return the others."""
        self._control.quiet(release_below=delivered_below)
        # Ends the poll under way, which may wait for records that are not wanted any more.
        self._consumer.wakeup()
        return self._control.take_waiting()

    async def fetches_ended(self, within_seconds: float) -> None:
        """Wait until no fetch is under way, at most this long."""
        await self._control.fetches_ended(within_seconds)

    def resume(self) -> None:
        """Take records again."""
        self._control.resume()

    def flush(self) -> None:
        """Send pending acknowledgements."""
        self._control.flush()

    async def acknowledged(self, within_seconds: float) -> None:
        """Send pending acknowledgements, and wait for their responses at most this long."""
        await self._control.acknowledged(within_seconds)

    async def close(self, within_seconds: float) -> int:
        """Send pending acknowledgements, release all other records, and leave the group.

        Returns the number of released records.
        """
        report = await self._consumer.close(within_seconds)
        return sum(report.released.values())

    def _acknowledged(self, result: AcknowledgementResult) -> None:
        if result.error is None or result.is_renewal:
            return
        offsets = result.offsets
        log.warning(
            "event=acknowledgement.failed group=%s topic=%s partition=%s offsets=%s first=%s "
            "error=%r action='the records are delivered again'",
            self._group,
            *result.topic_partition,
            len(offsets),
            offsets[0] if len(offsets) else None,
            result.error,
        )


class KafkaOutbox:
    """Writes records with a Producer; a `ports.Outbox`."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def send(
        self, topic: str, value: bytes | None, **options: Unpack[SendOptions]
    ) -> Awaitable[WrittenRecord]:
        """Send a record; awaiting returns where it was durably written, or raises KafkaError."""
        delivery = self._producer.send_now(topic, value, **options)
        # The usual case needs no task.  None before the topic's metadata are known, and without
        # room in the producer's buffer.
        if delivery is not None:
            return delivery
        return self._producer.send_and_wait(topic, value, **options)


def client_options(app: Application) -> dict[str, Any]:
    """Return the options that all clients of the application have in common."""
    choice = app.cluster
    of_profile = shared_options(
        choice.properties,
        ClientConfig,
        warn=functools.partial(log.warning, "event=property.ignored reason=%r"),
        origin=choice.origin,
    )
    return {
        "client_id": app.name,
        **of_profile,
        **app.client_options,
        "bootstrap_servers": choice.bootstrap_servers,
    }


def open_admin(app: Application) -> AdminClient:
    """Return an admin client with the connection options of the application."""
    return AdminClient(**client_options(app))


def kafka_parts(app: Application) -> WorkerParts:
    """Return the parts of a worker that runs on a real cluster."""
    app.cluster.log(app.name)
    options = client_options(app)
    producer = Producer(
        **options,
        # `prepare` and `worker apply` create topics as they are declared.  A broker would create a
        # deleted one with the partitions and settings of its defaults.
        allow_auto_create_topics=False,
        delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
        max_block_ms=MAX_BLOCK_MS,
        request_bytes_max=RECORD_BYTES_MAX,
    )
    admin = open_admin(app)
    config = config_from(ClientConfig, options)
    of_groups = {route.group: route.kafka for route in app.route_list}
    told: set[str] = set()
    members: list[KafkaSource | KafkaGroupLog] = []

    def open_source(group: str, topic: str, in_flight_bytes: int) -> KafkaSource:
        source = KafkaSource(group, topic, in_flight_bytes, **{**options, **of_groups[group]})
        members.append(source)
        return source

    def open_group_log(reading: GroupReading) -> KafkaGroupLog:
        members.append(group_log := _group_log(reading, {**options, **of_groups[reading.group]}))
        return group_log

    def reachability() -> Reachability:
        clients = (reachability_of(client) for client in (producer, admin))
        every = [*clients, *(member.reachability for member in members)]
        lost = {address: error for part in every for address, error in part.lost.items()}
        return Reachability(any(part.is_connected for part in every), lost)

    def open_tier_log(group: str) -> KafkaTierLog:
        # Imported here, because only a group that retries needs a plain consumer.
        from sharegroup.worker.transport.tier_log_kafka import KafkaTierLog

        return KafkaTierLog(config, scheduler_group(group))

    async def group_limits(group: str) -> ShareGroupLimits:
        return await limits_of(admin, group, told=told)

    async def close() -> None:
        await producer.close()
        await admin.close()

    return WorkerParts(
        open_source=open_source,
        open_group_log=open_group_log,
        outbox=KafkaOutbox(producer),
        clock=RealTimeClock(),
        open_tier_log=open_tier_log,
        open_schedules=functools.partial(_open_schedules, config, app.name),
        open_tier_moves=functools.partial(_tier_moves, config),
        open_replies=functools.partial(_open_replies, config),
        admin=admin,
        group_limits=group_limits,
        reachability=reachability,
        close=close,
    )


def _open_schedules(config: ClientConfig, app_name: str) -> ScheduleAccess:
    # Imported here, because only an application with schedules needs it.
    from sharegroup.worker.transport.schedule_store_kafka import open_schedules

    return open_schedules(config, app_name, owners_group(app_name))


def _open_replies(config: ClientConfig, topic: str) -> ReplyLog:
    # Imported here, because only a process that asks needs it.
    from sharegroup.worker.transport.reply_log_kafka import KafkaReplyLog

    return KafkaReplyLog(config, topic)


def _group_log(reading: GroupReading, options: dict[str, Any]) -> KafkaGroupLog:
    # Imported here, because only consumer groups need a plain consumer.
    from sharegroup.worker.transport.group_log_kafka import KafkaGroupLog

    return KafkaGroupLog(reading, options)


def _tier_moves(config: ClientConfig, group: str, tier_log: TierLog) -> KafkaTierMoves:
    # Imported here, because only a steered group moves records in transactions.
    from sharegroup.worker.transport.tier_log_kafka import KafkaTierLog
    from sharegroup.worker.transport.tier_moves_kafka import KafkaTierMoves

    assert isinstance(tier_log, KafkaTierLog), "as `open_tier_log` opens it"
    return KafkaTierMoves(config, group, tier_log)


async def limits_of(
    admin: AdminClient, group: str, *, told: set[str] | None = None
) -> ShareGroupLimits:
    """Return the limits of a group: its own settings, or the broker's, or Kafka's defaults.

    Settings that this user may not see are logged at level INFO once; ``told`` has their names.
    """
    told = set() if told is None else told
    of_group = await _configs(admin, ConfigResource(ResourceType.GROUP, group), told)
    of_broker: dict[str, ConfigEntry] = {}
    is_known = {DELIVERIES, LOCKS} <= of_group.keys()
    # There are no nodes while the broker that answers does not know of any yet.
    if not is_known and (nodes := (await admin.describe_cluster()).nodes):
        node = str(nodes[0].node_id)
        of_broker = await _configs(admin, ConfigResource(ResourceType.BROKER, node), told)

    def value(name: str, otherwise: str) -> str:
        entry = of_group.get(name) or of_broker.get(BROKER_PREFIX + name)
        return otherwise if entry is None or entry.value is None else entry.value

    def count(name: str, otherwise: int) -> int:
        text = value(name, str(otherwise))
        # Whatever a broker answers, an error here would end a worker that runs.
        if COUNT.fullmatch(text) is None:
            log.warning("event=limit.refused group=%s setting=%s value=%.40r", group, name, text)
            return otherwise
        return int(text)

    default = ShareGroupLimits()
    return ShareGroupLimits(
        deliveries=count(DELIVERIES, default.deliveries),
        locks=count(LOCKS, default.locks),
        renewal=value(RENEWAL, "true").lower() == "true",
    )


async def _configs(
    admin: AdminClient, resource: ConfigResource, told: set[str]
) -> dict[str, ConfigEntry]:
    result = (await admin.describe_configs([resource]))[resource]
    if isinstance(result, KafkaError):
        # Without the broker's id, because any broker is asked.
        name = f"group {resource.name}" if resource.type is ResourceType.GROUP else "broker"
        level = logging.DEBUG if name in told else logging.INFO
        told.add(name)
        log.log(
            level,
            "event=limits.unseen of=\"%s\" error=%r action='the defaults of Kafka are used'",
            name,
            result,
        )
        return {}
    return result
