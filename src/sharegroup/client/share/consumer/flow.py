"""The records that a share consumer has requested, fetched and delivered, at one moment.

broker ---requested---> waiting ---poll---> in flight ---acknowledged---> settled
                        `------ at most in_flight_max together ------'
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The records that are on their way through a share consumer, at one moment.

    Sizes are as on the wire, averaged over the records of one fetch.
    """

    in_flight: int
    """The number of records that are handed out and not settled."""
    in_flight_bytes: int
    """The size of these records."""
    in_flight_max: int | None
    """The limit of records in flight and waiting together; None: there is no limit."""
    waiting: int
    """The number of records that were fetched and wait for the next polls."""
    waiting_bytes: int
    """The size of these records."""
    requested: int
    """The number of records that the fetches under way ask for."""
    is_joined: bool
    """Whether the consumer is a member of its group, as of the last heartbeat."""
    is_paused: bool
    """Whether the consumer fetches no more records, as in a worker that is about to stop."""
    renews_locks: bool
    """Whether locks are renewed by the consumer (``auto_renew``).

    It stops when the broker or the group does not allow renewals.
    """
