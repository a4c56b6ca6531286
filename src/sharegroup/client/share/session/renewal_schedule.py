"""The renewal times of acquisition locks, and the errors that show that renewal is not possible.

    acquired          1/3             2/3            deadline
       |---------------|----------------|---------------|
                        renewed from here on, repeatedly until the broker confirms

The first renewal is after a third of the lock duration, so two attempts may fail.  A member that
knows the deadline of each lock looks often for the locks that are due (`look_seconds`); a member
that renews all of its locks together does so once in each third (`interval_seconds`).
"""

from __future__ import annotations

from sharegroup.errors import KafkaError, UnsupportedVersion

RENEWALS_PER_LOCK = 3
LOCK_MS_UNTIL_KNOWN = 1_000
"""The lock duration that is assumed until a broker has sent it."""

LOOKS_PER_LOCK = 12
LOOK_SECONDS_MIN = 0.02
LOOK_SECONDS_MAX = 1.0


def interval_seconds(lock_ms: int | None) -> float:
    """Return the interval in which all locks are renewed together; None: not known yet."""
    seconds = (lock_ms or LOCK_MS_UNTIL_KNOWN) / RENEWALS_PER_LOCK / 1000
    return max(seconds, LOOK_SECONDS_MIN)


def look_seconds(lock_ms: int) -> float:
    """Return the interval between looks for due locks: a few looks in each third."""
    return min(max(lock_ms / 1000 / LOOKS_PER_LOCK, LOOK_SECONDS_MIN), LOOK_SECONDS_MAX)


def seconds_left_when_due(lock_seconds: float) -> float:
    """Return the time before its deadline from which on a lock is due for renewal."""
    return lock_seconds * (RENEWALS_PER_LOCK - 1) / RENEWALS_PER_LOCK


def forbids_renewal(error: KafkaError) -> bool:
    """Whether no renewal can succeed: the broker has no renewal, or the group does not allow it.

    For the group only the text says so, not an error code.
    """
    return isinstance(error, UnsupportedVersion) or any(
        words in str(error) for words in ("is not enabled", "share.renew.acknowledge")
    )
