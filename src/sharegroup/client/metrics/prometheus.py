"""Exports the metrics of clients to prometheus (extra ``metrics``).

    from prometheus_client import REGISTRY
    collector = ClientCollector()
    REGISTRY.register(collector)
    collector.add(consumer)

A value of ``consumer-share-fetch-manager-metrics`` becomes
``kafka_consumer_share_fetch_manager_fetch_total{client_id="..."}``.  Values are read at each
scrape.  The collector keeps weak references, so a client that was deleted is missing from the
next scrape.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Protocol
from weakref import WeakValueDictionary

from sharegroup.client.metrics.client_metrics import NODE_SEPARATOR
from sharegroup.client.metrics.metric_types import NEVER
from sharegroup.errors import MissingExtra
from sharegroup.installation import pip_install

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise MissingExtra(
        f"sharegroup.client.metrics.prometheus needs prometheus-client: {pip_install('metrics')}"
    ) from error

TOTAL = "-total"
LABELS = ("client_id", "node_id")
"""The labels of metrics; only those of single nodes have the second one."""


class CollectedClient(Protocol):
    """Any of the clients, all of which have a client id and metrics."""

    @property
    def client_id(self) -> str: ...

    def metrics(self) -> dict[str, dict[str, float]]: ...


class ClientCollector(Collector):
    """A prometheus collector for the metrics of the clients that were added to it."""

    def __init__(self) -> None:
        self._clients: WeakValueDictionary[str, CollectedClient] = WeakValueDictionary()

    def add(self, client: CollectedClient) -> None:
        """Export this client's metrics from now on.

        Further clients with the same id get a number in the label, because prometheus refuses a
        scrape with equal labels.
        """
        label = client.client_id
        for number in itertools.count(2):
            if self._clients.setdefault(label, client) is client:
                return
            label = f"{client.client_id}-{number}"

    def collect(self) -> Iterator[Metric]:
        """Yield one metric family for each name, with a sample for each client."""
        families: dict[str, Metric] = {}
        for label, client in sorted(self._clients.items()):
            for group, values in client.metrics().items():
                group, _, node = group.partition(NODE_SEPARATOR)
                labels = (label, node) if node else (label,)
                for name, value in values.items():
                    # Prometheus shows a missing value as a gap; -1 would be drawn and averaged.
                    if value != NEVER:
                        _family(families, group, name, labels).add_metric(labels, value)
        yield from families.values()


def _family(
    families: dict[str, Metric], group: str, name: str, labels: tuple[str, ...]
) -> CounterMetricFamily | GaugeMetricFamily:
    key = f"kafka_{group.removesuffix('-metrics')}_{name}".replace("-", "_")
    family = families.get(key)
    if family is None:
        kind = CounterMetricFamily if name.endswith(TOTAL) else GaugeMetricFamily
        family = families[key] = kind(
            key, f"{name} in {group} of Kafka's clients", labels=LABELS[: len(labels)]
        )
    assert isinstance(family, CounterMetricFamily | GaugeMetricFamily)
    return family
