"""Limits on what clients can make all consumer groups store together, and on one group's record.

Every limit is checked before a request changes anything. State loaded from a log is never refused.
The configuration of the broker has other limits (`ClassicGroupLimits`), as has the memory of
committed offsets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sharegroup.core.shared_totals import SharedTotal
from sharegroup.errors import InvalidCommitOffsetSize, PolicyViolation
from sharegroup.ids import GroupId

GROUPS_MAX = 20_000
PENDING_MAX = 10_000
"""Number of pending member ids in all groups."""

GROUP_BYTES_MAX = 8 * 1024 * 1024
"""Memory of all members of one group, with metadata and assignments; one record has it all."""

ALL_BYTES_MAX = 16 * 1024 * 1024
"""Memory of the members of all groups."""

ALL_OFFSETS_BYTES_MAX = 16 * 1024 * 1024
"""Memory of the offsets of all groups, by default: about 50,000 offsets without metadata."""


@dataclass(frozen=True, slots=True)
class ClassicGroupSizeLimits:
    """The largest permitted sizes and numbers of groups and members."""

    groups_max: int = GROUPS_MAX
    pending_max: int = PENDING_MAX
    group_bytes_max: int = GROUP_BYTES_MAX
    all_bytes_max: int = ALL_BYTES_MAX


class GroupTotals(NamedTuple):
    """The number and the memory of all groups, of which a user may hold a part."""

    groups: SharedTotal[GroupId]
    offsets: SharedTotal[GroupId]
    """The memory of committed offsets, also of those in open transactions."""
    members: SharedTotal[GroupId]
    """The memory of members, with their ids, metadata and assignments."""

    def restarted(self) -> GroupTotals:
        """Return the totals for a new reading of the log."""
        return GroupTotals(*(total.restarted() for total in self))


def group_totals(user_percent: int = 100) -> GroupTotals:
    """Return totals without groups."""
    kind, percent = "group", user_percent
    return GroupTotals(
        SharedTotal("consumer groups", kind, PolicyViolation, percent),
        SharedTotal("bytes of committed offsets", kind, InvalidCommitOffsetSize, percent),
        SharedTotal("bytes of members of consumer groups", kind, PolicyViolation, percent),
    )


DEFAULT_SIZE_LIMITS = ClassicGroupSizeLimits()
