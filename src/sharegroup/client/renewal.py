"""Which locks are to begin anew by themselves, and which are let go because they are too old.

    acquired          1/3             2/3            deadline
       |---------------|----------------|---------------|
                        renew from here on, again and again until the broker confirms

A third of the lock's time is gone when it is renewed first, so two attempts may fail.  A lock
whose record was acquired more than ``renew_age_max_ms`` ago is renewed no more, which is said
once: whoever holds it will find the record delivered to somebody else.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import groupby

from sharegroup.client.locks import AcquisitionLock

log = logging.getLogger(__name__)

TICKS_IN_A_LOCK = 12
TICK_SECONDS_MIN = 0.02
TICK_SECONDS_MAX = 1.0


def tick_seconds(lock_ms: int) -> float:
    """How often to look for locks that are due: a few times in each third."""
    return min(max(lock_ms / 1000 / TICKS_IN_A_LOCK, TICK_SECONDS_MIN), TICK_SECONDS_MAX)


def due_locks(
    locks: Iterable[AcquisitionLock], *, now: float, lock_seconds: float, age_max_seconds: float
) -> tuple[list[AcquisitionLock], list[AcquisitionLock]]:
    """The locks to be renewed now, and those that are let go now."""
    due, let_go = [], []
    for lock in locks:
        if lock.let_go or now >= lock.deadline or lock.deadline - now > lock_seconds * 2 / 3:
            continue
        if now - lock.acquired_at > age_max_seconds:
            lock.let_go = True
            let_go.append(lock)
        else:
            due.append(lock)
    return due, let_go


def say_let_go(group_id: str, locks: Iterable[AcquisitionLock], age_max_ms: int) -> None:
    """One line for each partition."""
    by_partition = sorted(locks, key=lambda lock: (lock.held.topic_partition, lock.first))
    for (topic, partition), let_go in groupby(by_partition, lambda one: one.held.topic_partition):
        ranges = [f"{lock.first}-{lock.end - 1}" for lock in let_go]
        log.warning(
            "renewal.ended group=%s topic=%s partition=%s offsets=%s renew_age_max_ms=%s "
            "(their locks end now; whoever settles these records will find them redelivered)",
            group_id,
            topic,
            partition,
            ",".join(ranges[:5]) + (",..." if len(ranges) > 5 else ""),
            age_max_ms,
        )
