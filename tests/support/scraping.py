"""One scrape of a broker's metrics, read by prometheus's own parser."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from tests.support.limits import HANGING_SECONDS


class Scrape:
    """The samples of one answer, by name and labels."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self._values: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in self.families.values():
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in self._values, f"{key} twice"
                self._values[key] = sample.value

    def __call__(self, name: str, **labels: str) -> float:
        """The value of one series; KeyError where there is none."""
        return self._values[name, frozenset(labels.items())]

    def all(self, name: str) -> Mapping[tuple[str, ...], float]:
        """The values of all series of a name, by the values of their labels."""
        return {
            tuple(value for _, value in sorted(labels)): number
            for (found, labels), number in self._values.items()
            if found == name
        }


def scrape(port: int) -> Scrape:
    """What ``GET /metrics`` answers."""
    with urllib.request.urlopen(
        f"http://127.0.0.1:{port}/metrics", timeout=HANGING_SECONDS
    ) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return Scrape(answer.read().decode())
