"""Tasks of queues that were removed from TASKS: no worker publishes or runs them.

``manage.py check --database default`` and ``migrate`` warn of those in the outbox, as does a worker
when it starts, and ``manage.py sharegroup_purge --removed-queues`` deletes them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from django.core import checks
from django.db import connections
from django.db.models import Count, Q, QuerySet
from django.tasks import task_backends
from django.tasks.exceptions import InvalidTaskBackend

from sharegroup.django.backend import SharegroupBackend
from sharegroup.django.models import OutboxRow, StoredResult

HINT = (
    "Name the queue in QUEUES again and run a worker until they are published; or delete them: "
    "manage.py sharegroup_purge --removed-queues"
)


def of_removed_queues(database: str) -> QuerySet[StoredResult]:
    """Return the unfinished results in a database whose queue no backend of TASKS has.

    Raises InvalidTaskBackend if TASKS is wrong.
    """
    of_queues = Q()
    for backend in task_backends.all():
        if isinstance(backend, SharegroupBackend) and backend.task_options.database == database:
            of_queues |= Q(backend=backend.alias, queue_name__in=list(backend.queues))
    unfinished = StoredResult.objects.using(database).filter(finished_at=None)
    return unfinished.exclude(of_queues) if of_queues else unfinished


def left_in_the_outbox(database: str) -> Iterator[str]:
    """Yield a sentence for each removed queue with tasks in the outbox."""
    if OutboxRow._meta.db_table not in connections[database].introspection.table_names():
        return
    results = of_removed_queues(database).filter(outboxrow__isnull=False)
    counted = results.order_by("backend", "queue_name").values_list("backend", "queue_name")
    for backend, queue, count in counted.annotate(count=Count("id")):
        yield (
            f"{count} tasks of TASKS[{backend!r}] wait in the outbox of database {database!r} for "
            f"queue {queue!r}, which it does not have, so nobody publishes them."
        )


def check_outbox(
    *, databases: Collection[str] | None = None, **_: Any
) -> list[checks.CheckMessage]:
    """Warn of tasks in the outbox of queues that were removed; a check of Django's."""
    try:
        return [
            checks.Warning(text, hint=HINT, id="sharegroup.W001")
            for database in databases or ()
            for text in left_in_the_outbox(database)
        ]
    except InvalidTaskBackend:
        return []  # The backend's own check reports it.
