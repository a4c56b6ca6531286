"""The partitions of one share session, by state, so a fetch skips those without new records.

A member may fetch thousands of partitions of which a few have records. The cost of a fetch must
depend on what it returns. So a session remembers what its last look at each partition found, until
an event happens there:

                       had records, or was not looked at
                         ┌──────┐
    added ──▶ doubtful ──▶ ready ──── had nothing ────▶ quiet
                  ▲        │   ▲                          │
                  └────────┘   └───────── event ──────────┘
              cannot be used        (or woken by a fetch)

    doubtful   just added, or unusable at the last look; each look tries it again
    ready      a queue: the first is looked at first, and goes to the end if it had records, so
               no partition takes the whole budget of every fetch
    quiet      had nothing; the first is the one whose last look is longest ago

`take_turn` makes a partition quiet and watched before the caller looks at it. An event during the
look makes it ready again, so no event can be missed. If an event is not reported, the records are
late but not lost: every fetch makes the longest quiet partition ready again, and the last look of a
fetch that waited looks at all partitions.

Watching costs O(events): an event is reported once to the sessions that watch the partition, and
they watch again when they find nothing again. A session that has yet to look is not told.

Pure: the caller reports events to `Watches.happened`, which returns the sessions to wake.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Container, Hashable, Iterable, Iterator, KeysView
from itertools import chain

from sharegroup.ids import GroupId, MemberId, SharePartitionKey, TopicId, TopicIdPartition
from sharegroup.steps import STEP_MASK, Steps

Owner = tuple[GroupId, MemberId]
"""The group and the member of a session: a `SessionKey`."""


class SessionPartitions:
    """The partitions of one share session: doubtful, ready or quiet.

    ``in`` accepts topic partitions and the share partitions of the session's group. ``is_over`` is
    True once the session has ended; its partitions must not be looked at after that.
    """

    __slots__ = (
        "_doubtful",
        "_quiet",
        "_ready",
        "_size",
        "_topics",
        "_watches",
        "is_over",
        "owner",
    )

    def __init__(self, owner: Owner, watches: Watches) -> None:
        self.owner = owner
        self.is_over = False
        self._watches = watches
        self._doubtful: dict[TopicIdPartition, None] = {}
        self._ready: OrderedDict[TopicIdPartition, None] = OrderedDict()
        self._quiet: OrderedDict[TopicIdPartition, None] = OrderedDict()
        self._topics: Counter[TopicId] = Counter()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[TopicIdPartition]:
        return chain(self._doubtful, self._ready, self._quiet)

    def __contains__(self, key: object) -> bool:
        if isinstance(key, SharePartitionKey):
            if key.group_id != self.owner[0]:
                return False
            key = TopicIdPartition(key.topic_id, key.partition)
        return key in self._ready or key in self._quiet or key in self._doubtful

    @property
    def doubtful(self) -> tuple[TopicIdPartition, ...]:
        """The partitions that each look has to try again."""
        return tuple(self._doubtful)

    @property
    def ready(self) -> tuple[TopicIdPartition, ...]:
        """The partitions that may have records, in the order of turns."""
        return tuple(self._ready)

    @property
    def ready_count(self) -> int:
        """The number of partitions that are ready."""
        return len(self._ready)

    @property
    def topic_ids(self) -> KeysView[TopicId]:
        """The topics of the partitions."""
        return self._topics.keys()

    @property
    def any_doubtful(self) -> bool:
        """Whether any partition is doubtful."""
        return bool(self._doubtful)

    @property
    def look_count(self) -> int:
        """The number of partitions that the next look has to look at."""
        return len(self._doubtful) + len(self._ready)

    @property
    def any_usable(self) -> bool:
        """Whether there is a partition that can have records: ready or quiet."""
        return bool(self._ready or self._quiet)

    def add(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Add partitions; those that are new are doubtful at first."""
        doubtful, ready, quiet = self._doubtful, self._ready, self._quiet
        for partition in partitions:  # Acknowledgements name known partitions, mostly ready ones.
            if not (partition in ready or partition in quiet or partition in doubtful):
                doubtful[partition] = None
                self._topics[partition.topic_id] += 1
                self._size += 1
                self._watches.partition_count += 1

    def fill(
        self, named: Collection[TopicIdPartition], forgotten: Iterable[TopicIdPartition]
    ) -> Steps[None]:
        """Do `add` and then `remove` in steps; the steps stop if the session ends.

        Until then ``named`` counts in full, so other sessions cannot take its room.
        """
        reserved, watches = len(named), self._watches
        watches.partition_count += reserved
        try:
            for count, partition in enumerate(named, 1):
                watches.partition_count -= 1
                reserved -= 1
                self.add((partition,))
                if count & STEP_MASK == 0:
                    yield
                    # Another request may have closed the session during the pause.
                    if self.is_over:
                        return
        finally:
            watches.partition_count -= reserved
        for count, partition in enumerate(forgotten, 1):
            self.remove(partition)
            if count & STEP_MASK == 0:
                yield
                if self.is_over:
                    return

    def remove(self, partition: TopicIdPartition) -> None:
        """Remove a partition; does nothing if the session does not have it."""
        for kind in (self._doubtful, self._ready, self._quiet):
            if partition in kind:
                del kind[partition]
                self._topics[partition.topic_id] -= 1
                self._size -= 1
                if not self._topics[partition.topic_id]:
                    del self._topics[partition.topic_id]
                self._watches.partition_count -= 1
                self._watches.remove(partition, self)

    def end(self) -> None:
        """End the session; its partitions can still be read."""
        assert not self.is_over, f"{self.owner}: the session is over already"
        self.is_over = True
        self._watches.partition_count -= len(self)
        for partition in self:
            self._watches.remove(partition, self)

    def take_turn(self) -> TopicIdPartition:
        """Return the first ready partition, which is quiet and watched from now on.

        The caller makes it ready again if it finds records (`make_ready`); so does an event.
        """
        partition, _ = self._ready.popitem(last=False)
        self._quiet[partition] = None
        self._watches.add(partition, self)
        return partition

    def make_ready(self, partition: TopicIdPartition) -> None:
        """Put a partition at the end of the ready queue: it had records or can be used again."""
        if partition in self._quiet:
            del self._quiet[partition]
        elif partition in self._doubtful:
            del self._doubtful[partition]
            if not self._doubtful:
                self._doubtful = {}  # A dictionary keeps the memory of deleted entries.
        else:
            return
        self._ready[partition] = None

    def doubt(self, partition: TopicIdPartition) -> None:
        """Mark a partition as unusable for now, and watch for an event that may change that."""
        if partition in self._ready:
            del self._ready[partition]
        elif partition in self._quiet:
            del self._quiet[partition]
        elif partition not in self._doubtful:
            return  # A request forgot it while a look in steps went on.
        self._doubtful[partition] = None
        self._watches.add(partition, self)

    def quieten(self, partition: TopicIdPartition) -> None:
        """Move a partition from ready to quiet, because it was found empty outside its turn."""
        del self._ready[partition]
        self._quiet[partition] = None
        self._watches.add(partition, self)

    def watch(self, partition: TopicIdPartition) -> None:
        """Watch a ready partition: it has records, but too few for the fetch."""
        if partition in self._ready:
            self._watches.add(partition, self)

    def wake_one(self) -> None:
        """Make the partition ready that has been quiet for longest."""
        if self._quiet:
            partition, _ = self._quiet.popitem(last=False)
            self._ready[partition] = None

    def wake_all(self) -> None:
        """Make all quiet partitions ready, the longest quiet first, behind those that are ready.

        The queues are swapped because usually few partitions are ready and thousands may be quiet.
        """
        for partition in reversed(self._ready):
            self._quiet[partition] = None
            self._quiet.move_to_end(partition, last=False)
        self._ready.clear()
        self._ready, self._quiet = self._quiet, self._ready

    def happened(self, partition: TopicIdPartition) -> None:
        """Make a quiet partition ready after an event; each look tries a doubtful one anyway."""
        if partition in self._quiet:
            del self._quiet[partition]
            self._ready[partition] = None


