"""The brokers: whether they answer, and the features and versions that each one supports.

Brokers of one cluster differ while it is upgraded, so each one is asked.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from sharegroup.client.admin.types import FeatureRange, Features
from sharegroup.console.pages.page import Page, Visit
from sharegroup.console.pages.tables import Column, table
from sharegroup.console.watch.cluster_view import BrokerView
from sharegroup.errors import KafkaError

BROKERS_ASKED_MAX = 50
ASKED_AT_ONCE_MAX = 8
ASK_SECONDS = 3.0
"""Time for an answer of one broker."""
ASK_ALL_SECONDS = 6.0
"""Time for the answers of all brokers."""

BROKERS = (
    Column("node_id", "Broker"),
    Column("address", "Address", "id"),
    Column("rack", "Rack", "text", narrow=False),
    Column("role", "Role", "text", narrow=False),
    Column("state", "State", "state"),
)
FEATURES = (
    Column("name", "Feature", "id"),
    Column("level", "Level", "number"),
    Column("ranges", "Supported", "list"),
)
REQUESTS = (Column("name", "Request", "id"), Column("ranges", "Versions", "list"))

ByName = Mapping[str, Mapping[int, FeatureRange]]
"""What brokers support: by name and broker."""


class Versions(NamedTuple):
    """What brokers said about themselves."""

    features: Mapping[int, Features]
    requests: Mapping[int, Mapping[str, FeatureRange]]
    unknown: Mapping[int, str]
    """Why a broker did not say it."""
    not_asked: int

    @property
    def levels(self) -> Mapping[str, int]:
        """The levels in effect, as the broker says that has the newest."""
        return max(
            self.features.values(), key=lambda found: found.finalized_epoch or 0, default=NOTHING
        ).finalized


NOTHING = Features({}, {}, None)


async def brokers(visit: Visit) -> Page:
    """Return the brokers, what they support, and what could not be read of the cluster."""
    view = visit.watcher.view
    rows = [_broker(broker) for broker in view.brokers]
    versions = await _versions(visit)
    levels = versions.levels
    supported = by_name({node: found.supported for node, found in versions.features.items()})
    served = by_name(versions.requests)
    features = [
        {"name": name, "level": levels.get(name, 0), "by_broker": supported[name]}
        for name in sorted(supported)
    ]
    requests = [{"name": name, "by_broker": served[name]} for name in sorted(served)]
    context = {
        "shown": table("brokers", BROKERS, rows, visit.query, sort="node_id",
                       empty="No broker answers."),
        "features": table("features", FEATURES, _with_ranges(features, len(versions.features)),
                          visit.query, sort="name",
                          empty="No broker has said which features it has."),
        "requests": table("requests", REQUESTS, _with_ranges(requests, len(versions.requests)),
                          visit.query, sort="name",
                          empty="No broker has said which requests it serves."),
        # Its own links lead to a page on which it is open.
        "is_open": any(name.startswith("requests-") for name in visit.query),
        "problems": view.problems,
        "unknown": versions.unknown,
        "not_asked": versions.not_asked,
    }  # fmt: skip
    data = {
        "brokers": rows,
        "problems": dict(view.problems),
        "features": features,
        "requests": requests,
        "versions_unknown": versions.unknown,
        "versions_not_asked": versions.not_asked,
    }
    return Page("brokers.html", "Brokers", context, data)


def _broker(broker: BrokerView) -> dict[str, Any]:
    return {
        "node_id": broker.node_id,
        "address": broker.address,
        "rack": broker.rack,
        "role": "controller" if broker.is_controller else "",
        "state": broker.error or ("fenced" if broker.is_fenced else "answers"),
    }


async def _versions(visit: Visit) -> Versions:
    """Ask the brokers that answer; they are in no live part, so an open page does not ask again."""
    if visit.is_live:
        return Versions({}, {}, {}, 0)
    answering = [
        broker.node_id
        for broker in visit.watcher.view.brokers
        if not (broker.error or broker.is_fenced)
    ]
    features: dict[int, Features] = {}
    requests: dict[int, Mapping[str, FeatureRange]] = {}
    unknown: dict[int, str] = {}
    turns = asyncio.Semaphore(ASKED_AT_ONCE_MAX)

    async def ask(node_id: int) -> None:
        async with turns:
            try:
                features[node_id] = await visit.admin.describe_features(
                    node_id, timeout=ASK_SECONDS
                )
                requests[node_id] = await visit.admin.describe_api_versions(
                    node_id, timeout=ASK_SECONDS
                )
            except KafkaError as error:
                unknown[node_id] = str(error)

    asked = answering[:BROKERS_ASKED_MAX]
    try:
        async with asyncio.timeout(ASK_ALL_SECONDS), asyncio.TaskGroup() as tasks:
            for node_id in asked:
                tasks.create_task(ask(node_id))
    except TimeoutError:
        late = f"no answer within {ASK_ALL_SECONDS:.0f} s"
        unknown |= {node_id: late for node_id in asked if node_id not in {**requests, **unknown}}
    return Versions(features, requests, unknown, len(answering) - len(asked))


def by_name(by_broker: Mapping[int, Mapping[str, FeatureRange]]) -> ByName:
    """Return what brokers support by name."""
    found: dict[str, dict[int, FeatureRange]] = defaultdict(dict)
    for node_id in sorted(by_broker):
        for name, supported in by_broker[node_id].items():
            found[name][node_id] = supported
    return found


def ranges(by_broker: Mapping[int, FeatureRange], asked: int) -> list[str]:
    """Return the ranges as texts; brokers are named unless all that were asked have the same."""
    nodes: dict[FeatureRange, list[int]] = defaultdict(list)
    for node_id, supported in by_broker.items():
        nodes[supported].append(node_id)
    if len(nodes) == 1 and len(by_broker) == asked:
        return [_range(next(iter(nodes)))]
    return [
        f"{_range(supported)} (broker {', '.join(map(str, of))})"
        for supported, of in sorted(nodes.items())
    ]


def _range(supported: FeatureRange) -> str:
    oldest, newest = supported
    return str(newest) if oldest == newest else f"{oldest} to {newest}"


def _with_ranges(rows: list[dict[str, Any]], asked: int) -> list[dict[str, Any]]:
    return [{**row, "ranges": ranges(row["by_broker"], asked)} for row in rows]
