"""Detects that a member of a share group receives nothing although the application waits.

To an application, no records and no access to records look the same.  A member is idle while it
wants records and no broker answers its fetches, with or without records.  A member without an
assigned partition sends no fetches, so it is idle too.

After `IDLE_SECONDS` the log says once what the member knows, and says once when it resumes.  A
member without partitions also makes the coordinator repeat the assignment, in case it was lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import IdlePeriod
from sharegroup.client.share.member.assigned_partitions import AssignedPartitions
from sharegroup.client.share.member.membership import Heartbeats, Membership
from sharegroup.errors import KafkaError

log = logging.getLogger(__name__)

IDLE_SECONDS = 15.0
LOOK_SECONDS = 1.0
AWAY_SECONDS = 5.0
"""Time without a request for records after which the application does not count as waiting."""
ERRORS_MAX = 10
"""Number of brokers whose last error is kept; the least recent failure is dropped first."""


class Idleness:
    """Watches one member, and logs when it becomes idle and when it resumes."""

    def __init__(
        self,
        cluster: Cluster,
        membership: Membership,
        heartbeats: Heartbeats,
        assigned: AssignedPartitions,
        *,
        wants: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self._membership = membership
        self._heartbeats = heartbeats
        self._assigned = assigned
        self._wants = wants
        self.idle_seconds = IDLE_SECONDS
        """How long a member is idle before the log says so; tests shorten it."""
        self.look_seconds = LOOK_SECONDS
        """The time between two looks."""
        self._since: float | None = None
        """The time at which the member became idle; None while it is not."""
        self._fetched = False
        """Whether a fetch was answered since the last look."""
        self._told_seconds = 0.0
        """The idle time at the last look, if the idle period was logged; otherwise 0."""
        self._repeat_at = 0.0
        self._errors: dict[int, KafkaError] = {}
        self.seconds = 0.0
        """The idle time at the last look; 0 if the member was not idle."""
        self.wait_seconds = 0.0
        """Maximum time that a broker may park a fetch."""
        self.period: IdlePeriod | None = None
        """The present idle period, once the log has said so; None if the member is not idle."""

    def fetched(self, node_id: int) -> None:
        """Note that a broker answered a fetch."""
        self._fetched = True
        self._errors.pop(node_id, None)

    def failed(self, node_id: int, error: KafkaError) -> None:
        """Note that a fetch from this broker failed."""
        self._errors.pop(node_id, None)
        self._errors[node_id] = error
        if len(self._errors) > ERRORS_MAX:
            del self._errors[next(iter(self._errors))]

    async def run(self) -> None:
        """Call `look` every ``look_seconds`` until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self.look(loop.time())
            await asyncio.sleep(self.look_seconds)

    def look(self, now: float) -> None:
        """Check whether the member is idle; log the start and the end of an idle period."""
        fetched, self._fetched = self._fetched, False
        if fetched and self._told_seconds:
            log.info("event=member.resumed %s idle_seconds=%.0f", self._name(), self._told_seconds)
            self._told_seconds = 0.0
        if fetched or not self._wants():
            self._since, self.seconds, self.period = None, 0.0, None
            return
        if self._since is None:
            self._since = self._repeat_at = now
        self.seconds = now - self._since
        # A broker without new records answers only when `wait_seconds` have passed.
        if self.seconds < self.idle_seconds + self.wait_seconds:
            return
        self.period = IdlePeriod(self.seconds, self._knowledge(now))
        if not self._told_seconds:
            details = (self._name(), self.seconds, self.period.knowledge)
            log.warning("event=member.idle %s idle_seconds=%.0f %s", *details)
        self._told_seconds = self.seconds
        if not self._membership.assignment and now >= self._repeat_at:
            self._membership.unanswered()
            self._repeat_at = now + self.idle_seconds

    def _name(self) -> str:
        return f"group={self._membership.group_id} member={self._membership.member_id}"

    def _knowledge(self, now: float) -> str:
        membership = self._membership
        errors = [f"node {node_id}: {error!r}" for node_id, error in self._errors.items()]
        if self._heartbeats.last_error is not None:
            errors.append(f"coordinator: {self._heartbeats.last_error!r}")
        if (problem := self._assigned.metadata_problem(now)) is not None:
            errors.append(f"metadata: {problem}")
        if membership.assignment:
            advice = "no fetch succeeded: check the errors and the leaders of the partitions"
        else:
            advice = (
                "no partition is assigned: check that the topics exist; after the failure of a "
                "broker, a coordinator may need group.share.initialize.retry.interval.ms, 30 s"
            )
        return (
            f"topics={','.join(membership.subscription)} "
            f"coordinator={self._cluster.known_coordinator(membership.group_id)} "
            f"epoch={membership.epoch} assigned={len(membership.assignment)} "
            f"without_leader={self._assigned.leaderless_count()} errors=[{'; '.join(errors)}] "
            f"action={advice!r}"
        )
