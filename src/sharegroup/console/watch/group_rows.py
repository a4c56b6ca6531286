"""A share group as a row, for the page, its JSON and the terminal."""

from __future__ import annotations

from typing import Any

from sharegroup.console.watch.cluster_view import GroupView
from sharegroup.console.watch.history import UNKNOWN, Histories

SPARK_MS = 15 * 60 * 1000


def group_row(group: GroupView, history: Histories, now_ms: int) -> dict[str, Any]:
    """Return a share group as a row, without its drawing."""
    age_ms = None
    if group.oldest_ms is not None and group.lag:
        age_ms = max(0, now_ms - group.oldest_ms)
    rate = history.of(group.group_id).settled_per_second()
    return {
        "group": group.group_id,
        "state": group.state,
        "members": len(group.members) if group.members_at is not None else None,
        "lag": group.lag,
        "oldest_age_ms": age_ms,
        "rate": None if rate is None else round(rate, 1),
        "topics": list(group.topics),
        "error": group.error,
    }


def recent_lags(group_id: str, history: Histories, now_ms: int) -> list[tuple[int, int]]:
    """Return the lag of a group in the last quarter of an hour, as (ms since 1970, records)."""
    points = history.of(group_id).since(now_ms - SPARK_MS)
    return [(point.at_ms, point.lag) for point in points if point.lag != UNKNOWN]
