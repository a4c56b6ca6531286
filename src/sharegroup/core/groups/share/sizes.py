"""Limits on what clients can make share groups store: topic names, ids, and memory in total.

Every limit is checked before a heartbeat changes anything, and only if the heartbeat makes its
group larger. State loaded from a log is never refused: a data directory that was written before
there were limits loads, and its groups serve their members and can be deleted.

Sizes are estimates of resident memory, rounded up. A subscription counts once in its group, because
members that subscribe to the same topics share one tuple of names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sharegroup.errors import GroupMaxSizeReached, InvalidGroupId, InvalidRequest
from sharegroup.ids import GroupId, TopicName

if TYPE_CHECKING:
    # The start of a broker needs the limits alone.
    from sharegroup.core.groups.share.share_group import ShareGroup, ShareGroupMember

GROUP_ID_CHARACTERS_MAX = 249
"""Number of characters in the id of a new group: that of a topic name."""

TOPIC_NAMES_MAX = 5_000
"""Number of topics that one member may subscribe to, by default."""

GROUP_BYTES_MAX = 2 * 1024 * 1024
"""Memory of one group; each heartbeat looks at all names that its members subscribe to."""

GROUP_ROOM_BYTES = 8 * 1024
"""Memory that is reserved for every group; a smaller group counts as much.

So a few members of a group can join it again, even if other groups have taken all the rest.
"""

ALL_BYTES_MAX = 40 * 1024 * 1024
"""Memory of all share groups, by default."""

ALL_PARTITIONS_MAX = 200_000
"""Number of share partitions of all groups, by default."""


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """The largest permitted sizes of members and groups."""

    topic_names_max: int = TOPIC_NAMES_MAX
    all_bytes_max: int = ALL_BYTES_MAX
    all_partitions_max: int = ALL_PARTITIONS_MAX


DEFAULT_SIZE_LIMITS = SizeLimits()

NO_SIZE_LIMITS = SizeLimits(2**31 - 1, 2**63 - 1, 2**31 - 1)
"""Limits that no group reaches."""


def check_partitions(group_id: GroupId, *, count: int, more: int, limits: SizeLimits) -> None:
    """Raise GroupMaxSizeReached if ``more`` share partitions are too many for all groups."""
    if more and count + more > limits.all_partitions_max:
        raise GroupMaxSizeReached(
            f"group {group_id!r}: with {more} share partitions more all groups would have "
            f"{count + more}, {limits.all_partitions_max} are allowed"
        )


def check_new_group(group_id: GroupId) -> None:
    """Raise InvalidGroupId if no new group may have this id."""
    if len(group_id) > GROUP_ID_CHARACTERS_MAX:
        raise InvalidGroupId(
            f"a group id has at most {GROUP_ID_CHARACTERS_MAX} characters, not {len(group_id)}"
        )


def check_names(named: str, names: Sequence[TopicName] | None, limits: SizeLimits) -> None:
    """Raise InvalidRequest for a subscription to too many topics.

    A name that no topic can have is not refused: such a topic does not exist, as in Kafka.
    """
    if names is not None and len(names) > limits.topic_names_max:
        raise InvalidRequest(
            f"{named}: a member may subscribe to at most {limits.topic_names_max} topics, not "
            f"{len(names)}"
        )


def check_size(
    group: ShareGroup,
    member: ShareGroupMember,
    *,
    is_known: bool,
    all_bytes: int,
    limits: SizeLimits,
) -> int:
    """Return the bytes that ``member`` adds to the total of all groups.

    Raises GroupMaxSizeReached if it makes its group or all groups too large. ``is_known`` means
    that ``all_bytes`` includes the group.
    """
    prefix = f"group {group.group_id!r}, member {member.member_id!r}"
    growth = group.growth_with(member)
    if growth <= 0:
        return 0
    size = group.size_bytes + growth
    added_bytes = counted_bytes(size) - (counted_bytes(group.size_bytes) if is_known else 0)
    if size > GROUP_BYTES_MAX:
        raise GroupMaxSizeReached(
            f"{prefix}: with its ids and topic names the group would take {size} bytes, "
            f"{GROUP_BYTES_MAX} are allowed"
        )
    if added_bytes:
        check_all_bytes(group.group_id, all_bytes + added_bytes, limits)
    return added_bytes


def counted_bytes(size_bytes: int) -> int:
    """Return the bytes that a group of this size counts in the total of all groups."""
    return max(size_bytes, GROUP_ROOM_BYTES)


def check_all_bytes(group_id: GroupId, all_bytes: int, limits: SizeLimits) -> None:
    """Raise GroupMaxSizeReached if ``all_bytes`` for all share groups are too many."""
    if all_bytes > limits.all_bytes_max:
        raise GroupMaxSizeReached(
            f"group {group_id!r}: with its ids and topic names all share groups would take "
            f"{all_bytes} bytes, {limits.all_bytes_max} are allowed; delete some"
        )