_Watchers = dict[GroupId, dict[Owner, SessionPartitions]]


class Watches:
    """The sessions to notify of a partition's next event, because they found no records in it.

    Usually one session watches a partition. It is stored without a dictionary around it, because
    two dictionaries are several times as large as everything else that a session stores for a
    partition.
    """

    __slots__ = ("_by_partition", "partition_count")

    def __init__(self) -> None:
        self._by_partition: dict[TopicIdPartition, SessionPartitions | _Watchers] = {}
        self.partition_count = 0
        """Number of partitions of all sessions that are not over, counted once per session."""

    def __len__(self) -> int:
        """The number of watched partitions."""
        return len(self._by_partition)

    def add(self, partition: TopicIdPartition, session: SessionPartitions) -> None:
        """Tell the session of the next event of the partition, once."""
        assert not session.is_over, f"{session.owner}: a session that is over watches nothing"
        watchers = self._by_partition.setdefault(partition, session)
        if watchers is session:
            return
        if isinstance(watchers, SessionPartitions):
            first = watchers
            watchers = self._by_partition[partition] = {first.owner[0]: {first.owner: first}}
        sessions = watchers.get(session.owner[0])
        if sessions is None:
            sessions = watchers[session.owner[0]] = {}
        sessions[session.owner] = session

    def remove(self, partition: TopicIdPartition, session: SessionPartitions) -> None:
        """Stop watching the partition for the session; does nothing if it does not watch."""
        watchers = self._by_partition.get(partition)
        if watchers is None:
            return
        if isinstance(watchers, SessionPartitions):
            if watchers is session:
                del self._by_partition[partition]
            return
        sessions = watchers.get(session.owner[0], {})
        # The member may have a newer session by now, which watches under the same key.
        if sessions.get(session.owner) is not session:
            return
        del sessions[session.owner]
        if not sessions:
            del watchers[session.owner[0]]
        if not watchers:
            del self._by_partition[partition]

    def happened(
        self, key: Hashable, waiting: Container[Hashable] = ()
    ) -> list[Owner | SharePartitionKey]:
        """Report an event of a partition, for one group or (a TopicIdPartition) for all.

        The partition becomes ready in each session that watches it; returns their owners. If
        fetches of several sessions of a group are ``waiting``, these go on watching, and the share
        partition is returned: it is their queue, and the first may take all records.
        """
        if isinstance(key, TopicIdPartition):
            partition, group_id = key, None
        elif isinstance(key, SharePartitionKey):
            partition, group_id = TopicIdPartition(key.topic_id, key.partition), key.group_id
        else:
            return []
        watchers = self._by_partition.get(partition)
        if watchers is None:
            return []
        if isinstance(watchers, SessionPartitions):
            if group_id is not None and watchers.owner[0] != group_id:
                return []
            del self._by_partition[partition]
            watchers.happened(partition)
            return [watchers.owner]
        concerned: list[Owner | SharePartitionKey] = []
        for group in list(watchers) if group_id is None else [group_id]:
            sessions = list(watchers.get(group, {}).values())
            if sum(session.owner in waiting for session in sessions) > 1:
                concerned.append(SharePartitionKey(group, *partition))
                continue
            for session in sessions:
                self._tell(partition, session)
                concerned.append(session.owner)
        return concerned

    def queue(self, key: SharePartitionKey) -> tuple[Owner, ...]:
        """Return the owners of the sessions that watch a share partition."""
        return tuple(self._sessions(key))

    def tell(self, key: SharePartitionKey, owner: Owner) -> bool:
        """Make a share partition ready in a session; return whether the session watched it."""
        session = self._sessions(key).get(owner)
        if session is not None:
            self._tell(TopicIdPartition(key.topic_id, key.partition), session)
        return session is not None

    def _tell(self, partition: TopicIdPartition, session: SessionPartitions) -> None:
        self.remove(partition, session)
        session.happened(partition)

    def _sessions(self, key: SharePartitionKey) -> dict[Owner, SessionPartitions]:
        """Return the sessions of a group that watch one of its share partitions."""
        watchers = self._by_partition.get(TopicIdPartition(key.topic_id, key.partition))
        if isinstance(watchers, SessionPartitions):
            return {watchers.owner: watchers} if watchers.owner[0] == key.group_id else {}
        return {} if watchers is None else watchers.get(key.group_id, {})
