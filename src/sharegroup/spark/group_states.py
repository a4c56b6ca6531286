"""The records of a query's share group by state, for its progress reports (``reportStates``).

Our broker lists the runs of a group (`AdminClient.list_share_group_runs`); they are counted here in
the background, so no batch waits for them.  Apache Kafka does not tell the states: there the report
says so.  The share partitions are counted one after the other, so two of them are of different
moments, and the sum is not exactly the lag.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Any, Protocol

from sharegroup.client.records import TopicPartition
from sharegroup.errors import KafkaError, UnsupportedVersion
from sharegroup.share_runs.broker_runs import ListRuns, run_pages
from sharegroup.share_runs.share_runs import ACQUIRED, ARCHIVING, AVAILABLE, DELAYED

log = logging.getLogger(__name__)

STATES = (AVAILABLE, ACQUIRED, DELAYED, ARCHIVING)
"""The states of records that are not settled."""
REFRESH_SECONDS = 5.0
"""Time for which counts are recent enough, and maximum duration of a count."""
RUNS_MAX = 20_000
"""Maximum number of runs that are counted, by 20 requests."""


class Group(Protocol):
    """The part of `ShareRanges` that `GroupStates` uses."""

    async def share_partitions(self) -> Iterable[TopicPartition]: ...
    @property
    def list_share_group_runs(self) -> ListRuns: ...


class GroupStates:
    """The last count of a group's records by state."""

    __slots__ = (
        *("_asked_at", "_cause", "_counts", "_group", "_group_id", "_is_supported"),
        "_refresh_seconds",
    )

    def __init__(
        self, group: Group, group_id: str, *, refresh_seconds: float = REFRESH_SECONDS
    ) -> None:
        self._group = group
        self._group_id = group_id
        self._refresh_seconds = refresh_seconds
        self._asked_at = float("-inf")
        self._is_supported = True
        self._counts: dict[str, int] | None = None
        self._cause: str | None = None

    def report(self) -> dict[str, Any]:
        """Return the counts, or None, and why they are missing or incomplete."""
        return {"states": self._counts, "statesCause": self._cause}

    async def refresh(self) -> None:
        """Count the records again, unless the last count is recent or was not supported."""
        now = time.monotonic()
        if not self._is_supported or now - self._asked_at < self._refresh_seconds:
            return
        self._asked_at = now
        try:
            async with asyncio.timeout(REFRESH_SECONDS):
                await self._count()
        except UnsupportedVersion as error:
            self._is_supported = False
            self._counts, self._cause = None, str(error)
            log.warning(
                "event=states.unknown group=%s error=%r action='remove the option reportStates; "
                "the lag is known'",
                self._group_id,
                error,
            )
        except (KafkaError, TimeoutError) as error:
            # The last counts stay, as those of the lag do.
            self._cause = f"the last count failed: {error!r}"
            log.info("event=states.unknown group=%s error=%r", self._group_id, error)

    async def _count(self) -> None:
        counts = dict.fromkeys(STATES, 0)
        run_count = 0
        cause = None
        wanted = await self._group.share_partitions()
        pages = run_pages(self._group.list_share_group_runs, self._group_id, wanted)
        async for page in pages:
            for run in page.all_runs:
                if run.state in counts:
                    counts[run.state] += run.count
            run_count += len(page.runs)
            if run_count >= RUNS_MAX:
                cause = f"only the first {run_count:,} runs were counted"
                break
        self._counts, self._cause = counts, cause
