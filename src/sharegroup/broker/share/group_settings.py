"""The effective settings of groups: a group's own or the broker's, cached until one changes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sharegroup.broker.cluster.catalog import Catalog
from sharegroup.broker.cluster.features import DEAD_LETTERS_LEVEL, SHARE_VERSION, FinalizedFeatures
from sharegroup.broker.configuration.config import GroupConfig
from sharegroup.broker.configuration.group_config import DEFAULT_DEAD_LETTERS
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.core.groups.share.sizes import GROUP_ID_CHARACTERS_MAX, SizeLimits
from sharegroup.ids import GroupId, TopicName

if TYPE_CHECKING:
    # Imported at first use, because a start of the broker does not need them.
    from sharegroup.core.delivery.breaker import BreakerLimits
    from sharegroup.core.delivery.delivery import SharePartitionLimits
    from sharegroup.core.delivery.redelivery import RedeliveryDelay
    from sharegroup.core.groups.share.heartbeat import ShareGroupLimits

log = logging.getLogger(__name__)

GROUPS_KEPT_MAX = 10_000
"""With more groups the cache is cleared, because a client may name any number of groups."""


class GroupSettings:
    """The effective settings of groups, cached."""

    __slots__ = ("_catalog", "_config", "_features", "_group_limits", "_limits", "_own")

    def __init__(self, config: LiveConfig, catalog: Catalog, features: FinalizedFeatures) -> None:
        self._config = config
        self._catalog = catalog
        self._features = features
        self._own: dict[GroupId, GroupConfig] = {}
        self._limits: dict[GroupId, SharePartitionLimits] = {}
        self._group_limits: dict[GroupId, ShareGroupLimits] = {}

    def own(self, group_id: GroupId) -> GroupConfig:
        """Return the group's own settings, within the broker's current bounds.

        The bounds may have changed since a value was set.  Then the nearest value is used, with a
        warning once for each change of either.
        """
        settings = self._own.get(group_id)
        if settings is None:
            # The other two caches have no other groups, because both ask for this one first.
            if len(self._own) >= GROUPS_KEPT_MAX:
                self.all_changed()
            # Imported at first use, because a start of the broker does not need it.
            from sharegroup.broker.configuration.setting_changes import capped

            stored = self._catalog.group_config(group_id)
            settings, warnings = capped(stored, self._config.share_group, self._config.modern_group)
            if _is_kept(group_id):
                self._own[group_id] = settings
            for name, warning in warnings.items():
                log.warning(
                    "event=group_setting_capped group=%r setting=%s reason=%r",
                    group_id,
                    name,
                    warning,
                )
        return settings

    def limits(self, group_id: GroupId) -> SharePartitionLimits:
        """Return the limits of the group's share partitions."""
        limits = self._limits.get(group_id)
        if limits is None:
            group, broker = self.own(group_id), self._config.share_group
            # Imported at first use, like `capped`.
            from sharegroup.core.delivery.delivery import SharePartitionLimits

            limits = SharePartitionLimits(
                lock_ms=group.lock_ms or broker.lock_ms,
                delivery_count_max=group.delivery_count_max or broker.delivery_count_max,
                in_flight_max=group.in_flight_max or broker.in_flight_max,
                # Not a setting of groups: it keeps a snapshot of the state small enough for a
                # record.
                runs_max=broker.runs_max,
                renewal=group.renewal,
                dead_letters=self._has_dead_letters(group_id),
                completion_records_max=broker.completion_records_max,
                completion_bytes_max=broker.completion_bytes_max,
                paused=group.paused,
                delay=_delay(group),
                breaker=_breaker(group),
                by_key=group.order_by == "key",
            )
            if _is_kept(group_id):
                self._limits[group_id] = limits
        return limits

    def group_limits(self, group_id: GroupId) -> ShareGroupLimits:
        """Return the limits of the group's membership."""
        limits = self._group_limits.get(group_id)
        if limits is None:
            group, broker = self.own(group_id), self._config.share_group
            interval_ms = group.assignment_interval_ms
            # Imported at first use, like `capped`.
            from sharegroup.core.groups.share.heartbeat import ShareGroupLimits
            from sharegroup.core.groups.share.wide import Width

            width = Width(broker.member_partitions_max, broker.partition_members_max)
            limits = ShareGroupLimits(
                session_timeout_ms=group.session_timeout_ms or broker.session_timeout_ms,
                heartbeat_interval_ms=group.heartbeat_interval_ms or broker.heartbeat_interval_ms,
                members_max=broker.members_max,
                sizes=SizeLimits(
                    topic_names_max=broker.member_topics_max,
                    all_bytes_max=broker.groups_bytes_max,
                    all_partitions_max=broker.share_partitions_max,
                ),
                assignment_interval_ms=(
                    # For an interval 0 is a value, too.
                    broker.assignment_interval_ms if interval_ms is None else interval_ms
                ),
                width=width if group.assignment == "wide" else None,
            )
            if _is_kept(group_id):
                self._group_limits[group_id] = limits
        return limits

    def reads_committed(self, group_id: GroupId) -> bool:
        """Return whether the group gets only records of committed transactions, or of none."""
        return self.own(group_id).isolation_level == "read_committed"

    def dead_letter_topic(self, group_id: GroupId) -> TopicName | None:
        """Return the group's dead-letter topic; None if it has none or the broker writes none.

        It is returned even if `share.version` allows no new dead letters, so waiting ones are
        written.
        """
        if self._config.share_group.dead_letter_writer != DEFAULT_DEAD_LETTERS:
            return None
        name = self.own(group_id).dead_letter_topic
        return TopicName(name) if name else None

    def _has_dead_letters(self, group_id: GroupId) -> bool:
        """Return whether records get dead letters; warn if only `share.version` prevents them."""
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
        """Return whether a dead letter contains a copy of the record, or only its position."""
        return self.own(group_id).dead_letter_copy

    def changed(self, group_id: GroupId) -> None:
        """Drop the cached settings of a group, because its settings changed."""
        self._own.pop(group_id, None)
        self._limits.pop(group_id, None)
        self._group_limits.pop(group_id, None)

    def all_changed(self) -> None:
        """Drop all cached settings, because the broker's settings or features changed."""
        self._own.clear()
        self._limits.clear()
        self._group_limits.clear()


def _breaker(group: GroupConfig) -> BreakerLimits | None:
    """Return the limits of the group's circuit breaker; None if it has none."""
    if group.breaker_percent == 0:
        return None
    # Imported at first use, like `capped`.
    from sharegroup.core.delivery.breaker import BreakerLimits

    return BreakerLimits(group.breaker_percent, group.breaker_window, group.breaker_pause_ms)


def _delay(group: GroupConfig) -> RedeliveryDelay | None:
    """Return the delay of records that the group's members release; None if they have none."""
    if group.redelivery_delay_ms == 0:
        return None
    # Imported at first use, like `capped`.
    from sharegroup.core.delivery.redelivery import RedeliveryDelay

    return RedeliveryDelay(group.redelivery_delay_ms, group.redelivery_delay_ms_max)


def _is_kept(group_id: GroupId) -> bool:
    """Return whether a group may be cached: a peer may name any number of ids of 32 KB."""
    return len(group_id) <= GROUP_ID_CHARACTERS_MAX
