"""What holds for a group: its own settings, or else the broker's; kept until one changes."""

from __future__ import annotations

import logging

from sharegroup.broker.cluster.catalog import Catalog
from sharegroup.broker.cluster.features import DEAD_LETTERS_LEVEL, SHARE_VERSION, Features
from sharegroup.broker.configuration.config import GroupConfig
from sharegroup.broker.configuration.group_config import DEFAULT_DEAD_LETTERS
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.broker.configuration.setting_changes import capped
from sharegroup.core.delivery import Limits
from sharegroup.core.share_group_heartbeat import GroupLimits
from sharegroup.ids import GroupId, TopicName

log = logging.getLogger(__name__)

GROUPS_KEPT_MAX = 10_000
"""Beyond this many groups the memory is begun anew: a client may name groups without end."""


class GroupSettings:
    """See the module's text."""

    __slots__ = ("_catalog", "_config", "_features", "_group_limits", "_limits", "_own")

    def __init__(self, config: LiveConfig, catalog: Catalog, features: Features) -> None:
        self._config = config
        self._catalog = catalog
        self._features = features
        self._own: dict[GroupId, GroupConfig] = {}
        self._limits: dict[GroupId, Limits] = {}
        self._group_limits: dict[GroupId, GroupLimits] = {}

    def own(self, group_id: GroupId) -> GroupConfig:
        """What the group set for itself, within the bounds that the broker has now.

        The broker's bounds may have moved since: then the nearest value holds, and a warning
        says so, once for each change of either.
        """
        known = self._own.get(group_id)
        if known is None:
            if len(self._own) >= GROUPS_KEPT_MAX:
                self.all_changed()
            stored = self._catalog.group_config(group_id)
            known, said = capped(stored, self._config.share_group)
            self._own[group_id] = known
            for name, what in said.items():
                log.warning("event=group_setting_capped group=%r %s: %s", group_id, name, what)
        return known

    def limits(self, group_id: GroupId) -> Limits:
        """What concerns the group's share partitions."""
        known = self._limits.get(group_id)
        if known is None:
            own, broker = self.own(group_id), self._config.share_group
            known = self._limits[group_id] = Limits(
                lock_ms=own.lock_ms or broker.lock_ms,
                delivery_count_max=own.delivery_count_max or broker.delivery_count_max,
                in_flight_max=own.in_flight_max or broker.in_flight_max,
                runs_max=broker.runs_max,
                renewal=own.renewal,
                dead_letters=self._has_dead_letters(group_id),
            )
        return known

    def group_limits(self, group_id: GroupId) -> GroupLimits:
        """What concerns the group's membership."""
        known = self._group_limits.get(group_id)
        if known is None:
            own, broker = self.own(group_id), self._config.share_group
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

    def reads_committed(self, group_id: GroupId) -> bool:
        """Whether the group is handed records of decided transactions only."""
        return self.own(group_id).isolation_level == "read_committed"

    def dead_letter_topic(self, group_id: GroupId) -> TopicName | None:
        """Where the group wants its dead letters; None: it wants none, or nobody writes them.

        Also when `share.version` allows no new ones: those that wait are written all the same.
        """
        if self._config.share_group.dead_letter_writer != DEFAULT_DEAD_LETTERS:
            return None
        name = self.own(group_id).dead_letter_topic
        return TopicName(name) if name else None

    def _has_dead_letters(self, group_id: GroupId) -> bool:
        """Whether new ones are written; an operator who wants them and has none is told why."""
        topic = self.dead_letter_topic(group_id)
        if topic is not None and not self._features.dead_letters:
            log.warning(
                "event=dead_letters_off group=%r topic=%r share.version=%d action='upgrade the "
                "feature share.version to %d'",
                group_id,
                topic,
                self._features.finalized.get(SHARE_VERSION, 0),
                DEAD_LETTERS_LEVEL,
            )
        return topic is not None and self._features.dead_letters

    def copies_dead_letters(self, group_id: GroupId) -> bool:
        """Whether a dead letter has what the record had, or only says where it is."""
        return self.own(group_id).dead_letter_copy

    def changed(self, group_id: GroupId) -> None:
        """The group's settings are others now."""
        self._own.pop(group_id, None)
        self._limits.pop(group_id, None)
        self._group_limits.pop(group_id, None)

    def all_changed(self) -> None:
        """The broker's settings, or its features, are others now."""
        self._own.clear()
        self._limits.clear()
        self._group_limits.clear()
