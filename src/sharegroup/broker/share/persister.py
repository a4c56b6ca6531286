"""The interface for storing delivery state, used by share partitions and groups.

    share partition ── read, write ─────────────▶ Persister ──▶ __share_group_state
    group           ── initialize, delete, list ▶

The real persister is `ShareCoordinator`.  Every method is a plain call: its decision holds when it
returns, and a `Ticket` tells when that is durable.  `NoPersister` stores nothing.  It is for tests
and for measuring the cost of durability (Kafka's NoOpStatePersister, and its internal setting
``group.share.persister.class.name``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from sharegroup.core.delivery.delivery import Delta
from sharegroup.core.delivery.stored.share_states import (
    NO_SUMMARY,
    PersistedState,
    StateSummary,
    named,
)
from sharegroup.errors import (
    FencedLeaderEpoch,
    FencedStateEpoch,
    InvalidRequest,
    KafkaError,
    NotLeaderOrFollower,
    UnknownServerError,
)
from sharegroup.ids import SharePartitionKey, TopicId
from sharegroup.storage.sync.tickets import Ticket


class Persister(Protocol):
    """Stores the delivery state of share partitions; raises KafkaError on failure or fencing."""

    def initialize(
        self, key: SharePartitionKey, *, state_epoch: int, start_offset: int
    ) -> Ticket | None:
        """Initialize a share partition; None if it was initialized with the same values already."""
        ...

    def initialize_all(
        self, starts: Mapping[SharePartitionKey, int], *, state_epoch: int
    ) -> list[Ticket | None]:
        """Initialize several share partitions at their start offsets, with few writes."""
        ...

    def partition_of(self, key: SharePartitionKey) -> int:
        """Return the partition of ``__share_group_state`` that holds the share partition."""
        ...

    def read(self, key: SharePartitionKey) -> PersistedState:
        """Return the stored state of a share partition, or raise why it cannot be used."""
        ...

    def write(self, key: SharePartitionKey, state_epoch: int, delta: Delta) -> Ticket:
        """Write a change; the order of calls is the order of the changes."""
        ...

    def last_write(self, key: SharePartitionKey) -> Ticket | None:
        """Return the ticket of the last write; when it is done, what `read` returns is durable."""
        ...

    def writable_check(self, key: SharePartitionKey) -> Callable[[], None]:
        """Return a check that raises KafkaStorageError while no change could be stored.

        It holds for the share partition as long as the process lives.
        """
        ...

    def summary(self, key: SharePartitionKey) -> StateSummary:
        """Return start offset and delivery complete count, for listing offsets."""
        ...

    def known(self) -> tuple[SharePartitionKey, ...]:
        """Return every known share partition."""
        ...

    def forget_what_failed(self) -> None:
        """Discard state whose write failed, before further decisions are based on it."""
        ...

    def keys_of_topic(self, topic_id: TopicId) -> tuple[SharePartitionKey, ...]:
        """Return the topic's share partitions, of all groups."""
        ...

    def delete(self, keys: Iterable[SharePartitionKey]) -> list[Ticket]:
        """Delete the state of share partitions."""
        ...


DONE = Ticket(0, 0, done=True)
"""The ticket of an operation that writes nothing."""


def for_clients(error: KafkaError) -> KafkaError:
    """Return the error that a client gets for an error of the persister, as Kafka's leader does it.

    State epochs and initialization only exist between brokers.  To a client, a fenced leader is not
    the leader, and a leader whose state was never initialized is broken.
    """
    if isinstance(error, FencedStateEpoch | FencedLeaderEpoch):
        return NotLeaderOrFollower(str(error))
    if isinstance(error, InvalidRequest):
        return UnknownServerError(str(error))
    return error


class NoPersister:
    """Stores only the start offsets of share partitions, and only while the process lives.

    A share partition that is unloaded loses its delivery state from the start offset on.  After a
    restart every group begins anew.
    """

    __slots__ = ("_summaries",)

    def __init__(self) -> None:
        self._summaries: dict[SharePartitionKey, StateSummary] = {}

    def initialize(
        self, key: SharePartitionKey, *, state_epoch: int, start_offset: int
    ) -> Ticket | None:
        self._summaries[key] = StateSummary(state_epoch, 0, start_offset, 0)
        return DONE

    def initialize_all(
        self, starts: Mapping[SharePartitionKey, int], *, state_epoch: int
    ) -> list[Ticket | None]:
        return [
            self.initialize(key, state_epoch=state_epoch, start_offset=start_offset)
            for key, start_offset in starts.items()
        ]

    def partition_of(self, key: SharePartitionKey) -> int:  # noqa: ARG002  Protocol's name.
        return 0

    def read(self, key: SharePartitionKey) -> PersistedState:
        summary = self._summaries.get(key)
        if summary is None:
            raise InvalidRequest(f"{named(key)}: the share partition was never initialized")
        return PersistedState(summary.state_epoch, summary.start_offset, 0, ())

    def write(self, key: SharePartitionKey, state_epoch: int, delta: Delta) -> Ticket:
        self._summaries[key] = StateSummary(
            state_epoch, 0, delta.start_offset, delta.delivery_complete_count
        )
        return DONE

    def last_write(self, key: SharePartitionKey) -> Ticket | None:  # noqa: ARG002  Protocol's name.
        return None

    def writable_check(self, key: SharePartitionKey) -> Callable[[], None]:  # noqa: ARG002  Protocol's name.
        return _is_writable

    def summary(self, key: SharePartitionKey) -> StateSummary:
        return self._summaries.get(key, NO_SUMMARY)

    def known(self) -> tuple[SharePartitionKey, ...]:
        return tuple(self._summaries)

    def forget_what_failed(self) -> None:
        """Do nothing: no write fails."""

    def keys_of_topic(self, topic_id: TopicId) -> tuple[SharePartitionKey, ...]:
        return tuple(key for key in self._summaries if key.topic_id == topic_id)

    def delete(self, keys: Iterable[SharePartitionKey]) -> list[Ticket]:
        for key in keys:
            self._summaries.pop(key, None)
        return []


def _is_writable() -> None:
    """Do nothing: memory is always writable."""
