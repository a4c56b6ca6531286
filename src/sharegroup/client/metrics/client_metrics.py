"""The metrics of each client, with the names of Kafka's Java clients.

Each class holds the instruments of one part of a client as attributes.  The Java client's metrics
of its queues and network thread (such as ``application-event-queue-size``) have no counterpart,
because there is no second thread.
"""

from __future__ import annotations

from collections.abc import Callable

from sharegroup.client.metrics.metric_types import Metrics

SHARE_CONSUMER = "consumer-share-metrics"
SHARE_COORDINATOR = "consumer-share-coordinator-metrics"
SHARE_FETCH = "consumer-share-fetch-manager-metrics"
PRODUCER = "producer-metrics"
CONSUMER = "consumer-metrics"
COORDINATOR = "consumer-coordinator-metrics"
FETCH = "consumer-fetch-manager-metrics"


class PollingMetrics:
    """The metrics that consumers have in common; times are in ms unless the name says seconds."""

    __slots__ = (
        "between_polls_ms", "bytes_consumed", "fetch", "fetch_bytes", "fetch_latency_ms",
        "fetch_throttle_ms", "heartbeat", "heartbeat_ms", "last_heartbeat", "last_poll",
        "rebalance", "records_consumed",
    )  # fmt: skip

    def __init__(self, metrics: Metrics, polls: str, coordinator: str, fetches: str) -> None:
        """``polls``, ``coordinator`` and ``fetches`` are the consumer's metric groups."""
        self.last_poll = metrics.moment(polls, "last-poll-seconds-ago")
        self.between_polls_ms = metrics.summary(polls, "time-between-poll")
        self.heartbeat = metrics.counter(coordinator, "heartbeat")
        self.heartbeat_ms = metrics.summary(coordinator, "heartbeat-response-time", ("max",))
        self.last_heartbeat = metrics.moment(coordinator, "last-heartbeat-seconds-ago")
        self.rebalance = metrics.counter(coordinator, "rebalance", per_hour=True)
        self.fetch = metrics.counter(fetches, "fetch")
        self.fetch_latency_ms = metrics.summary(fetches, "fetch-latency")
        self.fetch_throttle_ms = metrics.summary(fetches, "fetch-throttle-time")
        self.fetch_bytes = metrics.summary(fetches, "fetch-size")
        self.bytes_consumed = metrics.counter(fetches, "bytes-consumed")
        self.records_consumed = metrics.counter(fetches, "records-consumed")

    def fetched(self, seconds: float, size: int, *, throttle_ms: float) -> None:
        """Count an answered fetch."""
        self.fetch.add()
        self.fetch_latency_ms.observe(seconds * 1000)
        self.fetch_throttle_ms.observe(throttle_ms)
        self.fetch_bytes.observe(size)
        self.bytes_consumed.add(size)


class ShareConsumerMetrics(PollingMetrics):
    """The metrics of a share consumer."""

    __slots__ = (
        "acknowledgements_error", "acknowledgements_send", "poll_idle_ratio", "records_per_request",
    )  # fmt: skip

    def __init__(self, metrics: Metrics) -> None:
        super().__init__(metrics, SHARE_CONSUMER, SHARE_COORDINATOR, SHARE_FETCH)
        self.poll_idle_ratio = metrics.summary(SHARE_CONSUMER, "poll-idle-ratio", ("avg",))
        """The part of the time between the starts of two polls that was spent in the first."""
        self.records_per_request = metrics.summary(SHARE_FETCH, "records-per-request")
        self.acknowledgements_send = metrics.counter(SHARE_FETCH, "acknowledgements-send")
        self.acknowledgements_error = metrics.counter(SHARE_FETCH, "acknowledgements-error")


def show_unreadable_batches(metrics: Metrics, count: Callable[[], int]) -> None:
    """Add a gauge of unreadable batches of a share consumer; the Java client has no such metric."""
    metrics.gauge(SHARE_FETCH, "unreadable-batches-total", count)


def show_idleness(
    metrics: Metrics, partitions: Callable[[], int], idle: Callable[[], float]
) -> None:
    """Add gauges of a share consumer's assigned partitions and of the seconds it has been idle.

    Java's share consumer has neither metric; its consumer has ``assigned-partitions``.
    """
    metrics.gauge(SHARE_COORDINATOR, "assigned-partitions", partitions)
    metrics.gauge(SHARE_COORDINATOR, "idle-seconds", idle)


