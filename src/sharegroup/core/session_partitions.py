"""The partitions of one share session, by what is known of them: so that no fetch looks at all.

A member may fetch thousands of partitions of which a few have records.  What a fetch costs must
follow from what it returns, so a session remembers what its last look at each partition found,
until something happens there:

                       had records, or was not looked at
                         ┌──────┐
    named ──▶ doubtful ──▶ ready ──── had nothing ────▶ quiet
                  ▲        │   ▲                          │
                  └────────┘   └───── something happened ─┘
              cannot be used          (or its turn came)

    doubtful   just named, or not to be used at the last look; each look tries it again
    ready      a queue: the first is looked at first, and goes to the end if it had records, so
               that no partition takes the whole budget of every fetch
    quiet      had nothing; the first is the one that was looked at longest ago

Whoever takes a turn finds the partition quiet already and watched: what happens *while* it is
looked at makes it ready again, so there is no moment in which an event could be missed.  Should
somebody forget to tell of one, every fetch makes the longest quiet partition ready again, and
the last look of a fetch that waited looks at everything: then it is late, and not lost.

Watching costs what happens: an event is told once to the sessions that watch its partition, and
whoever found nothing there again watches again.  A session that has yet to look is told nothing.

Pure: what happens is told by `Watches.happened`; whom to wake is returned.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Iterator, KeysView
from itertools import chain

from sharegroup.ids import GroupId, MemberId, SharePartitionKey, TopicId, TopicPartition

Owner = tuple[GroupId, MemberId]
"""Whose session it is: a `SessionKey`."""


class SessionPartitions:
    """See the module's text.  As a container it holds partitions and its group's share partitions.

    ``is_over`` once the session is; it must not be looked at any more then.
    """

    __slots__ = ("_doubtful", "_quiet", "_ready", "_topics", "_watches", "is_over", "owner")

    def __init__(self, owner: Owner, watches: Watches) -> None:
        self.owner = owner
        self.is_over = False
        self._watches = watches
        self._doubtful: dict[TopicPartition, None] = {}
        self._ready: OrderedDict[TopicPartition, None] = OrderedDict()
        self._quiet: OrderedDict[TopicPartition, None] = OrderedDict()
        self._topics: Counter[TopicId] = Counter()

    def __len__(self) -> int:
        return len(self._doubtful) + len(self._ready) + len(self._quiet)

    def __iter__(self) -> Iterator[TopicPartition]:
        return chain(self._doubtful, self._ready, self._quiet)

    def __contains__(self, key: object) -> bool:
        if isinstance(key, SharePartitionKey):
            if key.group_id != self.owner[0]:
                return False
            key = TopicPartition(key.topic_id, key.partition)
        return key in self._ready or key in self._quiet or key in self._doubtful

    @property
    def doubtful(self) -> tuple[TopicPartition, ...]:
        """What each look has to try again."""
        return tuple(self._doubtful)

    @property
    def ready(self) -> tuple[TopicPartition, ...]:
        """What may have records, in the order of turns."""
        return tuple(self._ready)

    @property
    def ready_count(self) -> int:
        """How many turns there are to be taken."""
        return len(self._ready)

    @property
    def topic_ids(self) -> KeysView[TopicId]:
        """The topics of the partitions."""
        return self._topics.keys()

    @property
    def any_usable(self) -> bool:
        """Whether there is a partition that records can come from."""
        return bool(self._ready or self._quiet)

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Those that are new here are doubtful at first."""
        doubtful, ready, quiet = self._doubtful, self._ready, self._quiet
        for partition in partitions:  # Each acknowledgement names one that mostly is ready.
            if not (partition in ready or partition in quiet or partition in doubtful):
                doubtful[partition] = None
                self._topics[partition.topic_id] += 1

    def remove(self, partition: TopicPartition) -> None:
        """Fetch it no more; nothing happens where it was never named."""
        for kind in (self._doubtful, self._ready, self._quiet):
            if partition in kind:
                del kind[partition]
                self._topics[partition.topic_id] -= 1
                if not self._topics[partition.topic_id]:
                    del self._topics[partition.topic_id]
                self._watches.remove(partition, self)

    def end(self) -> None:
        """The session is over; its partitions stay to be read."""
        self.is_over = True
        for partition in self:
            self._watches.remove(partition, self)

    def take_turn(self) -> TopicPartition:
        """The first that is ready; quiet from now on, unless something happens or is found."""
        partition, _ = self._ready.popitem(last=False)
        self._quiet[partition] = None
        self._watches.add(partition, self)
        return partition

    def make_ready(self, partition: TopicPartition) -> None:
        """It had records, can be used again, or something happened: another turn, the last."""
        if partition in self._quiet:
            del self._quiet[partition]
        elif partition in self._doubtful:
            del self._doubtful[partition]
        else:
            return
        self._ready[partition] = None

    def doubt(self, partition: TopicPartition) -> None:
        """It cannot be used now; what happens to it may change that."""
        self._ready.pop(partition, None)
        self._quiet.pop(partition, None)
        self._doubtful[partition] = None
        self._watches.add(partition, self)

    def quieten(self, partition: TopicPartition) -> None:
        """There is nothing in it, found without taking its turn."""
        del self._ready[partition]
        self._quiet[partition] = None
        self._watches.add(partition, self)

    def watch_ready(self) -> None:
        """What there is does not suffice: tell when something happens there, too."""
        for partition in self._ready:
            self._watches.add(partition, self)

    def wake_one(self) -> None:
        """The partition that has been quiet for longest gets a turn."""
        if self._quiet:
            partition, _ = self._quiet.popitem(last=False)
            self._ready[partition] = None

    def wake_all(self) -> None:
        """Each quiet partition gets a turn, the longest quiet first."""
        self._ready.update(self._quiet)
        self._quiet.clear()

    def happened(self, partition: TopicPartition) -> None:
        """There may be something in a quiet partition; a doubtful one each look tries anyway."""
        if partition in self._quiet:
            del self._quiet[partition]
            self._ready[partition] = None


