"""The metrics of several processes on one page, read as Prometheus reads them."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from sharegroup.worker.supervision.merged_metrics import merged, metrics_pages
from sharegroup.worker.supervision.pages import health_pages
from tests.unit.worker.supervision.acted_children import Scene, play

FIRST = """\
# HELP handled_total Runs.
# TYPE handled_total counter
handled_total{group="a",outcome="failed"} 2.0
# HELP up Whether.
# TYPE up gauge
up 1.0
"""
SECOND = """\
# HELP up Whether.
# TYPE up gauge
up 0.0
# HELP handled_total Runs.
# TYPE handled_total counter
handled_total{group="a",outcome="failed"} 3.0
# HELP own_total Of the second alone.
# TYPE own_total counter
own_total{} 1.0
"""


def test_samples_have_the_process_and_each_family_is_described_once() -> None:
    assert merged({1: FIRST, 3: SECOND}) == (
        "# HELP handled_total Runs.\n"
        "# TYPE handled_total counter\n"
        'handled_total{process="1",group="a",outcome="failed"} 2.0\n'
        'handled_total{process="3",group="a",outcome="failed"} 3.0\n'
        "# HELP up Whether.\n"
        "# TYPE up gauge\n"
        'up{process="1"} 1.0\n'
        'up{process="3"} 0.0\n'
        "# HELP own_total Of the second alone.\n"
        "# TYPE own_total counter\n"
        'own_total{process="3"} 1.0\n'
    )
    assert merged({}) == ""


def test_label_of_the_application_with_the_same_name_is_kept_under_another() -> None:
    page = '# TYPE x gauge\nx{process="web",note="{process=\\"no\\"}"} 1\ny{a=",",process="w"} 2\n'
    assert merged({2: page}).splitlines()[1:] == [
        'x{process="2",exported_process="web",note="{process=\\"no\\"}"} 1',
        'y{process="2",a=",",exported_process="w"} 2',
    ]


def test_labels_stay_different_and_values_may_have_any_character() -> None:
    page = (
        '# HELP x Old.\n# TYPE x gauge\nx{process="a",exported_process="b"} 1\n'
        'x{exported_process="b",note="1\x0b\x1c\x85\u2028\r2"} 2\n'
    )
    newer = "# HELP x New.\n# TYPE x gauge\n"
    assert merged({1: newer, 2: page, 3: newer}) == (
        "# HELP x New.\n# TYPE x gauge\n"
        'x{process="2",exported_exported_process="a",exported_process="b"} 1\n'
        'x{process="2",exported_process="b",note="1\x0b\x1c\x85\u2028\r2"} 2\n'
    )


def test_every_value_of_a_real_page_is_found_again() -> None:
    registry = CollectorRegistry()
    Counter("runs", "Runs, with a \\ and\na line.", ["group"], registry=registry).labels(
        '"\n\\'
    ).inc()
    Gauge("size", "Size.", registry=registry).set(float("nan"))
    Histogram("seconds", "Time.", ["process"], registry=registry).labels("p").observe(0.3)
    page = generate_latest(registry).decode()
    before = [s for f in text_string_to_metric_families(page) for s in f.samples]
    families = list(text_string_to_metric_families(merged({1: page, 2: page})))
    after = [s for f in families for s in f.samples]
    assert len(after) == 2 * len(before) > 20
    assert {s.labels["process"] for s in after} == {"1", "2"}
    assert {f.type for f in families} == {"counter", "gauge", "histogram"}
    of_first = [(s.name, own_labels(s.labels)) for s in after if s.labels["process"] == "1"]
    assert of_first == [(s.name, s.labels) for s in before]


def own_labels(labels: dict[str, str]) -> dict[str, str]:
    own = {name: value for name, value in labels.items() if name != "process"}
    return {name.removeprefix("exported_"): value for name, value in own.items()}


def test_pages_of_a_supervisor() -> None:
    async def scene() -> None:
        acted = Scene(2)
        await asyncio.sleep(1)
        pages = health_pages(acted.supervisor, {"module": "shop:app"})
        ready = await pages["/ready"]()
        assert (ready.status, ready.body) == (200, b"running; 2 of 2 processes are ready\n")
        assert (await pages["/2/live"]()).body == b"/live of 2\n"
        assert (await pages["/3/live"]()).status == 503
        acted.children[0].end(-9)
        await asyncio.sleep(0.1)
        ready = await pages["/ready"]()
        assert (ready.status, ready.body) == (503, b"running; 1 of 2 processes are ready\n")
        assert (await pages["/live"]()).status == 200
        metrics = (await metrics_pages(acted.supervisor)["/metrics"]()).body
        assert isinstance(metrics, bytes)
        assert b'sharegroup_worker_processes{which="wanted"} 2\n' in metrics
        assert b'sharegroup_worker_processes{which="ready"} 1\n' in metrics
        assert b'sharegroup_worker_processes_replaced_total{reason="ended"} 1\n' in metrics
        assert await acted.stopped() == 0

    play(scene)
