"""The effective settings of a consumer group of KIP-848: its own, or else the broker's."""

from __future__ import annotations

from sharegroup.broker.configuration.config import GroupConfig
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.broker.configuration.modern_group_config import ASSIGNOR_CLASSES
from sharegroup.core.groups.consumer.advance import ModernGroupLimits
from sharegroup.core.groups.consumer.sizes import ModernGroupSizeLimits


def modern_group_limits(config: LiveConfig, own: GroupConfig) -> ModernGroupLimits:
    """Return the limits of a group with these own settings."""
    broker = config.modern_group
    interval_ms = own.consumer_assignment_interval_ms
    policy = broker.migration_policy.lower()
    return ModernGroupLimits(
        session_timeout_ms=own.consumer_session_timeout_ms or broker.session_timeout_ms,
        heartbeat_interval_ms=own.consumer_heartbeat_interval_ms or broker.heartbeat_interval_ms,
        members_max=broker.members_max,
        assignment_interval_ms=(
            broker.assignment_interval_ms if interval_ms is None else interval_ms
        ),
        assignors=tuple(ASSIGNOR_CLASSES.get(name, name) for name in broker.assignors),
        upgrades=policy in ("bidirectional", "upgrade"),
        downgrades=policy in ("bidirectional", "downgrade"),
        classic_members_max=config.consumer_group.members_max,
        sizes=ModernGroupSizeLimits(broker.member_topics_max, broker.groups_bytes_max),
    )
