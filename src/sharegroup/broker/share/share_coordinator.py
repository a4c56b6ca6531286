"""The share coordinator: keeps the delivery state of all share partitions durable.

It runs `sharegroup.core.ShareStates` over the topic ``__share_group_state``: a command gives
records, the records are appended and replayed at once, and whoever asked is answered when they
are durable (ADR 0005).  Share partitions live in the same process and ask it as their
`Persister`, by plain calls.  Whoever asks over the network (ADR 0010) speaks as a leader of a
``leader_epoch``; the share partitions here name none, so they lead in whatever epoch is the newest,
and are loaded again when somebody else has written.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

from sharegroup.broker.clock import Clock
from sharegroup.broker.cluster.coordinator_log import CoordinatorLog
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.configuration.config import CoordinatorConfig
from sharegroup.broker.share.share_state_records import decode, encode, needed
from sharegroup.core.delivery import Delta
from sharegroup.core.share_state import PersistedState, ShareStates, StateSummary, named
from sharegroup.core.share_state_records import Records
from sharegroup.errors import UnknownTopicOrPartition
from sharegroup.ids import SharePartitionKey, TopicId, share_state_partition
from sharegroup.storage.tickets import Ticket
from sharegroup.wire.small_batches import KeyedRecord

log = logging.getLogger(__name__)


PROGRESS_RECORDS = 500_000
"""A load is logged whenever it has read so many more; each takes a few seconds."""


class ShareCoordinator:
    """See the module's text."""

    __slots__ = (
        "_clock",
        "_config",
        "_log",
        "_partitions",
        "_states",
        "_topics",
        "load_ms",
        "write_count",
    )

    def __init__(
        self, log_: CoordinatorLog, topics: Topics, clock: Clock, config: CoordinatorConfig
    ) -> None:
        self._log = log_
        self._topics = topics
        self._clock = clock
        self._config = config
        self._states = self._no_states()
        self._partitions: dict[SharePartitionKey, int] = {}
        self.write_count = 0
        """Batches of records that were handed to the log."""
        self.load_ms = 0
        """How long it took to read the topic at start."""

    def load(self) -> None:
        """Read everything, then fit it to the logs as they are now.

        Topics may be gone, and after the loss of power a log may end before what is said of it.
        """
        begun_ms = self._clock.now_ms()
        count = self._reload()
        self.load_ms = self._clock.now_ms() - begun_ms
        log.info(
            "event=share_state_loaded records=%d share_partitions=%d ms=%d",
            count,
            len(self._states),
            self.load_ms,
        )
        for key in self._states:
            topic = self._topics.catalog.by_id(key.topic_id)
            if topic is None:
                self._apply(self._partition(key), self._states.delete(key))
                continue
            log_end = self._topics.log_of(topic, key.partition).end_offset
            cut = self._states.cut(key, log_end, wall_ms=self._clock.wall_ms())
            if cut:
                log.warning(
                    "event=share_state_cut group=%r topic=%s partition=%d log_end=%d",
                    key.group_id,
                    topic.name,
                    key.partition,
                    log_end,
                )
                self._apply(self._partition(key), cut)

    def initialize(
        self, key: SharePartitionKey, *, state_epoch: int, start_offset: int
    ) -> Ticket | None:
        """Begin a share partition anew; None when it had begun just so already."""
        partition = self._known_partition(key)
        records = self._states.initialize(
            key, state_epoch=state_epoch, start_offset=start_offset, wall_ms=self._clock.wall_ms()
        )
        self.check_exists(key)
        return self._apply(partition, records)

    def read(self, key: SharePartitionKey, *, leader_epoch: int | None = None) -> PersistedState:
        """What the share partition is made from, or why it cannot be.

        A leader who names its epoch fences those before it from now on.
        """
        partition = self._known_partition(key)
        records, state = self._states.read(
            key, leader_epoch=leader_epoch, wall_ms=self._clock.wall_ms()
        )
        self._apply(partition, records)
        return state

    def write(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        delta: Delta,
        *,
        leader_epoch: int | None = None,
    ) -> Ticket:
        """Write what changed; the order of calls is the order in the log."""
        partition = self._known_partition(key)
        records = self._states.write(
            key,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=delta.start_offset,
            delivery_complete_count=delta.delivery_complete_count,
            batches=delta.batches,
            wall_ms=self._clock.wall_ms(),
        )
        ticket = self._apply(partition, records)
        assert ticket is not None, "a write always has a record"
        return ticket

    def last_write(self, key: SharePartitionKey) -> Ticket | None:
        """When this is durable, so is all that `read` tells of the share partition."""
        return self._log.last(self._partition(key))

    def check_writable(self, key: SharePartitionKey) -> None:
        """Raise KafkaStorageError while no change of this share partition could be kept."""
        self._log.check_writable(self._partition(key))

    def summary(self, key: SharePartitionKey) -> StateSummary:
        """Start offset and delivery complete count, for listing offsets."""
        self._known_partition(key)
        return self._states.read_summary(key)

    def known(self) -> tuple[SharePartitionKey, ...]:
        """Every share partition that is known."""
        return tuple(self._states)

    def keys_of_topic(self, topic_id: TopicId) -> tuple[SharePartitionKey, ...]:
        return self._states.keys_of_topic(topic_id)

    def delete(self, keys: Iterable[SharePartitionKey]) -> list[Ticket]:
        """Forget share partitions."""
        tickets = []
        for key in keys:
            partition = self._known_partition(key)
            ticket = self._apply(partition, self._states.delete(key))
            self._partitions.pop(key, None)
            if ticket is not None:
                tickets.append(ticket)
        return tickets

    def delete_one(self, key: SharePartitionKey) -> Ticket | None:
        """Forget a share partition of a topic that exists; None when nothing was known of it."""
        partition = self._known_partition(key)
        records = self._states.delete(key)
        self.check_exists(key)
        return self._apply(partition, records)

    def by_partition(self) -> dict[int, list[SharePartitionKey]]:
        """Every share partition that is known, by the partition of the topic that holds it."""
        self.forget_what_failed()
        found: dict[int, list[SharePartitionKey]] = {}
        for key in self._states:
            found.setdefault(self._partition(key), []).append(key)
        return found

    def snapshot(self, keys: Sequence[SharePartitionKey]) -> Ticket | None:
        """Say again what is known of these, all of one partition; None where nothing is."""
        partition = self._known_partition(keys[0])
        wall_ms = self._clock.wall_ms()
        records = [one for key in keys for one in self._states.snapshot(key, wall_ms=wall_ms)]
        return self._apply(partition, tuple(records))

    def last_of(self, partition: int) -> Ticket | None:
        """When this is durable, so is all of this partition of the topic."""
        return self._log.last(partition)

    def snapshot_bytes(self, key: SharePartitionKey) -> int:
        """About what a snapshot of the share partition takes in the log."""
        return self._states.snapshot_bytes(key)

    def is_cold(self, key: SharePartitionKey) -> bool:
        """Whether the share partition was not snapshotted for so long that it is due."""
        since_ms = self._clock.wall_ms() - self._config.cold_snapshot_ms
        return self._states.is_cold(key, since_ms=since_ms)

    def needless_before(self, keys: Iterable[SharePartitionKey], *, log_end: int) -> int:
        """Below this offset a partition that holds these share partitions is not needed."""
        return self._states.needless_before(keys, log_end=log_end)

    def check_exists(self, key: SharePartitionKey) -> None:
        """Raise UnknownTopicOrPartition where there is nothing that a state could be of."""
        topic = self._topics.catalog.by_id(key.topic_id)
        if topic is None or key.partition >= topic.partition_count:
            known = "no topic" if topic is None else f"{topic.partition_count} partitions"
            raise UnknownTopicOrPartition(f"{named(key)}: there is {known} with this id")

    def forget_what_failed(self) -> None:
        """Know only what is durable or on its way, before anything is decided on more."""
        if self._log.was_cut_anywhere():
            self._reload_after_failure()

    def _known_partition(self, key: SharePartitionKey) -> int:
        """The partition of the topic that holds it, of which nothing is known that failed."""
        partition = self._partition(key)
        if self._log.was_cut(partition):
            self._reload_after_failure()
        return partition

    def _reload_after_failure(self) -> None:
        log.error("event=share_state_reloaded reason='a state write failed'")
        self._reload()

    def _apply(self, partition: int, records: Records) -> Ticket | None:
        if not records:
            return None
        ticket = self._log.append(partition, [encode(one) for one in records])
        self.write_count += 1
        for offset, record in enumerate(records, ticket.base_offset):
            self._states.replay(record, log_offset=offset)
        return ticket

    def _reload(self) -> int:
        """Read the topic anew; the number of its records."""
        states = self._no_states()
        count = 0

        def counted() -> Iterator[KeyedRecord]:
            nonlocal count
            for count, stored in enumerate(self._log.records(), start=1):
                if count % PROGRESS_RECORDS == 0:
                    log.info("event=share_state_loading records=%d", count)
                yield stored

        for offset, key, value in needed(counted()):
            record = decode(key, value)
            if record is not None:
                states.replay(record, log_offset=offset)
        self._states = states
        return count

    def _no_states(self) -> ShareStates:
        return ShareStates(updates_per_snapshot=self._config.updates_per_snapshot)

    def _partition(self, key: SharePartitionKey) -> int:
        found = self._partitions.get(key)
        if found is None:
            found = share_state_partition(key, self._log.partition_count)
            self._partitions[key] = found
        return found
