"""Pushes the metrics of a client to its cluster, if the cluster asks for them (KIP-714).

    ask for the subscription --> no metrics wanted: ask again after the interval
               ^       '-------> push the wanted metrics, every interval
               '-- the subscription has changed --'

A cluster that serves no telemetry is asked nothing: its brokers do not advertise the requests.
Metrics have the names of Kafka's clients: ``producer-metrics``, ``record-send-total`` is
``org.apache.kafka.producer.record.send.total``.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from kio.schema.get_telemetry_subscriptions.v0.request import GetTelemetrySubscriptionsRequest
from kio.schema.push_telemetry.v0.request import PushTelemetryRequest
from kio.static.primitive import i8, i32

from sharegroup.client.metrics.client_metrics import NODE_SEPARATOR
from sharegroup.client.metrics.metric_types import NEVER
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import IllegalStateError
from sharegroup.errors import (
    NONE,
    KafkaError,
    TelemetryTooLarge,
    ThrottlingQuotaExceeded,
    UnknownServerError,
    UnknownSubscriptionId,
    UnsupportedCompressionType,
    error_for,
)
from sharegroup.wire.batches.compression import CODECS, compress
from sharegroup.wire.codec.schema import MILLISECOND
from sharegroup.wire.otlp_metrics import OtlpValue, encode_metrics

log = logging.getLogger(__name__)

FIRST_SECONDS = 1.0
"""Pause before the first request, so that short programs send none."""
INTERVAL_MS = 300_000
"""The interval when the cluster has named none."""
INTERVAL_MS_MIN, INTERVAL_MS_MAX = 100, 3_600_000
"""The range of Kafka's setting ``interval.ms``; a broker that names another gets the nearest."""
LAST_PUSH_SECONDS = 1.0
"""Maximum time for the last push when the client is closed."""
JITTER = (0.5, 1.5)
"""The part of the interval before the first push, at random, so that clients are not in step."""
PREFIX = "org.apache.kafka"
TOTAL = ".total"
ALL = "*"

Labels = Callable[[], Mapping[str, str]]
"""Returns the labels of the client now, for example the id of its group."""


class Subscription(NamedTuple):
    """The metrics that the cluster wants of this client."""

    id: int
    interval_ms: int
    wanted: tuple[str, ...]
    """Beginnings of names; ``*`` alone means all metrics."""
    codecs: tuple[int, ...]
    bytes_max: int
    is_increments: bool
    """Whether totals are sent as their growth since the last push."""

    def wants(self, name: str) -> bool:
        """Whether the cluster wants the metric of this name."""
        return self.wanted == (ALL,) or name.startswith(self.wanted)


def metric_name(group: str, name: str) -> str:
    """Return the name of a metric in telemetry, as Kafka's clients form it.

    >>> metric_name("producer-metrics", "record-send-total")
    'org.apache.kafka.producer.record.send.total'
    """
    parts = (PREFIX, group.replace("-", ".").replace(".metrics", ""), name.replace("-", "."))
    return ".".join(parts).lower()


def interval_after(error: KafkaError, interval_ms: int) -> int | None:
    """Return the pause in milliseconds after an error; None: telemetry ends."""
    if isinstance(error, UnknownSubscriptionId | UnsupportedCompressionType):
        # The subscription has changed, so it is asked for at once, as in `ClientTelemetryUtils`,
        # method `maybeFetchErrorIntervalMs`.
        return 0
    if error.retriable or isinstance(error, TelemetryTooLarge | ThrottlingQuotaExceeded):
        return interval_ms
    return None


def wanted_values(
    metrics: Mapping[str, Mapping[str, float]], subscription: Subscription, pushed: dict[str, float]
) -> Iterator[OtlpValue]:
    """Yield the metrics that the cluster wants; ``pushed`` keeps the totals of the last push.

    Metrics without a value yet are left out.
    """
    for group_and_node, values in metrics.items():
        group, _, node = group_and_node.partition(NODE_SEPARATOR)
        labels = (("node_id", node),) if node else ()
        for reading, value in values.items():
            name = metric_name(group, reading)
            if value == NEVER or not subscription.wants(name):
                continue
            is_counter = name.endswith(TOTAL)
            is_increment = is_counter and subscription.is_increments
            if is_increment:
                key = name + NODE_SEPARATOR + node
                value, pushed[key] = value - pushed.get(key, 0.0), value
            yield OtlpValue(name, labels, value, is_counter, is_increment)


