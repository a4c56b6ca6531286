"""The share coordinator: stores the delivery state of all share partitions durably.

It runs `core.delivery.stored.share_states` over the topic ``__share_group_state``.  A command
returns records, which are appended and replayed at once; the answer comes when they are durable
(ADR 0005).  The share partitions of this process use it as their `Persister`, by plain calls.  A
client over the network (ADR 0010) is a leader with a ``leader_epoch``.  The share partitions here
pass none, so they lead in the newest epoch, and are loaded again after such a client has written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from sharegroup.broker.clock import Clock
from sharegroup.broker.cluster.coordinator_log import CoordinatorLog
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.configuration.config import CoordinatorConfig
from sharegroup.core.delivery.delivery import Delta
from sharegroup.core.delivery.stored.share_states import (
    PersistedState,
    Records,
    ShareStateRecord,
    ShareStates,
    StateSummary,
    named,
)
from sharegroup.errors import KafkaError, UnknownTopicOrPartition
from sharegroup.ids import SharePartitionKey, TopicId, share_state_partition
from sharegroup.internal_topics.share_state_codec import decode, encode, needed
from sharegroup.steps import Steps
from sharegroup.storage.sync.tickets import Ticket
from sharegroup.wire.batches.small_batches import KeyedRecord

log = logging.getLogger(__name__)

COMPLETE_COUNT_MAX = 2**31 - 1
"""The largest count that Kafka's state records can hold; a lying batch may claim more offsets."""

WRITE_RECORDS = 256
"""Maximum number of tombstones in one batch."""

NUMBERS_MAX = 1_024
"""Share partitions whose partition of the topic is kept; to find it anew takes 1 us."""

LISTED_KEYS = 1_024
"""Number of keys that are listed in one step, which takes about 1 ms."""

PROGRESS_RECORDS = 500_000
"""A load logs its progress after so many records, a few seconds each."""


