"""What holds for a group: its own settings, or else the broker's; kept until one changes."""

from __future__ import annotations

from sharegroup.broker.catalog import Catalog
from sharegroup.broker.config import GroupConfig
from sharegroup.broker.live_config import LiveConfig
from sharegroup.core.delivery import Limits
from sharegroup.core.share_group_heartbeat import GroupLimits
from sharegroup.ids import GroupId

GROUPS_KEPT_MAX = 10_000
"""Beyond this many groups the memory is begun anew: a client may name groups without end."""


class GroupSettings:
    """See the module's text."""

    __slots__ = ("_catalog", "_config", "_group_limits", "_limits")

    def __init__(self, config: LiveConfig, catalog: Catalog) -> None:
        self._config = config
        self._catalog = catalog
        self._limits: dict[GroupId, Limits] = {}
        self._group_limits: dict[GroupId, GroupLimits] = {}

    def limits(self, group_id: GroupId) -> Limits:
        """What concerns the group's share partitions."""
        known = self._limits.get(group_id)
        if known is None:
            if len(self._limits) >= GROUPS_KEPT_MAX:
                self._limits.clear()
            own, broker = self._own(group_id), self._config.share_group
            known = self._limits[group_id] = Limits(
                lock_ms=own.lock_ms or broker.lock_ms,
                delivery_count_max=own.delivery_count_max or broker.delivery_count_max,
                in_flight_max=own.in_flight_max or broker.in_flight_max,
                runs_max=broker.runs_max,
                renewal=own.renewal,
            )
        return known

    def group_limits(self, group_id: GroupId) -> GroupLimits:
        """What concerns the group's membership."""
        known = self._group_limits.get(group_id)
        if known is None:
            if len(self._group_limits) >= GROUPS_KEPT_MAX:
                self._group_limits.clear()
            own, broker = self._own(group_id), self._config.share_group
            interval_ms = own.assignment_interval_ms
            known = self._group_limits[group_id] = GroupLimits(
                session_timeout_ms=own.session_timeout_ms or broker.session_timeout_ms,
                heartbeat_interval_ms=own.heartbeat_interval_ms or broker.heartbeat_interval_ms,
                members_max=broker.members_max,
                assignment_interval_ms=(
                    broker.assignment_interval_ms if interval_ms is None else interval_ms
                ),
            )
        return known

    def offset_reset(self, group_id: GroupId) -> str:
        """Where the group starts on a topic that is new to it."""
        return self._own(group_id).auto_offset_reset

    def changed(self, group_id: GroupId) -> None:
        """The group's settings are others now."""
        self._limits.pop(group_id, None)
        self._group_limits.pop(group_id, None)

    def all_changed(self) -> None:
        """The broker's settings are others now."""
        self._limits.clear()
        self._group_limits.clear()

    def _own(self, group_id: GroupId) -> GroupConfig:
        return self._catalog.group_config(group_id)
