"""Which groups are read next: those that somebody looks at, then those that were read longest ago.

                      looked at                       all others, in turn
    start offsets     every look                      within 60 s
    members           every look                      within 60 s; within 10 min if nobody is there

Both are bounded in bytes: of groups with many members or partitions, each look reads a part.  The
list of groups tells who lost the last member, and who got the first; those come first in the turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import nsmallest
from typing import NamedTuple

from sharegroup.console.watch.cluster_view import GroupView

ROTATION_SECONDS = 60.0
"""Within this time everything of every group is read once; without a browser not the members."""
IDLE_MEMBERS_SECONDS = 600.0
"""The same for members while no browser is there."""
LOOKED_MAX = 50
"""Groups that are read in every look; and groups not read yet that are read in one."""
LOOKED_BYTES = 128 * 1024
"""Bytes of answers in one look about groups that somebody looks at, of offsets and of members."""
ROTATION_BYTES = 256 * 1024
"""The same in a second about all other groups."""
MEMBER_BYTES = 120
"""About the size of a member in an answer, without its partitions."""
PARTITION_BYTES = 24
"""About the size of a partition in an answer."""

ReadAt = Callable[[GroupView], float | None]
Size = Callable[[GroupView], int]


class Plan(NamedTuple):
    """The groups that one look reads."""

    offsets: list[str]
    members: list[str]


def plan(
    groups: Mapping[str, GroupView],
    looked_at: Iterable[str],
    *,
    pause_seconds: float,
    is_watched: bool,
) -> Plan:
    """Return the groups to read now, if the next look is ``pause_seconds`` later."""
    looked = [groups[name] for name in looked_at if name in groups][:LOOKED_MAX]
    members_seconds = ROTATION_SECONDS if is_watched else IDLE_MEMBERS_SECONDS
    offsets_part, members_part = pause_seconds / ROTATION_SECONDS, pause_seconds / members_seconds
    bytes_max = ROTATION_BYTES * pause_seconds
    seen, described = _seen_at, _members_at
    return Plan(
        _unique(
            _within(LOOKED_BYTES, _oldest(looked, seen, 1.0), _offset_bytes),
            _within(bytes_max, _oldest(groups.values(), seen, offsets_part), _offset_bytes),
        ),
        _unique(
            _within(LOOKED_BYTES, _oldest(looked, described, 1.0), _member_bytes),
            _within(bytes_max, _oldest(groups.values(), described, members_part), _member_bytes),
        ),
    )


def _seen_at(group: GroupView) -> float | None:
    return group.seen_at


def _members_at(group: GroupView) -> float | None:
    return group.members_at


def _offset_bytes(group: GroupView) -> int:
    return PARTITION_BYTES * len(group.partitions)


def _member_bytes(group: GroupView) -> int:
    partitions = sum(len(member.partitions) for member in group.members)
    return MEMBER_BYTES * len(group.members) + PARTITION_BYTES * partitions


def _oldest(groups: Collection[GroupView], read_at: ReadAt, part: float) -> list[GroupView]:
    """Return this part of the groups, those that were read longest ago or never."""
    unread = sum(read_at(group) is None for group in groups)
    count = max(math.ceil(len(groups) * part), min(unread, LOOKED_MAX))

    def moment(group: GroupView) -> float:
        at = read_at(group)
        return -math.inf if at is None else at

    return nsmallest(count, groups, key=moment)


def _within(bytes_max: float, groups: Iterable[GroupView], size: Size) -> list[str]:
    """Return the first groups whose answers have room in the budget; at least one."""
    chosen: list[str] = []
    for group in groups:
        bytes_max -= size(group)
        if bytes_max < 0 and chosen:
            break
        chosen.append(group.group_id)
    return chosen


def _unique(*parts: list[str]) -> list[str]:
    return list(dict.fromkeys(name for part in parts for name in part))
