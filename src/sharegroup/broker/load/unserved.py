"""Log lines about requests for features that this broker does not serve.

A client that needs such a feature may repeat its request for as long as it runs. So each feature
has one line at a time, with the number of requests since the line before.
"""

from __future__ import annotations

import logging

from sharegroup.broker.clock import Clock

log = logging.getLogger(__name__)

LINE_INTERVAL_MS = 60_000
"""Milliseconds between two log lines about the same feature."""

QUOTED_CHARACTERS_MAX = 128
"""Characters of a client's or a resource's name in a log line."""


class UnservedFeatures:
    """Counts refused requests by feature, and logs the first one of each interval."""

    __slots__ = ("_clock", "_quiet_until_ms", "_refused")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._quiet_until_ms: dict[str, int] = {}
        self._refused: dict[str, int] = {}

    def refused(self, feature: str, *, client_id: str, name: str) -> None:
        """Count one request. ``feature`` is one of few constants; a client chose ``name``."""
        count = self._refused[feature] = self._refused.get(feature, 0) + 1
        now_ms = self._clock.now_ms()
        if now_ms < self._quiet_until_ms.get(feature, now_ms):
            return
        self._quiet_until_ms[feature] = now_ms + LINE_INTERVAL_MS
        self._refused[feature] = 0
        log.warning(
            "event=feature_not_served feature=%s client=%r name=%r requests=%d",
            feature,
            client_id[:QUOTED_CHARACTERS_MAX],
            name[:QUOTED_CHARACTERS_MAX],
            count,
        )
