"""The cluster as the console saw it last: immutable, so that pages of one moment agree.

    watcher ─▶ ClusterView ─▶ pages, attention, history

None means unknown, which is not zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sharegroup.client.records import TopicPartition
from sharegroup.dead_letters.letter_topics import LetterTopic


@dataclass(frozen=True, slots=True)
class BrokerView:
    """A broker of the cluster."""

    node_id: int
    address: str
    rack: str | None
    is_controller: bool
    is_fenced: bool
    error: str | None = None
    """Why the console's last attempt to reach it failed."""


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic, without its offsets."""

    name: str
    partition_count: int
    is_internal: bool
    """Whether Kafka or this library keeps it for itself."""
    leaderless: tuple[int, ...] = ()
    """Its partitions without a leader."""
    short_of_replicas: tuple[int, ...] = ()
    """Its partitions with fewer in-sync replicas than replicas."""


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member of a group of any type."""

    member_id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """A partition of a group: ``offset`` is a share group's start offset, or a committed one."""

    where: TopicPartition
    offset: int | None
    lag: int | None


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group of any type, as its coordinator described it."""

    group_id: str
    type: str
    state: str
    members: tuple[MemberView, ...] = ()
    partitions: tuple[GroupPartition, ...] = ()
    oldest_ms: int | None = None
    """The timestamp of the oldest record that is not settled, in ms since 1970."""
    seen_at: float | None = None
    """The monotonic time of the partitions; None while they are unknown."""
    members_at: float | None = None
    """The monotonic time of the members; None while they are unknown, or another number now."""
    error: str | None = None
    """Why the last attempt to read it failed."""
    topics: tuple[str, ...] = field(init=False)
    """The topics of its partitions and members, sorted.

    Kept, because pages ask for those of all groups, and a group has many members.
    """

    def __post_init__(self) -> None:
        names = {part.where.topic for part in self.partitions}
        names.update(where.topic for member in self.members for where in member.partitions)
        object.__setattr__(self, "topics", tuple(sorted(names)))

    @property
    def lag(self) -> int | None:
        """The records that are not settled, of the partitions whose lag is known."""
        lags = [partition.lag for partition in self.partitions if partition.lag is not None]
        return sum(lags) if lags else None

    @property
    def has_no_members(self) -> bool:
        """Whether it is known that it has no members."""
        return self.members_at is not None and self.error is None and not self.members

    def progress_since(self, earlier: GroupView) -> int:
        """Return by how much the offsets of its partitions went forward.

        A partition whose offset became known, or was reset to an older one, counts as 0.
        """
        before = {part.where: part.offset for part in earlier.partitions}
        steps = 0
        for part in self.partitions:
            offset = before.get(part.where)
            if offset is not None and part.offset is not None:
                steps += max(0, part.offset - offset)
        return steps


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Everything that the console knows at one moment."""

    cluster_id: str = ""
    brokers: tuple[BrokerView, ...] = ()
    topics: Mapping[str, TopicView] = field(default_factory=dict)
    groups: Mapping[str, GroupView] = field(default_factory=dict)
    letters: Mapping[str, LetterTopic] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    """What could not be read the last time, by subject: the error."""
    left_out: int = 0
    """Groups beyond the bound, which are not described."""
    looked_at: float | None = None
    """The monotonic time of the last complete look; None before the first."""

    @property
    def share_groups(self) -> tuple[GroupView, ...]:
        """The share groups, by id."""
        return tuple(group for group in self.groups.values() if group.type == SHARE)

    @property
    def other_groups(self) -> tuple[GroupView, ...]:
        """The groups of other types, by id."""
        return tuple(group for group in self.groups.values() if group.type != SHARE)


SHARE = "share"