class ConsumerMetrics(PollingMetrics):
    """The metrics of a plain consumer."""

    __slots__ = ("commit", "commit_ms")

    def __init__(
        self, metrics: Metrics, *, partitions: Callable[[], int], lag_max: Callable[[], int]
    ) -> None:
        super().__init__(metrics, CONSUMER, COORDINATOR, FETCH)
        self.commit = metrics.counter(COORDINATOR, "commit")
        self.commit_ms = metrics.summary(COORDINATOR, "commit-latency")
        metrics.gauge(COORDINATOR, "assigned-partitions", partitions)
        metrics.gauge(FETCH, "records-lag-max", lag_max)


class ProducerMetrics:
    """The metrics of a producer, except the gauges of its buffer, which `Producer` adds."""

    __slots__ = (
        "batch_bytes", "compression_ratio", "queue_ms", "record_error", "record_retry",
        "record_send", "records_per_request", "throttle_ms",
    )  # fmt: skip

    def __init__(self, metrics: Metrics) -> None:
        self.record_send = metrics.counter(PRODUCER, "record-send")
        self.record_retry = metrics.counter(PRODUCER, "record-retry")
        self.record_error = metrics.counter(PRODUCER, "record-error")
        self.queue_ms = metrics.summary(PRODUCER, "record-queue-time")
        """The time from a batch's first record to its first encoding, just before it is sent."""
        self.batch_bytes = metrics.summary(PRODUCER, "batch-size")
        self.compression_ratio = metrics.summary(PRODUCER, "compression-rate", ("avg",))
        """The ratio of encoded bytes to bytes before compression."""
        self.records_per_request = metrics.summary(PRODUCER, "records-per-request", ("avg",))
        self.throttle_ms = metrics.summary(PRODUCER, "produce-throttle-time")


class TransactionMetrics:
    """The time that a program waits for calls of transactions, in nanoseconds as in Java."""

    __slots__ = ("abort_ns", "commit_ns", "init_ns", "send_offsets_ns")

    def __init__(self, metrics: Metrics) -> None:
        self.init_ns = metrics.counter(PRODUCER, "txn-init-time-ns")
        self.commit_ns = metrics.counter(PRODUCER, "txn-commit-time-ns")
        self.abort_ns = metrics.counter(PRODUCER, "txn-abort-time-ns")
        self.send_offsets_ns = metrics.counter(PRODUCER, "txn-send-offsets-time-ns")


NODE_SEPARATOR = "/"
"""Stands between a metric group and the node that its metrics are about (Kafka's tag node-id)."""


def node_group(group: str, node: str) -> str:
    """Return the group of the metrics of one node.

    >>> node_group("producer-metrics", "node-1")
    'producer-node-metrics/node-1'
    """
    return f"{group.removesuffix('-metrics')}-node-metrics{NODE_SEPARATOR}{node}"


class RequestMetrics:
    """The bytes, requests and answers of all connections, or of those to one node."""

    __slots__ = (
        "_incoming_bytes", "_outgoing_bytes", "_request", "_request_bytes", "_request_latency_ms",
        "_response",
    )  # fmt: skip

    def __init__(self, metrics: Metrics, group: str) -> None:
        self._incoming_bytes = metrics.counter(group, "incoming-byte")
        self._outgoing_bytes = metrics.counter(group, "outgoing-byte")
        self._request = metrics.counter(group, "request")
        self._request_bytes = metrics.summary(group, "request-size")
        self._request_latency_ms = metrics.summary(group, "request-latency")
        self._response = metrics.counter(group, "response")

    def sent(self, size: int) -> None:
        """Record a request of this size in bytes."""
        self._request.add()
        self._request_bytes.observe(size)
        self._outgoing_bytes.add(size)

    def received(self, size: int) -> None:
        """Record bytes that arrived."""
        self._incoming_bytes.add(size)

    def answered(self, latency_ms: float) -> None:
        """Record an answer."""
        self._response.add()
        self._request_latency_ms.observe(latency_ms)


class ConnectionMetrics:
    """The common metrics of all connections of one client, in the client's metric group."""

    __slots__ = (
        "authentication", "authentication_failed", "closed", "created", "reauthentication",
        "reauthentication_ms", "requests",
    )  # fmt: skip

    def __init__(self, metrics: Metrics, group: str) -> None:
        self.created = metrics.counter(group, "connection-creation")
        self.closed = metrics.counter(group, "connection-close")
        metrics.gauge(group, "connection-count", lambda: self.created.total - self.closed.total)
        self.requests = RequestMetrics(metrics, group)
        self.authentication = metrics.counter(group, "successful-authentication")
        self.authentication_failed = metrics.counter(group, "failed-authentication")
        self.reauthentication = metrics.counter(group, "successful-reauthentication")
        self.reauthentication_ms = metrics.summary(group, "reauthentication-latency")