class ShareCoordinator:
    """Stores the delivery state of all share partitions in ``__share_group_state``."""

    __slots__ = (
        "_clock",
        "_config",
        "_log",
        "_partition",
        "_states",
        "_topics",
        "_uncorrected",
        "load_ms",
        "reload_count",
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
        # Any client can ask for keys that have no state, as many as it likes, so they are few.
        self._partition = lru_cache(NUMBERS_MAX)(
            lambda key: share_state_partition(key, log_.partition_count)
        )
        self._uncorrected: list[SharePartitionKey] = []
        """Share partitions whose states were not fitted to the logs yet."""
        self.write_count = 0
        """Batches of records that were handed to the log."""
        self.reload_count = 0
        """The number of times that the topic was read; a reload may bring back older states."""
        self.load_ms = 0
        """The time that the start took to read the topic."""

    def load(self) -> None:
        """Read the topic, then fit the states to the logs as they are now.

        Topics may be deleted, and after a loss of power a log may end before offsets of a state.
        Logs without a state are not opened: there may be thousands of logs that were never written.
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
        # Reversed, because they are taken from the end.
        self._uncorrected = list(self._states)[::-1]
        try:
            self.forget_what_failed()
        except KafkaError as error:
            # A broker starts on a full disk (ADR 0019), and the next command tries again.
            log.warning(
                "event=share_state_not_corrected share_partitions=%d error=%r",
                len(self._uncorrected),
                str(error),
            )

    def _correct(self, key: SharePartitionKey) -> None:
        """Delete the state of a deleted topic, or cut off what it says of offsets behind a log."""
        topic = self._topics.catalog.by_id(key.topic_id)
        if topic is None:
            self._apply(self._partition(key), self._states.delete(key))
            return
        if not self._states.says_of_offsets(key):
            return
        # After a loss of power the log may end earlier.  Records that are written there later must
        # not inherit an acknowledgement (spec proof-4).
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
        """Initialize a share partition; None if it was initialized with the same values already."""
        partition = self._known_partition(key)
        records = self._states.initialize(
            key, state_epoch=state_epoch, start_offset=start_offset, wall_ms=self._clock.wall_ms()
        )
        # After the check of the epochs, as in Kafka (`maybeGetInitializeStateError`), so a fenced
        # request gets the same error.  Nothing is appended before both.
        self.check_exists(key)
        return self._apply(partition, records)

    def initialize_all(
        self, starts: Mapping[SharePartitionKey, int], *, state_epoch: int
    ) -> list[Ticket | None]:
        """Initialize several share partitions, with one write for each partition of the topic."""
        wall_ms = self._clock.wall_ms()
        records_by_partition: dict[int, list[ShareStateRecord]] = {}
        for key, start_offset in starts.items():
            partition = self._known_partition(key)
            self.check_exists(key)
            records = self._states.initialize(
                key, state_epoch=state_epoch, start_offset=start_offset, wall_ms=wall_ms
            )
            # Appended only when all are decided: a group gets all of its share partitions or none.
            records_by_partition.setdefault(partition, []).extend(records)
        return [
            self._apply(partition, tuple(records))
            for partition, records in records_by_partition.items()
        ]

    def partition_of(self, key: SharePartitionKey) -> int:
        """Return the partition of the topic that holds the share partition."""
        return self._partition(key)

    def read(self, key: SharePartitionKey, *, leader_epoch: int | None = None) -> PersistedState:
        """Return the stored state of a share partition, or raise why it cannot be used.

        A leader that passes its epoch fences leaders of earlier epochs from now on.
        """
        partition = self._known_partition(key)
        records, state = self._states.read(
            key, leader_epoch=leader_epoch, wall_ms=self._clock.wall_ms()
        )
        # Its ticket is that of `last_write`, for which the callers wait.
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
        """Write a change; the order of calls is the order in the log."""
        partition = self._known_partition(key)
        if delta.delivery_complete_count > COMPLETE_COUNT_MAX:
            delta = delta._replace(delivery_complete_count=COMPLETE_COUNT_MAX)
        records = self._states.write(
            key,
            delta,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            wall_ms=self._clock.wall_ms(),
        )
        ticket = self._apply(partition, records)
        assert ticket is not None, "a write always has a record"
        return ticket

    def last_write(self, key: SharePartitionKey) -> Ticket | None:
        """Return the ticket of the last write; when it is done, what `read` returns is durable."""
        # It may be the write of another share partition; all earlier writes are durable before it.
        return self._log.last(self._partition(key))

    def writable_check(self, key: SharePartitionKey) -> Callable[[], None]:
        """Return a check that raises KafkaStorageError while no change could be stored."""
        return self._log.writable_check(self._partition(key))

    def summary(self, key: SharePartitionKey) -> StateSummary:
        """Return start offset and delivery complete count, for listing offsets."""
        # For its effect: states of a failed write are forgotten first.
        self._known_partition(key)
        return self._states.read_summary(key)

    def known(self) -> tuple[SharePartitionKey, ...]:
        """Return every known share partition."""
        return tuple(self._states)

    def keys_of_topic(self, topic_id: TopicId) -> tuple[SharePartitionKey, ...]:
        return self._states.keys_of_topic(topic_id)

    def delete(self, keys: Iterable[SharePartitionKey]) -> list[Ticket]:
        """Delete the state of share partitions, with few writes for each partition of the topic."""
        records_by_partition: dict[int, list[ShareStateRecord]] = {}
        for key in keys:
            partition = self._known_partition(key)
            records_by_partition.setdefault(partition, []).extend(self._states.delete(key))
        tickets = []
        for partition, records in records_by_partition.items():
            for first in range(0, len(records), WRITE_RECORDS):
                batch_records = tuple(records[first : first + WRITE_RECORDS])
                tickets.append(self._apply(partition, batch_records))
        return [ticket for ticket in tickets if ticket is not None]

    def delete_one(self, key: SharePartitionKey) -> Ticket | None:
        """Delete the state of a share partition of an existing topic; None if it had no state."""
        partition = self._known_partition(key)
        # Before `check_exists`, as in `initialize`: a negative index is INVALID_REQUEST (spec
        # state-17).
        records = self._states.delete(key)
        self.check_exists(key)
        return self._apply(partition, records)

    def by_partition(self) -> Steps[dict[int, list[SharePartitionKey]]]:
        """List the known share partitions by their partition of the topic, in steps."""
        # Listed for pruning: states of lost writes must not decide what is deleted.
        self.forget_what_failed()
        keys_by_partition: dict[int, list[SharePartitionKey]] = {}
        for count, key in enumerate(self._states, start=1):
            keys_by_partition.setdefault(self._partition(key), []).append(key)
            if count % LISTED_KEYS == 0:
                yield
        return keys_by_partition

    def snapshot(self, keys: Sequence[SharePartitionKey]) -> Ticket | None:
        """Write snapshots of share partitions of one partition of the topic; None if none has
        state.
        """
        partition = self._known_partition(keys[0])
        wall_ms = self._clock.wall_ms()
        records = [record for key in keys for record in self._states.snapshot(key, wall_ms=wall_ms)]
        return self._apply(partition, tuple(records))

    def last_of(self, partition: int) -> Ticket | None:
        """Return the last write to a partition of the topic; it is durable after all others."""
        return self._log.last(partition)

    def snapshot_bytes(self, key: SharePartitionKey) -> int:
        """Return the approximate size in the log of a snapshot of the share partition."""
        return self._states.snapshot_bytes(key)

    def is_cold(self, key: SharePartitionKey) -> bool:
        """Return whether the share partition's last snapshot is so old that a new one is due."""
        since_ms = self._clock.wall_ms() - self._config.cold_snapshot_ms
        return self._states.is_cold(key, since_ms=since_ms)

    def needless_before(self, keys: Iterable[SharePartitionKey], *, log_end: int) -> int:
        """Return the offset below which a partition with these share partitions is not needed."""
        return self._states.needless_before(keys, log_end=log_end)

    def check_exists(self, key: SharePartitionKey) -> None:
        """Raise UnknownTopicOrPartition if the topic or the partition does not exist."""
        topic = self._topics.catalog.by_id(key.topic_id)
        if topic is None or key.partition >= topic.partition_count:
            existing = "no topic" if topic is None else f"{topic.partition_count} partitions"
            raise UnknownTopicOrPartition(f"{named(key)}: there is {existing} with this id")

    def forget_what_failed(self) -> None:
        """Discard state whose write failed, and correct the rest, before further decisions."""
        if self._log.was_cut_anywhere():
            self._reload_after_failure()
        while self._uncorrected:
            self._correct(self._uncorrected[-1])
            # Taken only afterwards: a correction that cannot be written is tried again.
            self._uncorrected.pop()

    def _known_partition(self, key: SharePartitionKey) -> int:
        """Return the partition of the topic; reload the states first if a write to it failed."""
        partition = self._partition(key)
        if self._log.was_cut(partition):
            self._reload_after_failure()
        if self._uncorrected:
            self.forget_what_failed()
        return partition

    def _reload_after_failure(self) -> None:
        log.error("event=share_state_reloaded reason='a state write failed'")
        self._reload()

    def _apply(self, partition: int, records: Records) -> Ticket | None:
        """Append records and replay them; return the ticket of the write, None without records."""
        if not records:
            return None
        # The append may raise, so the replay follows: memory never has what the log has refused
        # (ADR 0005).
        ticket = self._log.append(partition, [encode(entry) for entry in records])
        self.write_count += 1
        for offset, record in enumerate(records, ticket.base_offset):
            self._states.replay(record, log_offset=offset)
        return ticket

    def _reload(self) -> int:
        """Read the topic anew; return the number of its records."""
        self.reload_count += 1
        # Read into a new object: if the log cannot be read to its end, the states stay whole.
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
