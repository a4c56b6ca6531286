"""Limits on what clients can make all consumer groups store together, and on one group's record.

Every limit is checked before a request changes anything. State loaded from a log is never refused.
The configuration of the broker has other limits (`ConsumerGroupLimits`), as has the memory of
committed offsets.
"""

from __future__ import annotations

from dataclasses import dataclass

GROUPS_MAX = 20_000
PENDING_MAX = 10_000
"""Number of pending member ids in all groups."""

GROUP_BYTES_MAX = 8 * 1024 * 1024
"""Memory of all members of one group, with metadata and assignments; one record has it all."""

ALL_BYTES_MAX = 16 * 1024 * 1024
"""Memory of the members of all groups."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupSizeLimits:
    """The largest permitted sizes and numbers of groups and members."""

    groups_max: int = GROUPS_MAX
    pending_max: int = PENDING_MAX
    group_bytes_max: int = GROUP_BYTES_MAX
    all_bytes_max: int = ALL_BYTES_MAX


DEFAULT_SIZE_LIMITS = ConsumerGroupSizeLimits()
