"""Instruments over a clock that the test moves, and what a dictionary of them says."""

import gc

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from sharegroup.client.metrics.client_metrics import (
    ConnectionMetrics,
    RequestMetrics,
    ShareConsumerMetrics,
    node_group,
)
from sharegroup.client.metrics.metric_types import Metrics
from sharegroup.client.metrics.prometheus import ClientCollector


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> Metrics:
    return Metrics("billing-1", clock)


def test_counter_reads_as_total_and_rate_per_second(metrics: Metrics, clock: Clock) -> None:
    counter = metrics.counter("g", "fetch")
    counter.add()
    counter.add(19)
    clock.now += 10
    assert metrics.read() == {"g": {"fetch-total": 20.0, "fetch-rate": 2.0}}


def test_rare_events_are_read_by_the_hour(metrics: Metrics, clock: Clock) -> None:
    metrics.counter("g", "rebalance", per_hour=True).add(2)
    clock.now += 20
    assert metrics.read() == {"g": {"rebalance-total": 2.0, "rebalance-rate-per-hour": 360.0}}


def test_rate_of_the_first_moment_is_not_blown_up(metrics: Metrics, clock: Clock) -> None:
    counter = metrics.counter("g", "fetch")
    clock.now += 0.001
    counter.add(2)
    assert counter.per_second() == 2.0


def test_rate_ignores_events_older_than_two_windows(metrics: Metrics, clock: Clock) -> None:
    counter = metrics.counter("g", "fetch")
    counter.add(600)
    clock.now += 30
    counter.add(300)
    clock.now += 30  # The first window is gone now; the second counts 300 in 30 s.
    assert counter.per_second() == 10.0
    clock.now += 60
    assert counter.per_second() == 0.0
    assert counter.total == 900.0


def test_summary_reads_as_average_and_largest(metrics: Metrics) -> None:
    latency = metrics.summary("g", "latency")
    for value in (1.0, 5.0, 3.0):
        latency.observe(value)
    assert metrics.read() == {"g": {"latency-avg": 3.0, "latency-max": 5.0}}


def test_summary_keeps_the_window_before_and_no_more(metrics: Metrics, clock: Clock) -> None:
    latency = metrics.summary("g", "latency")
    latency.observe(9.0)
    clock.now += 30
    latency.observe(1.0)
    assert metrics.read()["g"] == {"latency-avg": 5.0, "latency-max": 9.0}
    clock.now += 30
    assert metrics.read()["g"] == {"latency-avg": 1.0, "latency-max": 1.0}
    clock.now += 90
    assert metrics.read()["g"] == {"latency-avg": -1.0, "latency-max": -1.0}


def test_largest_of_negative_values_is_negative(metrics: Metrics) -> None:
    summary = metrics.summary("g", "drift", ("max",))
    summary.observe(-3.0)
    assert metrics.read() == {"g": {"drift-max": -3.0}}


def test_moment_reads_as_seconds_since_then(metrics: Metrics, clock: Clock) -> None:
    poll = metrics.moment("g", "last-poll-seconds-ago")
    assert metrics.read() == {"g": {"last-poll-seconds-ago": -1.0}}
    poll.mark()
    clock.now += 7
    assert metrics.read() == {"g": {"last-poll-seconds-ago": 7.0}}


def test_share_consumer_has_the_names_of_kafka(metrics: Metrics) -> None:
    ShareConsumerMetrics(metrics)
    assert {group: sorted(values) for group, values in metrics.read().items()} == {
        "consumer-share-metrics": [
            "last-poll-seconds-ago",
            "poll-idle-ratio-avg",
            "time-between-poll-avg",
            "time-between-poll-max",
        ],
        "consumer-share-coordinator-metrics": [
            "heartbeat-rate",
            "heartbeat-response-time-max",
            "heartbeat-total",
            "last-heartbeat-seconds-ago",
            "rebalance-rate-per-hour",
            "rebalance-total",
        ],
        "consumer-share-fetch-manager-metrics": [
            "acknowledgements-error-rate",
            "acknowledgements-error-total",
            "acknowledgements-send-rate",
            "acknowledgements-send-total",
            "bytes-consumed-rate",
            "bytes-consumed-total",
            "fetch-latency-avg",
            "fetch-latency-max",
            "fetch-rate",
            "fetch-size-avg",
            "fetch-size-max",
            "fetch-throttle-time-avg",
            "fetch-throttle-time-max",
            "fetch-total",
            "records-consumed-rate",
            "records-consumed-total",
            "records-per-request-avg",
            "records-per-request-max",
        ],
    }


def test_connection_count_is_created_minus_closed(metrics: Metrics) -> None:
    connections = ConnectionMetrics(metrics, "admin-client-metrics")
    connections.created.add(3)
    connections.closed.add(1)
    assert metrics.read()["admin-client-metrics"]["connection-count"] == 2.0


class Client:
    """Something with metrics, as the three clients are."""

    def __init__(self, client_id: str, total: int) -> None:
        self.client_id = client_id
        self._metrics = Metrics(client_id, Clock())
        self._metrics.counter("admin-client-metrics", "request").add(total)
        self._metrics.summary("admin-client-metrics", "request-latency")

    def metrics(self) -> dict[str, dict[str, float]]:
        return self._metrics.read()


def scrape(collector: ClientCollector) -> list[str]:
    registry = CollectorRegistry()
    registry.register(collector)
    lines = generate_latest(registry).decode().splitlines()
    return sorted(line for line in lines if not line.startswith("#"))


def test_prometheus_sees_every_client_under_its_id() -> None:
    collector = ClientCollector()
    billing, audit = Client("billing", 3), Client("audit", 5)
    collector.add(billing)
    collector.add(audit)
    assert scrape(collector) == [
        'kafka_admin_client_request_rate{client_id="audit"} 5.0',
        'kafka_admin_client_request_rate{client_id="billing"} 3.0',
        'kafka_admin_client_request_total{client_id="audit"} 5.0',
        'kafka_admin_client_request_total{client_id="billing"} 3.0',
    ]


def test_metrics_of_a_node_have_its_id_as_label() -> None:
    collector = ClientCollector()
    client = Client("billing", 3)
    for node_id, size in (("node-1", 100), ("node-2", 50)):
        RequestMetrics(client._metrics, node_group("admin-client-metrics", node_id)).sent(size)
    collector.add(client)
    assert [line for line in scrape(collector) if "outgoing_byte_total" in line] == [
        'kafka_admin_client_node_outgoing_byte_total{client_id="billing",node_id="node-1"} 100.0',
        'kafka_admin_client_node_outgoing_byte_total{client_id="billing",node_id="node-2"} 50.0',
    ]


def test_prometheus_numbers_clients_with_the_same_id() -> None:
    collector = ClientCollector()
    clients = [Client("same", 1), Client("same", 1)]
    for client in clients:
        collector.add(client)
    assert [line for line in scrape(collector) if "total" in line] == [
        'kafka_admin_client_request_total{client_id="same"} 1.0',
        'kafka_admin_client_request_total{client_id="same-2"} 1.0',
    ]


def test_prometheus_forgets_a_garbage_collected_client() -> None:
    collector = ClientCollector()
    client = Client("billing", 3)
    collector.add(client)
    assert len(scrape(collector)) == 2
    del client
    gc.collect()
    assert scrape(collector) == []
