"""Selects the locks to renew automatically, and those that are too old to be renewed.

`renewal_schedule` says when a lock is due.  A lock whose records were acquired more than
``renew_age_max_ms`` ago is no longer renewed.  That is logged once, because its records will be
delivered to another member.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import groupby

from sharegroup.client.share.consumer.locks import AcquisitionLock
from sharegroup.client.share.session.renewal_schedule import seconds_left_when_due

log = logging.getLogger(__name__)


def due_locks(
    locks: Iterable[AcquisitionLock], *, now: float, lock_seconds: float, age_max_seconds: float
) -> tuple[list[AcquisitionLock], list[AcquisitionLock]]:
    """Return the locks to renew now, and the locks that are too old from now on."""
    due, let_go = [], []
    seconds_left = seconds_left_when_due(lock_seconds)
    for lock in locks:
        if lock.let_go or now >= lock.deadline or lock.deadline - now > seconds_left:
            continue
        if now - lock.acquired_at > age_max_seconds:
            lock.let_go = True
            let_go.append(lock)
        else:
            due.append(lock)
    return due, let_go


def say_let_go(group_id: str, locks: Iterable[AcquisitionLock], age_max_ms: int) -> None:
    """Log the locks that are no longer renewed, with one line for each partition."""
    by_partition = sorted(locks, key=lambda lock: (lock.held.topic_partition, lock.first))
    for (topic, partition), let_go in groupby(by_partition, lambda lock: lock.held.topic_partition):
        ranges = [f"{lock.first}-{lock.end - 1}" for lock in let_go]
        log.warning(
            "event=renewal.ended group=%s topic=%s partition=%s offsets=%s renew_age_max_ms=%s "
            "action='the locks are no longer renewed, and the records will be delivered again'",
            group_id,
            topic,
            partition,
            ",".join(ranges[:5]) + (",..." if len(ranges) > 5 else ""),
            age_max_ms,
        )
