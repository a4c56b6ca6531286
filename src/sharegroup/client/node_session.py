"""The client's half of a share session with one broker, without I/O (KIP-932 «Share sessions»).

A session is an agreement on two things: which partitions are fetched, so that a request need
only name changes, and a number that every request raises, so that a lost or doubled request
is noticed.

    epoch 0 (open, all partitions) -> 1 -> 2 -> ... -> 2147483647 -> 1
    epoch -1: close; the broker releases what is still held

The request that opens a session can't carry acknowledgements: nothing is held yet.  After
any failure the only safe step is a new session.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sharegroup.client.acknowledgements import AckBatch
from sharegroup.ids import TopicPartition

OPEN_EPOCH = 0
CLOSE_EPOCH = -1
EPOCH_MAX = 2**31 - 1

Acks = Mapping[TopicPartition, tuple[AckBatch, ...]]


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """What one request says about the session."""

    epoch: int
    named: tuple[TopicPartition, ...]
    """Partitions that join the session, and those that only carry acknowledgements."""
    forgotten: tuple[TopicPartition, ...]


class NodeSession:
    """See the module's text.  One request at a time: `request`, then `answered` or `lose`."""

    __slots__ = ("_epoch", "_partitions")

    def __init__(self) -> None:
        self._epoch = OPEN_EPOCH
        self._partitions: dict[TopicPartition, None] = {}

    @property
    def is_open(self) -> bool:
        """Whether the broker has this session, as far as this side knows."""
        return self._epoch != OPEN_EPOCH

    @property
    def epoch(self) -> int:
        """The epoch of the next request."""
        return self._epoch

    def fetch(self, wanted: Iterable[TopicPartition], acks: Acks) -> SessionRequest:
        """The next ShareFetch: brings the session to ``wanted`` and carries ``acks``."""
        assert self.is_open or not acks, "the request that opens a session carries no acks"
        target = dict.fromkeys(wanted)
        named = [key for key in target if key not in self._partitions]
        # Acknowledging a partition adds it to the session, so it has to be forgotten as well.
        strangers = [key for key in acks if key not in target]
        forgotten = [key for key in self._partitions if key not in target]
        forgotten += [key for key in strangers if key not in self._partitions]
        acked = [key for key in acks if key not in named]
        self._partitions = target
        return SessionRequest(self._epoch, (*named, *acked), tuple(forgotten))

    def answered(self) -> None:
        """The broker took the request: it expects the next number now."""
        self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1

    def lose(self) -> None:
        """The session is gone or in doubt; the next request opens a new one."""
        self._epoch = OPEN_EPOCH
        self._partitions = {}
