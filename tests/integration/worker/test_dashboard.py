"""docs/grafana/sharegroup.json: all its metrics and labels exist, and it shows the important ones.

A broker and a worker are started and process a few records, and the dashboard is compared with
what their endpoints print.
"""

from __future__ import annotations

import json
import re
import socket
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sharegroup.broker.metrics.families import FAMILIES as BROKER_FAMILIES
from sharegroup.testing import run_broker
from sharegroup.worker.telemetry.prometheus import FAMILIES as WORKER_FAMILIES
from tests.docs.write_docs import ALERTS
from tests.integration.worker.processes import WorkerProcess
from tests.integration.worker.test_life import application, send
from tests.support.limits import HANGING_SECONDS

ROOT = Path(__file__).resolve().parents[3]
DASHBOARD = json.loads((ROOT / "docs" / "grafana" / "sharegroup.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]

SELECTOR = re.compile(r"\b([a-z]\w*)\{([^}]*)\}")
LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
GROUPING = re.compile(r"\bby \(([^)]*)\)")
LABEL_VALUES = re.compile(r"label_values\((\w+), (\w+)\)")
OF_PROMETHEUS = {"instance"}
"""Labels that Prometheus adds to every sample."""
SUFFIXES = {"histogram": ("_bucket", "_count", "_sum"), "summary": ("_count", "_sum")}

NOT_SHOWN = {
    **dict.fromkeys(
        (
            *("kafka_server_share_fetch_requests_total", "sharegroup_topic_log_offsets"),
            *("kafka_server_share_acknowledgement_requests_total", "sharegroup_waiting_requests"),
            *("kafka_server_share_group_dead_letter_queue_produce_requests_total",),
            *("kafka_server_share_partition_in_flight_messages", "sharegroup_share_partitions"),
            *("kafka_group_coordinator_groups", "kafka_group_coordinator_classic_groups"),
            *("kafka_share_coordinator_writes_total", "sharegroup_connections_opened_total"),
            *("sharegroup_share_partitions_initialized", "sharegroup_record_jobs_total"),
            *("kafka_server_delayed_share_fetches", "kafka_server_delayed_share_fetch_watches"),
            *("kafka_server_delayed_share_fetches_expired_total",),
            *("kafka_server_share_sessions", "kafka_server_share_session_partitions"),
            *("kafka_server_fetch_sessions", "kafka_server_fetch_session_partitions"),
            *("kafka_group_coordinator_consumer_groups",),
            *("kafka_group_coordinator_consumer_group_rebalances_total",),
            *("kafka_server_client_metrics_instances", "sharegroup_client_info"),
            *("sharegroup_client_metrics_values_total", "sharegroup_acls"),
            *("sharegroup_throttle_seconds_total", "sharegroup_client_quota_entities"),
            *("sharegroup_client_quota_meters", "sharegroup_scram_credentials"),
            *("sharegroup_key_order_records",),
        ),
        "a number of things or requests; another panel shows their effect",
    ),
    **dict.fromkeys(
        (
            *("kafka_server_share_group_fetch_ratio", "sharegroup_lock_expiry_lateness_seconds"),
            *("kafka_server_share_partition_fetch_lock_seconds", "sharegroup_record_jobs_waiting"),
            *("kafka_server_share_group_partition_load_seconds",),
            *("kafka_share_coordinator_load_seconds", "sharegroup_request_longest_hold_seconds"),
            *("kafka_share_coordinator_last_pruned_offset", "sharegroup_set_aside_bytes"),
            *("sharegroup_metrics_left_out", "sharegroup_open_files", "sharegroup_open_files_max"),
            *("sharegroup_consumer_groups_bytes", "sharegroup_transactions_bytes"),
            *("sharegroup_client_metrics_bytes",),
            *("sharegroup_logins_pending", "sharegroup_tls_handshakes_pending"),
            *("sharegroup_tls_certificate_expires_timestamp_seconds",),
            *("sharegroup_tls_handshake_seconds_total", "sharegroup_token_key_readings_total"),
        ),
        "for the search of a cause that the dashboard has shown",
    ),
    **dict.fromkeys(
        (
            *("kafka_server_share_fetch_requests_failed_total", "sharegroup_bad_requests_total"),
            *("kafka_server_share_acknowledgement_requests_failed_total",),
            *("sharegroup_dead_letters_not_copied_total", "sharegroup_dead_letters_given_up_total"),
            *("kafka_server_share_session_evictions_total", "sharegroup_sessions_refused_total"),
            *("kafka_server_fetch_session_evictions_total", "sharegroup_budget_evictions_total"),
            *("sharegroup_budget_waits_total", "sharegroup_unreadable_batches_total"),
            *("kafka_server_client_metrics_throttled_total",),
            *("kafka_server_client_metrics_unknown_subscriptions_total",),
            *("sharegroup_client_metrics_values_dropped_total",),
            *("sharegroup_descriptor_shortages_total", "sharegroup_producers_forgotten_total"),
            *("sharegroup_audit_lines_suppressed_total", "sharegroup_log_lines_suppressed_total"),
            *("sharegroup_logins_evicted_total", "sharegroup_login_sessions_expired_total"),
            *("sharegroup_client_quota_meters_shared_total",),
            *("sharegroup_unreadable_records_total", "sharegroup_worker_unrouted_total"),
            *("sharegroup_dead_letters_refused_total", "sharegroup_dead_letters_throttled_total"),
            *("sharegroup_worker_unwritten_total", "sharegroup_worker_replies_unawaited_total"),
            "sharegroup_user_part_refused_total",
        ),
        "rare, and logged",
    ),
    **dict.fromkeys(
        (
            *("sharegroup_share_groups_bytes", "sharegroup_group_settings_bytes"),
            *("sharegroup_committed_offsets_bytes", "sharegroup_producers"),
            *("sharegroup_worker_held_bytes", "sharegroup_worker_asks_waiting"),
        ),
        "a part of the memory, which has a limit",
    ),
}
"""Metrics that are not in the dashboard, and why."""


@dataclass(frozen=True)
class Endpoint:
    """What an endpoint printed: the types of metrics, and the labels of each name with samples."""

    types: dict[str, str]
    labels: dict[str, set[str]]

    def names(self) -> Iterator[str]:
        """All names that samples may have, of metrics without samples, too."""
        for name, kind in self.types.items():
            yield from (name + suffix for suffix in SUFFIXES.get(kind, ("",)))

    def metric_of(self, name: str) -> str:
        """The metric that samples of this name belong to."""
        return next(
            metric
            for metric, kind in self.types.items()
            if name in [metric + suffix for suffix in SUFFIXES.get(kind, ("",))]
        )


def printed(port: int) -> Endpoint:
    with urllib.request.urlopen(
        f"http://127.0.0.1:{port}/metrics", timeout=HANGING_SECONDS
    ) as answer:
        text = answer.read().decode()
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return Endpoint(dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)), labels)


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Endpoint, Endpoint]]:
    """What a broker and a worker print after two records."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with run_broker({"sharegroup.metrics.port": "0"}) as broker:
        assert broker.running.metrics is not None
        text = application(broker.bootstrap_servers, "billing", "orders")
        folder = tmp_path_factory.mktemp("dashboard")
        with WorkerProcess(folder, text, "--metrics-port", str(port)) as worker:
            worker.wait_ready()
            send(broker.bootstrap_servers, "orders", ["a", "b"])
            worker.wait_noted("end a", "end b")
            yield printed(broker.running.metrics.port), printed(port)


def expressions() -> list[tuple[str, str, str]]:
    """The title, the expression and the legend of each line of a panel."""
    return [
        (panel["title"], target["expr"], target["legendFormat"])
        for panel in PANELS
        for target in panel["targets"]
    ]


def shown() -> dict[str, set[str]]:
    """The labels that the dashboard uses, by the name of the samples."""
    used: dict[str, set[str]] = {}
    for _, expression, _ in expressions():
        grouping = ",".join(GROUPING.findall(expression))
        grouped = {label.strip() for label in grouping.split(",")} - {""}
        for name, selector in SELECTOR.findall(expression):
            used.setdefault(name, set()).update(LABEL.findall(selector), grouped)
    for variable in DASHBOARD["templating"]["list"]:
        for name, label in LABEL_VALUES.findall(str(variable["query"])):
            used.setdefault(name, set()).add(label)
    return used


def test_every_metric_of_the_dashboard_exists(endpoints: tuple[Endpoint, Endpoint]) -> None:
    existing = {name for endpoint in endpoints for name in endpoint.names()}
    assert shown().keys() - existing == set()
    assert len(shown()) > 50


def test_every_label_of_the_dashboard_exists(endpoints: tuple[Endpoint, Endpoint]) -> None:
    """Metrics of events that did not happen have no samples, so their declarations count."""
    labels = {
        f"{family.name}{suffix}": {*family.labels, "le"}
        for family in (*BROKER_FAMILIES, *WORKER_FAMILIES)
        for suffix in ("", "_bucket", "_count", "_sum")
    }
    for endpoint in endpoints:
        assert len(endpoint.labels.keys() & shown().keys()) > 10
        labels |= endpoint.labels
    wrong = {name: used - labels[name] - OF_PROMETHEUS for name, used in shown().items()}
    assert {name: unknown for name, unknown in wrong.items() if unknown} == {}


def test_every_metric_is_shown_or_has_a_reason(endpoints: tuple[Endpoint, Endpoint]) -> None:
    ours = {
        name
        for endpoint in endpoints
        for name in endpoint.types
        if name.startswith(("sharegroup_", "kafka_"))
    }
    in_panels = {
        endpoint.metric_of(name)
        for name in shown()
        for endpoint in endpoints
        if name in set(endpoint.names())
    }
    assert ours - in_panels - NOT_SHOWN.keys() == set(), "show them, or give a reason here"
    assert NOT_SHOWN.keys() - ours == set(), "these are no metrics any more"
    assert NOT_SHOWN.keys() & in_panels == set(), "these are shown: they need no reason"


def test_conditions_to_be_alerted_of_are_shown() -> None:
    """Those of docs/metrics.md: an operator who is alerted looks at the dashboard."""
    conditions = re.findall(r"((?:sharegroup|kafka)_\w+)", ALERTS)
    assert len(conditions) >= 6
    for name in conditions:
        assert name in shown() or f"{name}_bucket" in shown(), name


def test_legends_name_labels_that_remain() -> None:
    """A sum keeps only the labels that it is grouped by."""
    for title, expression, legend in expressions():
        groupings = GROUPING.findall(expression)
        kept = {label.strip() for grouping in groupings for label in grouping.split(",")}
        used = set(re.findall(r"\{\{(\w+)\}\}", legend))
        if re.match(r"(sum|max|histogram_quantile)\b", expression):
            assert used <= kept - {"le"}, (title, expression, legend)


def test_panels_are_complete_and_do_not_overlap() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)
    for panel in PANELS:
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}", panel["title"]
            assert target["expr"].count("(") == target["expr"].count(")"), panel["title"]
    for one, other in combinations(panels, 2):
        assert not overlap(one["gridPos"], other["gridPos"]), (one["title"], other["title"])


def overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    def crosses(place: str, size: str) -> bool:
        return bool(
            one[place] < other[place] + other[size] and other[place] < one[place] + one[size]
        )

    return crosses("x", "w") and crosses("y", "h")


def test_metrics_of_a_process_are_chosen_by_its_own_variable() -> None:
    """A worker's metrics are not restricted to the chosen brokers, and the other way round."""
    for title, expression, _ in expressions():
        for name, selector in SELECTOR.findall(expression):
            variable = "worker" if name.startswith("sharegroup_worker_") else "broker"
            assert f'instance=~"${variable}"' in selector, (title, expression)
