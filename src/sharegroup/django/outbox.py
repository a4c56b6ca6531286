"""The outbox: tasks whose records are to be published, in the database of the results.

    enqueue   the row is written in the caller's transaction, claimed by its process
    commit    the process publishes the row and deletes it
    relay     takes rows whose claim has lapsed, because the process died or no broker answered

A claim is a time, not a lock: no transaction is open while a broker is asked.  While processes live
and their clocks agree to `CLAIM_SECONDS`, a row is published once; otherwise twice, and the second
record does nothing (`runs`).  A clock that is wrong by hours delays no row.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connections, transaction
from django.db.models import Q, QuerySet
from django.tasks.base import TaskResult
from django.utils import timezone

from sharegroup.django.models import OutboxRow
from sharegroup.django.results import row_of

CLAIM_SECONDS = 15.0
"""The time in which a claimed row is to be published; longer than `sending.SEND_SECONDS`."""
AHEAD_SECONDS = 2 * CLAIM_SECONDS
"""A claim that ends later than this is that of a clock that is ahead, and does not count."""
ROWS_PER_TURN_MAX = 500
PUBLISHED = ("result__queue_name", "result__priority", "result__run_after")
"""What is read of a row and its result, besides their ids, to publish it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingTask:
    """A task to be published."""

    row_id: int
    id: str
    queue_name: str
    priority: int
    run_after: datetime | None


def put(result: TaskResult, database: str, *, is_claimed: bool) -> WaitingTask:
    """Write the row of a result and the one that publishes it, in the caller's transaction."""
    stored = row_of(result)
    stored.save(using=database, force_insert=True)
    claimed_seconds = CLAIM_SECONDS if is_claimed else 0.0
    row = OutboxRow(result=stored, claimed_until=_after(claimed_seconds))
    row.save(using=database, force_insert=True)
    return _waiting(row)


def claim(database: str, backend: str, queues: Collection[str]) -> list[WaitingTask]:
    """Claim up to `ROWS_PER_TURN_MAX` rows that no process publishes, the oldest first."""
    features = connections[database].features
    skips = features.has_select_for_update_skip_locked
    token = uuid.uuid4().hex
    is_free = Q(claimed_until__lte=timezone.now()) | Q(claimed_until__gt=_after(AHEAD_SECONDS))
    free = OutboxRow.objects.using(database).filter(is_free)
    chosen = free.filter(result__backend=backend, result__queue_name__in=list(queues))
    if skips:
        of = {"of": ("self",)} if features.has_select_for_update_of else {}
        chosen = chosen.select_for_update(skip_locked=True, **of)
    # Without locks no transaction: in SQLite one that reads before it writes fails if another one
    # writes between.  The condition on the time decides which of two claims counts.
    with transaction.atomic(using=database) if skips else nullcontext():
        ids = list(chosen.order_by("id").values_list("id", flat=True)[:ROWS_PER_TURN_MAX])
        if not ids:
            return []
        free.filter(id__in=ids).update(claim=token, claimed_until=_after(CLAIM_SECONDS))
    claimed = OutboxRow.objects.using(database).filter(id__in=ids, claim=token)
    # Without the arguments, which may have a mebibyte each.
    rows = claimed.select_related("result").only(*PUBLISHED).order_by("id")
    return [_waiting(row) for row in rows]


def remove(database: str, tasks: Sequence[WaitingTask]) -> None:
    """Delete the rows of tasks that are published."""
    for rows in _portions(database, tasks):
        rows.delete()


def give_back(database: str, tasks: Sequence[WaitingTask], after_seconds: float) -> None:
    """End the claims on rows that could not be published; the relay takes them after a time."""
    for rows in _portions(database, tasks):
        rows.update(claim="", claimed_until=_after(after_seconds))


def _portions(database: str, tasks: Sequence[WaitingTask]) -> Iterator[QuerySet[OutboxRow]]:
    """Yield the rows of tasks, up to `ROWS_PER_TURN_MAX` at a time."""
    for first in range(0, len(tasks), ROWS_PER_TURN_MAX):
        ids = [task.row_id for task in tasks[first : first + ROWS_PER_TURN_MAX]]
        yield OutboxRow.objects.using(database).filter(id__in=ids)


def _after(seconds: float) -> datetime:
    return timezone.now() + timedelta(seconds=seconds)


def _waiting(row: OutboxRow) -> WaitingTask:
    stored = row.result
    return WaitingTask(
        row_id=row.id,
        id=stored.id,
        queue_name=stored.queue_name,
        priority=stored.priority,
        run_after=stored.run_after,
    )
