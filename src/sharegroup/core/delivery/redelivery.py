"""The delay after which a record that its member released is delivered again.

    ACQUIRED ──released, with a delay──▶ DELAYED ──the delay ends──▶ AVAILABLE

A member that releases a record mostly waits for something: a service that is away, a limit of calls
per minute. Delivered again at once, the record would use up its deliveries within a second. The
delay of a group doubles with each delivery:

    delay 1 s, at most 10 s     delivery  1    2    3    4    5
                                delay     1 s  2 s  4 s  8 s  10 s

A member may name another delay for a record, also none. Only a release has a delay. A lock or a
session that ended, or an unreadable batch, says that a member or a disk is broken, and the record
has waited for the lock already.

A delay ends at a round time, at most a sixteenth of the delay later. Records that are released one
after the other thus have the same due time and stay one run.

Due times in `SharePartition` are those of the clock that it is called with. The stored ones are of
the wall clock; the shell converts them.
"""

from __future__ import annotations

from dataclasses import dataclass

DELAYED_MAX = 10_000
"""Number of delayed records of a share partition from which it delivers no new ones.

It bounds memory, and keeps a snapshot of the state below 1 MiB also with a clock that went back.
"""

GRAINS_PER_DELAY = 16
GRAIN_MS_MIN = 100
"""Due times are multiples of a sixteenth of the delay, and at least of this."""

DOUBLINGS_MAX = 32
"""Doublings after which every delay is at its maximum; a stored delivery count may be larger."""


@dataclass(frozen=True, slots=True)
class RedeliveryDelay:
    """The delay of a group: ``first_ms``, doubled with each delivery up to ``max_ms``.

    If ``max_ms`` is smaller, every delay is ``first_ms``.
    """

    first_ms: int
    max_ms: int

    def after(self, delivery_count: int) -> int:
        """Return the delay in ms after so many deliveries."""
        doublings = min(delivery_count - 1, DOUBLINGS_MAX)
        return min(self.first_ms << doublings, max(self.first_ms, self.max_ms))


def due_time(now_ms: int, delay_ms: int) -> int:
    """Return the round time at which a delay that begins now ends."""
    grain_ms = max(GRAIN_MS_MIN, delay_ms // GRAINS_PER_DELAY)
    return -(-(now_ms + delay_ms) // grain_ms) * grain_ms