class Watches:
    """Which sessions found nothing in a partition and are to be told what happens to it."""

    __slots__ = ("_by_partition",)

    def __init__(self) -> None:
        self._by_partition: dict[TopicPartition, dict[GroupId, dict[Owner, SessionPartitions]]] = {}

    def __len__(self) -> int:
        """How many partitions are watched."""
        return len(self._by_partition)

    def add(self, partition: TopicPartition, session: SessionPartitions) -> None:
        """Tell this session, once."""
        assert not session.is_over, f"{session.owner}: a session that is over watches nothing"
        by_group = self._by_partition.get(partition)
        if by_group is None:
            by_group = self._by_partition[partition] = {}
        sessions = by_group.get(session.owner[0])
        if sessions is None:
            sessions = by_group[session.owner[0]] = {}
        sessions[session.owner] = session

    def remove(self, partition: TopicPartition, session: SessionPartitions) -> None:
        """Tell it no more, if it was to be told."""
        by_group = self._by_partition.get(partition, {})
        sessions = by_group.get(session.owner[0], {})
        if sessions.get(session.owner) is not session:
            return
        del sessions[session.owner]
        if not sessions:
            del by_group[session.owner[0]]
        if not by_group:
            del self._by_partition[partition]

    def happened(self, key: Hashable) -> list[Owner]:
        """Something happened to a partition, for one group or (a TopicPartition) for all.

        Each session that watches it has it ready from now on; returned is whose they are.
        """
        if isinstance(key, SharePartitionKey):
            partition = TopicPartition(key.topic_id, key.partition)
            by_group = self._by_partition.get(partition)
            if by_group is None or key.group_id not in by_group:
                return []
            told = [by_group.pop(key.group_id)]
            if not by_group:
                del self._by_partition[partition]
        elif isinstance(key, TopicPartition):
            partition = key
            told = list(self._by_partition.pop(partition, {}).values())
        else:
            return []
        for sessions in told:
            for session in sessions.values():
                session.happened(partition)
        return [owner for sessions in told for owner in sessions]
