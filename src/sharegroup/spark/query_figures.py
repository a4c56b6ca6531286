"""Figures of a streaming query, computed from Spark's progress reports.

Spark asks a Python source for one value only, `reportLatestOffset`; it has no call for metrics of
a source, so ``sources[].metrics`` of a progress report stays empty.  The reader therefore puts its
figures into that value, as JSON.  They are counted since the reader started, and each run of a
query starts a reader.  So rates and increments are computed here, from two reports of one run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any

COUNTED = (
    *("acquired", "redelivered", "accepted", "released", "rejected", "gone"),
    *("recognised", "lostAcknowledgements"),
)
"""The figures of the reader that only grow."""
OUTCOMES = ("accepted", "released", "rejected")
RUNS_MAX = 1_000
"""Runs whose last report is remembered; of the oldest ones it is forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFigures:
    """The figures of one ``kafka-share`` source of a query."""

    group: str
    lag: int | None
    """Records of the group that are not settled, in all partitions; None until it is known."""
    held: int
    carried: int
    idle_seconds: int
    """How long no broker has answered the reader; 0 unless the reader has warned of it."""
    idle_cause: str
    """What the reader knows about the cause, and what to do; empty if it is not idle."""
    states: Mapping[str, int]
    """Records of the group by state, with the option ``reportStates``; empty until they are known.

    The states are available, acquired, delayed and archiving."""
    states_cause: str
    """Why they are missing or incomplete; otherwise empty."""
    counts: Mapping[str, int]
    """By the names of `COUNTED`, since the reader started."""
    added: Mapping[str, int]
    """By the same names, since the previous report."""
    per_second: Mapping[str, float]
    """By the same names, since the previous report; 0 in the first one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFigures:
    """The figures of a query at one progress report."""

    query_id: str
    run_id: str
    name: str
    """The name of the query, or its id."""
    at: float
    """When the trigger began, in seconds since 1970."""
    batch_id: int
    is_idle: bool
    """Whether the trigger found no new records, so there was no batch."""
    rows: int
    rows_per_second: float
    """The rows of the batch by the duration of the trigger."""
    batch_ms: int
    phases_ms: Mapping[str, int]
    """The duration of each phase of the trigger, by Spark's names."""
    groups: tuple[GroupFigures, ...]


@dataclass(slots=True)
class _Last:
    """The last report of a run."""

    at: float
    counts: dict[int, Mapping[str, int]] = field(default_factory=dict)
    """By the index of the source."""


class Progress:
    """Computes figures from the progress reports of any number of queries."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[str, _Last] = {}

    def figures(self, report: Mapping[str, Any], *, is_idle: bool = False) -> QueryFigures | None:
        """Return the figures of a report; None if the query has no source ``kafka-share``."""
        run_id = str(report["runId"])
        at = datetime.fromisoformat(report["timestamp"]).timestamp()
        # `_remember` adds it again at the end, so the runs without reports for longest come first.
        last = self._last.pop(run_id, None)
        now = _Last(max(at, last.at) if last else at)
        groups = []
        for index, source in enumerate(report["sources"]):
            own = reader_figures(source)
            if own is None:
                continue
            before = last.counts.get(index, {}) if last else {}
            # An idle report is the newest one when it is made, and the reports of earlier batches
            # may come after it. Counters that went back would refuse the figures, and then count
            # the same records twice.
            counts = {name: max(int(own[name]), before.get(name, 0)) for name in COUNTED}
            now.counts[index] = counts
            groups.append(_group(own, counts, index, now, last))
        if not groups:
            return None
        self._remember(run_id, now)
        batch_ms = int(report["durationMs"].get("triggerExecution", 0))
        rows = 0 if is_idle else int(report["numInputRows"] or 0)
        return QueryFigures(
            query_id=str(report["id"]),
            run_id=run_id,
            name=report["name"] or str(report["id"]),
            at=at,
            batch_id=int(report["batchId"]),
            is_idle=is_idle,
            rows=rows,
            rows_per_second=rows / batch_ms * 1000 if batch_ms else 0.0,
            batch_ms=batch_ms,
            phases_ms=MappingProxyType(dict(report["durationMs"])),
            groups=tuple(groups),
        )

    def forget(self, run_id: str) -> None:
        """Forget a run that has ended."""
        self._last.pop(run_id, None)

    def _remember(self, run_id: str, now: _Last) -> None:
        self._last[run_id] = now
        while len(self._last) > RUNS_MAX:
            del self._last[next(iter(self._last))]


def reader_figures(source: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the figures that the reader of a source has reported; None for other sources."""
    text = source["latestOffset"]
    if not text or not text.startswith("{"):
        return None
    try:
        reported = json.loads(text)
    except (ValueError, RecursionError):
        return None  # Sources of others may report any text.
    is_ours = isinstance(reported, dict) and {"group", "held", *COUNTED} <= reported.keys()
    return reported if is_ours else None


def _group(
    own: Mapping[str, Any], counts: Mapping[str, int], index: int, now: _Last, last: _Last | None
) -> GroupFigures:
    before = last.counts.get(index, {}) if last else {}
    added = {name: count - before.get(name, 0) for name, count in counts.items()}
    seconds = now.at - last.at if last else 0.0
    return GroupFigures(
        group=own["group"],
        lag=own["lag"],
        held=own["held"],
        carried=own["carried"],
        # A reader of an earlier version reports neither.
        idle_seconds=own.get("idleSeconds", 0),
        idle_cause=own.get("idleCause") or "",
        states=MappingProxyType(own.get("states") or {}),
        states_cause=own.get("statesCause") or "",
        counts=MappingProxyType(dict(counts)),
        added=MappingProxyType(added),
        per_second=MappingProxyType(
            {name: number / seconds if seconds > 0 else 0.0 for name, number in added.items()}
        ),
    )