class Telemetry:
    """Has the metrics of one client, and pushes them while `run` runs."""

    def __init__(
        self,
        cluster: Cluster,
        labels: Labels = dict,
        *,
        chance: Callable[[], float] = random.random,
        first_seconds: float = FIRST_SECONDS,
    ) -> None:
        self.metrics = cluster.metrics
        self._cluster = cluster
        self._labels = labels
        self._chance = chance
        self._first_seconds = first_seconds
        self._instance_id: UUID | None = None
        self._subscription: Subscription | None = None
        self._interval_ms = INTERVAL_MS
        self._asking = asyncio.Lock()
        self._pushed: dict[str, float] = {}
        self._pushed_at_ns = time.time_ns()

    async def run(self) -> None:
        """Ask for the subscription and push, until telemetry ends or this task is cancelled."""
        if not self._cluster.config.enable_metrics_push:
            return
        pause_ms: int | None = int(self._first_seconds * 1000)
        while pause_ms is not None:
            await asyncio.sleep(pause_ms / 1000)
            had_subscription = self._subscription is not None
            try:
                pause_ms = await self._next()
            except KafkaError as error:
                self._subscription = None
                pause_ms = interval_after(error, self._interval_ms)
                if pause_ms == 0 and not had_subscription:
                    # Asking again at once would go on for ever.
                    pause_ms = self._interval_ms
                log.debug("event=telemetry.failed pause_ms=%s error=%r", pause_ms, error)

    async def client_instance_id(self, timeout_seconds: float | None) -> UUID:
        """Do what the function of this name does, and raise RequestTimedOut after the time."""
        if not self._cluster.config.enable_metrics_push:
            raise IllegalStateError("a client with enable_metrics_push=False has no instance id")
        if self._instance_id is None:
            with self._cluster.call(timeout_seconds):
                await self._cluster.retrying(self._subscribe, subject="client_instance_id")
        assert self._instance_id is not None, "a subscription has an instance id"
        return self._instance_id

    async def stop(self) -> None:
        """Push the last values, if the cluster wants any."""
        if self._subscription is None:
            return
        try:
            async with asyncio.timeout(LAST_PUSH_SECONDS):
                await self._push(self._subscription, is_last=True)
        except (KafkaError, TimeoutError) as error:
            # The client is closed anyway; only the values since the last push are lost.
            log.debug("event=telemetry.not_ended error=%r", error)

    async def _next(self) -> int:
        """Send the next request; return the pause after it in milliseconds."""
        if self._subscription is None:
            await self._subscribe()
            low, high = JITTER
            return int(self._interval_ms * (low + (high - low) * self._chance()))
        await self._push(self._subscription)
        return self._interval_ms

    async def _subscribe(self) -> None:
        # One at a time: two requests without an id would get two ids.
        async with self._asking:
            connection = await self._cluster.any_connection()
            answer = await connection.request(
                GetTelemetrySubscriptionsRequest(client_instance_id=self._instance_id)
            )
        if answer.error_code != NONE:
            raise error_for(answer.error_code, "GetTelemetrySubscriptions was refused")
        if answer.client_instance_id is None:
            raise UnknownServerError(
                "GetTelemetrySubscriptions: expected a client instance id in the broker's response"
            )
        self._instance_id = answer.client_instance_id
        interval_ms = answer.push_interval // MILLISECOND
        if interval_ms <= 0:
            interval_ms = INTERVAL_MS
        self._interval_ms = min(max(interval_ms, INTERVAL_MS_MIN), INTERVAL_MS_MAX)
        if not answer.requested_metrics:
            self._subscription = None
            return
        self._subscription = Subscription(
            int(answer.subscription_id),
            self._interval_ms,
            tuple(answer.requested_metrics),
            tuple(map(int, answer.accepted_compression_types)),
            int(answer.telemetry_max_bytes),
            answer.delta_temporality,
        )
        log.info(
            "event=telemetry.subscribed instance=%s interval_ms=%s metrics=%s",
            self._instance_id, self._interval_ms, ",".join(self._subscription.wanted),
        )  # fmt: skip

    async def _push(self, subscription: Subscription, *, is_last: bool = False) -> None:
        now_ns = time.time_ns()
        # A copy, which is kept after the answer only: increments of a failed push go with the
        # next.
        pushed = dict(self._pushed)
        payload = encode_metrics(
            wanted_values(self.metrics.read(), subscription, pushed),
            labels=tuple(self._labels().items()),
            started_ns=self._pushed_at_ns,
            now_ns=now_ns,
        )
        codec = _codec(subscription.codecs)
        content = compress(codec, payload)
        if len(content) > subscription.bytes_max > 0:
            raise TelemetryTooLarge(
                f"the metrics have {len(content)} bytes; the cluster takes {subscription.bytes_max}"
            )
        connection = await self._cluster.any_connection()
        answer = await connection.request(
            PushTelemetryRequest(
                client_instance_id=self._instance_id,
                subscription_id=i32(subscription.id),
                terminating=is_last,
                compression_type=i8(codec),
                metrics=content,
            )
        )
        if answer.error_code != NONE:
            raise error_for(answer.error_code, "PushTelemetry was refused")
        self._pushed = pushed
        # Totals count from the start of the client, so their start stays; increments begin at the
        # last push.
        if subscription.is_increments:
            self._pushed_at_ns = now_ns


def _codec(accepted: Sequence[int]) -> int:
    """Return the first codec that both sides have; 0, none, if there is no such codec."""
    return next((codec for codec in accepted if codec in _KNOWN_CODECS), 0)


_KNOWN_CODECS = frozenset(CODECS.values())


# Methods that clients have in common; a class has them as ``metrics = telemetry.metrics``.


class Measured(Protocol):
    """A client that has metrics: a consumer, a producer or an AdminClient."""

    _telemetry: Telemetry


def metrics(client: Measured) -> dict[str, dict[str, float]]:
    """The current value of every metric, by Kafka's metric group and name."""
    return client._telemetry.metrics.read()


async def client_instance_id(
    client: Measured,
    timeout: float | None = None,  # noqa: ASYNC109  Kafka's signature.
) -> UUID:
    """Return the id that the cluster gives this client for its metrics (KIP-714).

    Raises IllegalStateError with ``enable_metrics_push=False``, and UnsupportedVersion if the
    cluster serves no telemetry.
    """
    return await client._telemetry.client_instance_id(timeout)


def register_metric_for_subscription(
    client: Measured, group: str, name: str, read: Callable[[], float]
) -> None:
    """Add a metric of the application, which `metrics` shows and the cluster may ask for."""
    client._telemetry.metrics.gauge(group, name, read)


def unregister_metric_from_subscription(client: Measured, group: str, name: str) -> None:
    """Remove a metric of the application."""
    client._telemetry.metrics.remove_gauge(group, name)
