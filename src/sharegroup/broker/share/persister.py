"""What share partitions and groups ask of whoever keeps delivery state.

    share partition ── read, write ─────────────▶ Persister ──▶ __share_group_state
    group           ── initialize, delete, list ▶

The real one is `ShareCoordinator`.  Every question is one plain call: what it decides is decided
when it returns, and a `Ticket` says when that is durable.  `NoPersister` keeps nothing, for tests
and for measuring what durability costs (Kafka's NoOpStatePersister, and its internal setting
``group.share.persister.class.name``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from sharegroup.core.delivery import Delta
from sharegroup.core.share_state import NO_SUMMARY, PersistedState, StateSummary, named
from sharegroup.errors import InvalidRequest
from sharegroup.ids import SharePartitionKey, TopicId
from sharegroup.storage.tickets import Ticket


class Persister(Protocol):
    """See the module's text.  Raises KafkaError for what cannot be kept or is fenced."""

    def initialize(
        self, key: SharePartitionKey, *, state_epoch: int, start_offset: int
    ) -> Ticket | None:
        """Begin a share partition anew; None when it had begun just so already."""
        ...

    def read(self, key: SharePartitionKey) -> PersistedState:
        """What the share partition is made from, or why it cannot be."""
        ...

    def write(self, key: SharePartitionKey, state_epoch: int, delta: Delta) -> Ticket:
        """Write what changed; the order of calls is the order in which it holds."""
        ...

    def last_write(self, key: SharePartitionKey) -> Ticket | None:
        """When this is durable, so is all that `read` tells of the share partition."""
        ...

    def check_writable(self, key: SharePartitionKey) -> None:
        """Raise KafkaStorageError while no change of this share partition could be kept."""
        ...

    def summary(self, key: SharePartitionKey) -> StateSummary:
        """Start offset and delivery complete count, for listing offsets."""
        ...

    def known(self) -> tuple[SharePartitionKey, ...]:
        """Every share partition that is known."""
        ...

    def forget_what_failed(self) -> None:
        """Know only what is durable or on its way, before anything is decided on more."""
        ...

    def keys_of_topic(self, topic_id: TopicId) -> tuple[SharePartitionKey, ...]:
        """The topic's share partitions, of all groups."""
        ...

    def delete(self, keys: Iterable[SharePartitionKey]) -> list[Ticket]:
        """Forget share partitions."""
        ...


DONE = Ticket(0, 0, done=True)
"""What there is to wait for when nothing is written."""


class NoPersister:
    """Remembers where share partitions begin, as long as the process lives, and nothing else.

    A share partition that leaves memory forgets who settled what from its start offset on, and a
    restart begins every group anew.
    """

    __slots__ = ("_summaries",)

    def __init__(self) -> None:
        self._summaries: dict[SharePartitionKey, StateSummary] = {}

    def initialize(
        self, key: SharePartitionKey, *, state_epoch: int, start_offset: int
    ) -> Ticket | None:
        self._summaries[key] = StateSummary(state_epoch, 0, start_offset, 0)
        return DONE

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

    def check_writable(self, key: SharePartitionKey) -> None:
        """Memory always takes it."""

    def summary(self, key: SharePartitionKey) -> StateSummary:
        return self._summaries.get(key, NO_SUMMARY)

    def known(self) -> tuple[SharePartitionKey, ...]:
        return tuple(self._summaries)

    def forget_what_failed(self) -> None:
        """Nothing fails."""

    def keys_of_topic(self, topic_id: TopicId) -> tuple[SharePartitionKey, ...]:
        return tuple(key for key in self._summaries if key.topic_id == topic_id)

    def delete(self, keys: Iterable[SharePartitionKey]) -> list[Ticket]:
        for key in keys:
            self._summaries.pop(key, None)
        return []
