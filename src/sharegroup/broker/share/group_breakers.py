"""The circuit breakers of the groups that have one (`core.delivery.breaker`).

A group has one breaker for all of its share partitions, made when the group first looks for
records and forgotten with its share partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from operator import sub

from sharegroup.broker.clock import Alarm, Clock
from sharegroup.broker.share.live_share_partition import LiveSharePartition
from sharegroup.core.delivery.breaker import Breaker, BreakerLimits, BreakerState
from sharegroup.core.delivery.delivery import AcquireRequest
from sharegroup.ids import GroupId
from sharegroup.protocol_enums import AcquireMode

log = logging.getLogger(__name__)


class GroupBreakers:
    """Limits what members of a group acquire by how the group's last records ended."""

    __slots__ = ("_alarms", "_breakers", "_clock", "_on_room")

    def __init__(self, clock: Clock, on_room: Callable[[GroupId], None]) -> None:
        self._clock = clock
        self._on_room = on_room
        self._breakers: dict[GroupId, Breaker] = {}
        self._alarms: dict[GroupId, Alarm] = {}

    def __iter__(self) -> Iterator[tuple[GroupId, BreakerState]]:
        for group_id, breaker in list(self._breakers.items()):
            yield group_id, breaker.state

    def permitted(
        self, group_id: GroupId, wanted: AcquireRequest, limits: BreakerLimits
    ) -> AcquireRequest | None:
        """Return as much of a request as may be acquired now; None if nothing may be."""
        breaker = self._breakers.get(group_id)
        if breaker is None:
            breaker = self._breakers[group_id] = Breaker()
        room = breaker.room(limits, self._clock.now_ms())
        if room is None:
            return wanted
        if room == 0:
            # A fetch may wait for minutes, and would see only at its end that the pause is over.
            self._alarm(group_id).set(breaker.next_probe_ms(limits))
            return None
        # By record: otherwise the rest of the log batch would come with the probe.
        return wanted._replace(
            records_max=min(room, wanted.records_max), mode=AcquireMode.RECORD_LIMIT
        )

    def acquired(self, group_id: GroupId) -> None:
        """Note that a request that was permitted has acquired records."""
        if (breaker := self._breakers.get(group_id)) is not None:
            breaker.acquired(self._clock.now_ms())

    def note(self, live: LiveSharePartition, limits: BreakerLimits) -> None:
        """Note how records of a share partition ended since the last call for it."""
        outcomes, noted = live.state.outcomes, live.noted_outcomes
        live.noted_outcomes = outcomes
        group_id = live.key.group_id
        breaker = self._breakers.get(group_id)
        if breaker is None:
            return
        accepted, failed, absent = map(sub, outcomes, noted)
        if not breaker.settled(accepted, failed, limits, self._clock.now_ms(), absent=absent):
            return
        if breaker.state is BreakerState.OPEN:
            log.warning(
                "event=breaker_opened %s percent=%d window=%d pause_ms=%d action='delivery to the "
                "group stops; one record is delivered after each pause, until one is accepted'",
                live,
                limits.percent,
                limits.window,
                limits.pause_ms,
            )
            return
        if breaker.state is BreakerState.CLOSED:
            log.info("event=breaker_closed %s", live)
        self._on_room(group_id)

    def forget(self, group_id: GroupId) -> None:
        """Forget a group's breaker: without its share partitions, or because it has none now."""
        self._breakers.pop(group_id, None)
        if (alarm := self._alarms.pop(group_id, None)) is not None:
            alarm.stop()

    def stop(self) -> None:
        """Stop all alarms."""
        for alarm in self._alarms.values():
            alarm.stop()

    def _alarm(self, group_id: GroupId) -> Alarm:
        """Return the alarm of a group with fetches that were refused; it wakes them."""
        alarm = self._alarms.get(group_id)
        if alarm is None:
            alarm = Alarm(self._clock, lambda: self._on_room(group_id))
            self._alarms[group_id] = alarm
        return alarm
