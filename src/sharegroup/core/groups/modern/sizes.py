"""Limits on what clients can make consumer groups of KIP-848 store.

Every limit is checked before a request changes anything, and only if it makes the group larger.
State loaded from a log is never refused. Sizes are estimates of resident memory, rounded up.
"""

from __future__ import annotations

from dataclasses import dataclass

from sharegroup.core.shared_totals import SharedTotal
from sharegroup.errors import GroupMaxSizeReached
from sharegroup.ids import GroupId

LABEL_CHARACTERS_MAX = 249
"""Number of characters of a member id, an instance id and a rack id; that of a topic name."""

TOPIC_NAMES_MAX = 5_000
"""Number of topics that one member may subscribe to by name, by default."""

PATTERNS_MAX = 50
"""Number of different regular expressions of one group."""

GROUP_BYTES_MAX = 8 * 1024 * 1024
"""Memory of one group, with its assigned partitions: about 20,000 of them."""

GROUP_ROOM_BYTES = 8 * 1024
"""Memory that is reserved for every group; a smaller group counts as much."""

ALL_BYTES_MAX = 8 * 1024 * 1024
"""Memory of all groups, by default."""


@dataclass(frozen=True, slots=True)
class ModernGroupSizeLimits:
    """The largest permitted sizes of members and groups."""

    topic_names_max: int = TOPIC_NAMES_MAX
    all_bytes_max: int = ALL_BYTES_MAX


DEFAULT_SIZE_LIMITS = ModernGroupSizeLimits()


def memory_of_groups(user_percent: int = 100) -> SharedTotal[GroupId]:
    """Return the empty total of the memory of all groups, of which a user may hold a part."""
    name = "bytes of groups of the consumer protocol"
    return SharedTotal(name, "group", GroupMaxSizeReached, user_percent)


def counted_bytes(size_bytes: int) -> int:
    """Return the bytes that a group of this size counts in the total of all groups."""
    return max(size_bytes, GROUP_ROOM_BYTES)
