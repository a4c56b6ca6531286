"""What a client pushes of its metrics, and when, beside a scripted cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from sharegroup.client.metrics.metric_types import Metrics
from sharegroup.client.net.telemetry import (
    Subscription,
    Telemetry,
    interval_after,
    metric_name,
    wanted_values,
)
from sharegroup.client.records import IllegalStateError
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.errors import (
    InvalidRequest,
    KafkaError,
    NetworkException,
    TelemetryTooLarge,
    ThrottlingQuotaExceeded,
    UnknownServerError,
    UnknownSubscriptionId,
    UnsupportedCompressionType,
    UnsupportedVersion,
)
from sharegroup.steps import run_to_end
from sharegroup.testing import virtual_time
from sharegroup.wire.batches.compression import decompress
from sharegroup.wire.codec.apis import api_of
from sharegroup.wire.otlp_metrics import OtlpMetrics, read_metrics
from tests.support.limits import HANGING_SECONDS

INSTANCE = UUID(int=9)
ZSTD = 4


class ScriptedCluster:
    """Answers subscriptions and pushes; ``errors`` are the codes of the next pushes."""

    def __init__(
        self,
        *errors: int,
        wanted: Sequence[str] = ("*",),
        is_delta: bool = False,
        bytes_max: int = 1_000_000,
        **config: Any,
    ) -> None:
        self.config = ClientConfig(**config)
        self.metrics = Metrics("test")
        self.errors = list(errors)
        self.subscription: dict[str, Any] = {}
        """Fields of the answers about the subscription that differ from the honest ones."""
        self.wanted = tuple(wanted)
        self.is_delta = is_delta
        self.bytes_max = bytes_max
        self.asked: list[UUID | None] = []
        self.pushes: list[OtlpMetrics] = []
        self.terminated = 0
        self.pushed = asyncio.Event()

    def call(self, timeout: float | None) -> Any:
        return nullcontext()

    async def retrying(self, attempt: Any, *, subject: str) -> Any:
        return await attempt()

    async def any_connection(self) -> ScriptedCluster:
        return self

    async def request(self, message: Any) -> Any:
        if api_of(message.__api_key__).name == "GetTelemetrySubscriptions":
            self.asked.append(message.client_instance_id)
            honest = {
                "error_code": 0,
                "client_instance_id": INSTANCE,
                "subscription_id": 5,
                "push_interval": timedelta(milliseconds=1),
                "requested_metrics": self.wanted,
                "accepted_compression_types": (9, ZSTD, 1),
                "telemetry_max_bytes": self.bytes_max,
                "delta_temporality": self.is_delta,
            }
            return SimpleNamespace(**honest | self.subscription)
        assert (message.client_instance_id, message.subscription_id) == (INSTANCE, 5)
        assert message.compression_type == ZSTD, "the first codec that both sides have"
        code = self.errors.pop(0) if self.errors else 0
        if not code:
            payload = decompress(ZSTD, message.metrics, bytes_max=1_000_000)
            self.pushes.append(run_to_end(read_metrics(bytes(payload))))
            self.terminated += message.terminating
            self.pushed.set()
        return SimpleNamespace(error_code=code)


def telemetry(cluster: ScriptedCluster) -> Telemetry:
    made: Any = cluster
    return Telemetry(made, lambda: {"group_id": "g"}, chance=lambda: 0.0, first_seconds=0.0)


def play(cluster: ScriptedCluster, pushes: int = 1, *, stops: bool = False) -> ScriptedCluster:
    """Run telemetry until it has pushed so often, or has ended by itself."""

    async def run() -> None:
        pusher = telemetry(cluster)
        running = asyncio.create_task(pusher.run())
        async with asyncio.timeout(HANGING_SECONDS):
            while len(cluster.pushes) < pushes and not running.done():
                cluster.pushed.clear()
                await asyncio.wait(
                    [running, asyncio.create_task(cluster.pushed.wait())],
                    return_when=asyncio.FIRST_COMPLETED,
                )
        running.cancel()
        if stops:
            await pusher.stop()

    asyncio.run(run())
    return cluster


def values(push: OtlpMetrics) -> dict[str, tuple[float, bool, bool]]:
    return {
        value.name: (value.value, value.is_counter, value.is_increment) for value in push.values
    }


def test_totals_and_gauges_are_pushed_under_kafkas_names_with_the_labels_of_the_client() -> None:
    cluster = ScriptedCluster()
    cluster.metrics.counter("producer-metrics", "record-send").add(3)
    cluster.metrics.gauge("consumer-share-metrics", "time-between-poll-avg", lambda: -1)
    (push, *_) = play(cluster).pushes
    found = values(push)
    assert found["org.apache.kafka.producer.record.send.total"] == (3, True, False)
    assert found["org.apache.kafka.producer.record.send.rate"][1:] == (False, False)
    assert "org.apache.kafka.consumer.share.time.between.poll.avg" not in found, "no value yet"
    assert push.labels == (("group_id", "g"),)


def test_only_wanted_metrics_are_pushed() -> None:
    cluster = ScriptedCluster(wanted=["org.apache.kafka.producer.record"])
    cluster.metrics.gauge("producer-metrics", "record-age", lambda: 1)
    cluster.metrics.gauge("producer-metrics", "batch-age", lambda: 1)
    assert [*values(play(cluster).pushes[0])] == ["org.apache.kafka.producer.record.age"]


def test_a_cluster_that_wants_no_metrics_gets_none() -> None:
    cluster = ScriptedCluster(wanted=[])

    async def run() -> None:
        running = asyncio.create_task(telemetry(cluster).run())
        async with asyncio.timeout(HANGING_SECONDS):
            while len(cluster.asked) < 3:
                await asyncio.sleep(0)
        running.cancel()

    asyncio.run(run())
    assert cluster.asked[:3] == [None, INSTANCE, INSTANCE]
    assert cluster.pushes == []


def test_increments_are_the_growth_since_the_last_push_that_arrived() -> None:
    subscription = Subscription(1, 1, ("*",), (), 0, is_increments=True)
    pushed: dict[str, float] = {}

    def increment(total: float) -> float:
        (value,) = wanted_values({"g-metrics": {"a-total": total}}, subscription, pushed)
        assert (value.is_counter, value.is_increment) == (True, True)
        return value.value

    assert [increment(total) for total in (5, 5, 12)] == [5, 0, 7]


def test_an_unknown_subscription_is_asked_for_again_with_the_same_instance_id() -> None:
    cluster = play(ScriptedCluster(UnknownSubscriptionId.code))
    assert cluster.asked == [None, INSTANCE]


def test_a_refused_push_ends_telemetry() -> None:
    cluster = play(ScriptedCluster(InvalidRequest.code))
    assert (cluster.pushes, len(cluster.asked)) == ([], 1)


def test_too_many_metrics_are_not_sent() -> None:
    cluster = ScriptedCluster(bytes_max=10)
    cluster.metrics.gauge("g", "n", lambda: 1)

    async def run() -> None:
        made = telemetry(cluster)
        await made._next()
        with pytest.raises(TelemetryTooLarge, match="the cluster takes 10"):
            await made._next()

    asyncio.run(run())
    assert cluster.pushes == []


def test_the_last_push_says_that_it_is_the_last() -> None:
    assert play(ScriptedCluster(), stops=True).terminated == 1


def test_nothing_is_sent_with_enable_metrics_push_false() -> None:
    cluster = ScriptedCluster(enable_metrics_push=False)

    async def run() -> None:
        await telemetry(cluster).run()
        with pytest.raises(IllegalStateError, match="enable_metrics_push=False"):
            await telemetry(cluster).client_instance_id(None)

    asyncio.run(run())
    assert cluster.asked == []


def test_the_instance_id_is_asked_for_once() -> None:
    cluster = ScriptedCluster()

    async def run() -> None:
        made = telemetry(cluster)
        assert [await made.client_instance_id(None) for _ in range(2)] == [INSTANCE] * 2

    asyncio.run(run())
    assert cluster.asked == [None]


@pytest.mark.parametrize(
    ("error", "pause_ms"),
    [
        (UnknownSubscriptionId, 0),
        (TelemetryTooLarge, 70),
        (ThrottlingQuotaExceeded, 70),
        (NetworkException, 70),
        (InvalidRequest, None),
        (UnsupportedVersion, None),
    ],
)
def test_pauses_after_errors(error: type[KafkaError], pause_ms: int | None) -> None:
    assert interval_after(error("why"), 70) == pause_ms


def broken() -> float:
    raise LookupError("no carts today")


UNREADABLE: dict[str, Any] = {
    "raises": broken,
    "has no number": lambda: "many",
    "has nothing": lambda: None,
    "is too large": lambda: 10**400,
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_metric_of_the_application_that_fails_is_left_out_and_logged_once(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = ScriptedCluster()
    cluster.metrics.gauge("shop", "carts", UNREADABLE[name])
    cluster.metrics.gauge("shop", "orders", lambda: 3)
    pushes = play(cluster, 2, stops=True).pushes
    assert [[*values(push)] for push in pushes] == [["org.apache.kafka.shop.orders"]] * len(pushes)
    assert cluster.terminated == 1
    (line,) = caplog.messages
    assert line.startswith("event=metric.failed name=carts error=")


def test_a_metric_of_the_application_comes_back() -> None:
    metrics, carts = Metrics("test"), {}
    metrics.gauge("shop", "carts", lambda: carts["all"])
    assert metrics.read() == {"shop": {}}
    carts["all"] = 2
    assert metrics.read() == {"shop": {"carts": 2}}


@pytest.mark.parametrize(
    "metric", [(7, "carts", int), ("shop", b"carts", int), ("shop", None, int), ("shop", "c", 4)]
)
def test_a_metric_without_a_name_or_a_function_is_refused(metric: Any) -> None:
    with pytest.raises(TypeError, match="expected a metric's group and name as str"):
        Metrics("test").gauge(*metric)


@pytest.mark.parametrize(
    ("named_ms", "interval_ms"),
    [(0, 300_000), (-1, 300_000), (-(2**31), 300_000), (1, 100), (2**31 - 1, 3_600_000)],
)
def test_odd_push_intervals_neither_spin_nor_end_telemetry(named_ms: int, interval_ms: int) -> None:
    cluster = ScriptedCluster()
    cluster.subscription["push_interval"] = timedelta(milliseconds=named_ms)
    assert asyncio.run(telemetry(cluster)._next()) == interval_ms // 2


@pytest.mark.parametrize("code", [UnknownSubscriptionId.code, UnsupportedCompressionType.code])
def test_a_cluster_that_refuses_to_name_a_subscription_is_asked_with_pauses(code: int) -> None:
    cluster = ScriptedCluster()
    cluster.subscription["error_code"] = code

    async def run() -> None:
        running = asyncio.create_task(telemetry(cluster).run())
        await asyncio.sleep(3_600)  # Of virtual time.
        running.cancel()

    virtual_time.run(run())
    assert len(cluster.asked) == 12  # One in each interval of 300 s.


def test_a_subscription_without_an_instance_id_is_an_error() -> None:
    cluster = ScriptedCluster()
    cluster.subscription["client_instance_id"] = None
    with pytest.raises(UnknownServerError, match="expected a client instance id"):
        asyncio.run(telemetry(cluster).client_instance_id(None))


def test_a_registered_metric_can_be_removed() -> None:
    metrics = Metrics("test")
    metrics.gauge("shop", "carts", lambda: 4)
    assert metrics.read() == {"shop": {"carts": 4}}
    assert metric_name("shop", "carts") == "org.apache.kafka.shop.carts"
    metrics.remove_gauge("shop", "carts")
    metrics.remove_gauge("shop", "carts")  # Again: nothing to remove.
    assert metrics.read() == {}
