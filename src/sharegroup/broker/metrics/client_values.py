"""The metrics that clients pushed (KIP-714), as Prometheus' text format shows them.

OpenTelemetry's ``org.apache.kafka.producer.record.send.total`` becomes
``kafka_client_producer_record_send_total``.  Its labels are those of the client's own, and the ids
of the client; `client_families.CLIENT_INFO` describes each client.  Clients choose the names, so
names and labels are reduced to allowed characters, and a series that another one already shows is
left out: Prometheus refuses a page that has a series twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from sharegroup.broker.metrics.text import label_pairs
from sharegroup.core.client_telemetry.pushed_values import PushedValues, Series
from sharegroup.core.client_telemetry.subscriptions import ClientIdentity

KAFKAS_PREFIX = "org.apache.kafka."
PREFIX = "kafka_client_"
NAMES_MAX = 2_000
"""Different metrics of all clients that one page shows."""

SERIES_PER_PAUSE = 50
RESOURCE_LABELS = (
    "client_rack",
    "group_id",
    "group_instance_id",
    "group_member_id",
    "transactional_id",
)
"""The attributes that Kafka's clients give their resource."""

_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_]")


class ClientValuesPage:
    """The part of a page of metrics that shows the values of clients."""

    __slots__ = ("_by_name", "_kinds", "left_out_count")

    def __init__(self) -> None:
        self._by_name: dict[str, dict[str, float]] = {}
        self._kinds: dict[str, str] = {}
        self.left_out_count = 0

    def collect(self, values: PushedValues) -> Iterator[None]:
        """Read the values in steps."""
        for client, series in values.series():
            for index, value in enumerate(series):
                self._add(client, value)
                if index % SERIES_PER_PAUSE == SERIES_PER_PAUSE - 1:
                    yield
            yield

    def texts(self) -> Iterator[str]:
        """Yield the lines of each metric, a few hundred at once."""
        for name, by_labels in self._by_name.items():
            yield f"# HELP {name} Pushed by clients.\n# TYPE {name} {self._kinds[name]}\n"
            series = iter(by_labels.items())
            while some := "".join(
                f"{name}{{{labels}}} {number}\n"
                for labels, number in islice(series, SERIES_PER_PAUSE)
            ):
                yield some

    def _add(self, client: ClientIdentity, value: Series) -> None:
        name = PREFIX + _NOT_ALLOWED.sub("_", value.name.removeprefix(KAFKAS_PREFIX))
        by_labels = self._by_name.get(name)
        if by_labels is None:
            if len(self._by_name) == NAMES_MAX:
                self.left_out_count += 1
                return
            by_labels = self._by_name[name] = {}
            self._kinds[name] = "counter" if value.is_counter else "gauge"
        labels = {
            "client_instance_id": client.client_instance_id,
            "client_id": client.client_id,
        }
        for label, text in value.labels:
            # The labels of a client do not replace its ids.
            labels.setdefault(_label_name(label), text)
        pairs = label_pairs(tuple(labels), tuple(labels.values()))
        if pairs in by_labels:
            self.left_out_count += 1
        by_labels.setdefault(pairs, value.value)


def info_labels(values: PushedValues) -> Iterator[tuple[str, ...]]:
    """Yield the labels of `client_families.CLIENT_INFO` for each client that pushes metrics."""
    for client, resource_labels in values.instances():
        known = dict(resource_labels)
        yield (
            client.client_instance_id,
            client.client_id,
            client.client_software_name,
            client.client_software_version,
            client.client_source_address,
            *(known.get(label, "") for label in RESOURCE_LABELS),
        )


def _label_name(label: str) -> str:
    """Return a valid label; names that begin with two underscores are Prometheus' own."""
    name = _NOT_ALLOWED.sub("_", label).lstrip("_")
    return name if name[:1].isalpha() else f"label_{name}"
