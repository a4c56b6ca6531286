"""The client's side of a share session with one broker, without I/O (KIP-932 «Share sessions»).

In a session, client and broker agree on the partitions to fetch, so a request names only changes.
They also agree on the session epoch, which every request raises, so that a lost or duplicated
request is noticed.

    epoch 0 (open, all partitions) -> 1 -> 2 -> ... -> 2147483647 -> 1
    epoch -1: close; the broker releases the records still held

The request that opens a session cannot carry acknowledgements, because no record is held yet.
After any failure a new session is the only safe step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sharegroup.client.share.session.acknowledgements import AcknowledgementBatch
from sharegroup.ids import TopicIdPartition

OPEN_EPOCH = 0
CLOSE_EPOCH = -1
EPOCH_MAX = 2**31 - 1

Acks = Mapping[TopicIdPartition, tuple[AcknowledgementBatch, ...]]


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """The session epoch and the partitions that one request names."""

    epoch: int
    named: tuple[TopicIdPartition, ...]
    """Partitions that join the session, and partitions that only carry acknowledgements."""
    forgotten: tuple[TopicIdPartition, ...]


class NodeSession:
    """The epoch and partitions of a share session.

    Requests are sent one at a time: call `fetch` (or read `epoch`), then `answered` or `lose`.
    """

    __slots__ = ("_epoch", "_partitions")

    def __init__(self) -> None:
        self._epoch = OPEN_EPOCH
        self._partitions: dict[TopicIdPartition, None] = {}

    @property
    def is_open(self) -> bool:
        """Whether the broker has this session, as far as the client knows."""
        return self._epoch != OPEN_EPOCH

    @property
    def epoch(self) -> int:
        """The epoch of the next request."""
        return self._epoch

    def fetch(self, wanted: Iterable[TopicIdPartition], acks: Acks) -> SessionRequest:
        """Return the session part of the next ShareFetch, which fetches the ``wanted`` partitions.

        The request also names the partitions of ``acks``, to carry their acknowledgements.
        """
        assert self.is_open or not acks, "the request that opens a session carries no acks"
        target = dict.fromkeys(wanted)
        named = [key for key in target if key not in self._partitions]
        # Acknowledging a partition adds it to the session, so the request has to remove it, too.
        strangers = [key for key in acks if key not in target]
        forgotten = [key for key in self._partitions if key not in target]
        forgotten += [key for key in strangers if key not in self._partitions]
        acked = [key for key in acks if key not in named]
        self._partitions = target
        return SessionRequest(self._epoch, (*named, *acked), tuple(forgotten))

    def answered(self) -> None:
        """Note that the broker accepted the request, so it expects the next epoch now."""
        self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1

    def lose(self) -> None:
        """Note that the session is lost or in doubt; the next request opens a new one."""
        self._epoch = OPEN_EPOCH
        self._partitions = {}
