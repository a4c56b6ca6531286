"""Checks of what a member's request adds to its group of KIP-848; the limits are in `sizes`."""

from __future__ import annotations

from sharegroup.core.groups.consumer.group import PARTITION_BYTES, ModernGroup
from sharegroup.core.groups.consumer.member import ModernMember
from sharegroup.core.groups.consumer.sizes import (
    GROUP_BYTES_MAX,
    LABEL_CHARACTERS_MAX,
    ModernGroupSizeLimits,
    counted_bytes,
)
from sharegroup.core.security.principal import Principal
from sharegroup.core.shared_totals import SharedTotal
from sharegroup.errors import GroupMaxSizeReached, InvalidRequest
from sharegroup.ids import GroupId


def check_label(prefix: str, name: str, text: str | None) -> None:
    """Raise InvalidRequest for a text that the group would store and that is too long."""
    if text is not None and len(text) > LABEL_CHARACTERS_MAX:
        raise InvalidRequest(
            f"{prefix}: the {name} has at most {LABEL_CHARACTERS_MAX} characters, not {len(text)}"
        )


def check_growth(
    group: ModernGroup,
    member: ModernMember,
    *,
    partitions: int,
    pattern_bytes: int,
    is_known: bool,
    memory: SharedTotal[GroupId],
    user: Principal | None,
    limits: ModernGroupSizeLimits,
) -> None:
    """Raise GroupMaxSizeReached if ``member`` makes its group or all groups too large.

    ``partitions`` is the number of partitions that the group will assign, ``pattern_bytes`` the
    memory of a new pattern with the topics that it matches. ``is_known`` means that ``memory``, the
    total of all groups, includes the group. ``user`` may hold a part of it only.
    """
    more_partitions = max(partitions - group.partition_count, 0)
    growth = group.growth_with(member) + PARTITION_BYTES * more_partitions + pattern_bytes
    if growth <= 0:
        return
    size = group.size_bytes + growth
    prefix = f"group {group.group_id!r}, member {member.member_id!r}"
    if size > GROUP_BYTES_MAX:
        raise GroupMaxSizeReached(
            f"{prefix}: with its members, topic names and {partitions} partitions the group would "
            f"take {size} bytes, {GROUP_BYTES_MAX} are allowed"
        )
    added_bytes = counted_bytes(size) - (counted_bytes(group.size_bytes) if is_known else 0)
    if added_bytes:
        check_all_bytes(group.group_id, memory.used + added_bytes, limits)
        memory.check(group.group_id, user, added_bytes, limit=limits.all_bytes_max)


def check_all_bytes(group_id: GroupId, all_bytes: int, limits: ModernGroupSizeLimits) -> None:
    """Raise GroupMaxSizeReached if ``all_bytes`` for all groups are too many."""
    if all_bytes > limits.all_bytes_max:
        raise GroupMaxSizeReached(
            f"group {group_id!r}: all consumer groups of the consumer protocol would take "
            f"{all_bytes} bytes, {limits.all_bytes_max} are allowed; delete some"
        )
