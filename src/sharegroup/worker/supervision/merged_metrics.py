"""Puts the metrics of several processes on one page, in Prometheus' text format.

Each sample gets the label ``process`` with the number of its process.  Counters are not summed: a
process that starts again begins at 0, and a sum that falls by a part of itself is read as a restart
of the whole, which counts the others twice.  Prometheus does sum them: ``sum without (process)
(rate(...))``.

A label ``process`` of the application's own metrics becomes ``exported_process``, as Prometheus
does it with its own labels; if there is one of that name, too, with the prefix once more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sharegroup.http_endpoint import PROMETHEUS_TEXT, HttpResponse, Page
from sharegroup.worker.lifecycle.metrics_page import PATH
from sharegroup.worker.supervision.pages import asked, pages_of_each
from sharegroup.worker.supervision.supervisor import Supervisor
from sharegroup.worker.telemetry.prometheus import PROCESSES, REPLACED, MetricFamily

LABEL = "process"
_OWN = re.compile(rf'(?<=[{{,]){LABEL}="')
"""The label in samples of the application; a quote within a value has a backslash before it."""
EXPORTED = "exported_"
_FAMILY = re.compile(r"# (HELP|TYPE) (\S+)")
_SAMPLE = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)(\{)?(.*)", re.DOTALL)


class _Family:
    """The lines of one metric family."""

    __slots__ = ("comments", "samples")

    def __init__(self) -> None:
        self.comments: dict[str, str] = {}
        """The first line of each kind: a process of a newer version may have another text."""
        self.samples: list[str] = []


def metrics_pages(supervisor: Supervisor) -> dict[str, Page]:
    """The page with the metrics of all processes, and one for each."""

    async def metrics() -> HttpResponse:
        text = _own_metrics(supervisor) + merged(await asked(supervisor, PATH))
        return HttpResponse(200, text.encode(), PROMETHEUS_TEXT)

    return {PATH: metrics} | pages_of_each(supervisor, (PATH,))


def _own_metrics(supervisor: Supervisor) -> str:
    replaced = {str(reason): count for reason, count in supervisor.restart_counts.items()}
    counts = {"wanted": supervisor.count, "ready": supervisor.ready_count}
    return _family_text(PROCESSES, counts) + _family_text(REPLACED, replaced)


def _family_text(family: MetricFamily, values: Mapping[str, int]) -> str:
    (label,) = family.labels
    samples = "".join(
        f'{family.name}{{{label}="{key}"}} {value}\n' for key, value in values.items()
    )
    head = f"# HELP {family.name} {family.text}\n# TYPE {family.name} {family.kind}\n"
    return head + samples


def merged(pages: Mapping[int, str]) -> str:
    """Return the metrics of all processes as one page; ``pages`` has the page of each number."""
    families: dict[str, _Family] = {}
    for number, page in pages.items():
        family = _Family()  # Of samples before any description, which no library writes.
        for line in page.split("\n"):  # Values of labels may have other separators of lines.
            if (match := _FAMILY.match(line)) is not None:
                kind, name = match.groups()
                family = families.setdefault(name, _Family())
                family.comments.setdefault(kind, line)
            elif line and not line.startswith("#"):
                family.samples.append(_labelled(line, number))
    lines = [
        line
        for family in families.values()
        for line in (*family.comments.values(), *family.samples)
    ]
    return "".join(f"{line}\n" for line in lines)


def _labelled(sample: str, number: int) -> str:
    match = _SAMPLE.match(sample)
    if match is None:
        return sample
    name, opening, rest = match.groups()
    label = f'{LABEL}="{number}"'
    if opening is None:
        return f"{name}{{{label}}}{rest}"
    own = _renamed(f"{{{rest}")[1:]
    return f"{name}{{{label}{'' if own.startswith('}') else ','}{own}"


def _renamed(labels: str) -> str:
    """Return labels of the application without ours: it has another name there."""
    if _OWN.search(labels) is None:
        return labels
    name = f"{EXPORTED}{LABEL}"
    while re.search(rf'(?<=[{{,]){name}="', labels):
        name = f"{EXPORTED}{name}"
    return _OWN.sub(f'{name}="', labels)
