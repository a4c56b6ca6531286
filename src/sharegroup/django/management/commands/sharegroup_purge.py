"""``manage.py sharegroup_purge``: deletes results of tasks that finished long ago."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.tasks import DEFAULT_TASK_BACKEND_ALIAS
from django.utils import timezone

from sharegroup.django.management.commands.sharegroup_worker import backend_named
from sharegroup.django.models import StoredResult
from sharegroup.django.removed_queues import of_removed_queues
from sharegroup.durations import seconds

OLDER_THAN = "14d"
ROWS_PER_STATEMENT_MAX = 1_000
SECONDS_MAX = 100 * 366 * 86_400


class Command(BaseCommand):
    """Deletes old results of tasks that have finished, or of queues that are gone."""

    help = "Deletes results of finished tasks; a dead letter of such a task cannot be redriven."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        parser.add_argument("--backend", default=DEFAULT_TASK_BACKEND_ALIAS, help="Name in TASKS.")
        parser.add_argument(
            "--older-than",
            default=OLDER_THAN,
            help=f"Time since the task finished, as 12h or 30d.  Default: {OLDER_THAN}.",
        )
        parser.add_argument(
            "--removed-queues",
            action="store_true",
            help="Instead, delete unfinished tasks of queues that no backend of TASKS has, "
            "if they were enqueued so long ago.",
        )

    def handle(self, **options: Any) -> None:
        """Delete the rows in portions, so that no transaction is long."""
        backend = backend_named(options["backend"])
        try:
            age_seconds = min(seconds(options["older_than"]), SECONDS_MAX)
        except ValueError as error:
            raise CommandError(f"--older-than: {error}") from error
        before = timezone.now() - timedelta(seconds=age_seconds)
        database = backend.task_options.database
        if options["removed_queues"]:
            old, what = of_removed_queues(database).filter(enqueued_at__lt=before), "were enqueued"
        else:
            rows = StoredResult.objects.using(database)
            old, what = rows.filter(backend=backend.alias, finished_at__lt=before), "finished"
        count = 0
        while ids := list(old.values_list("id", flat=True)[:ROWS_PER_STATEMENT_MAX]):
            # A row that runs again since then, after a redrive, has no time of its end.
            # By id, so that arguments and return values are not read.
            count += old.filter(id__in=ids).only("id").delete()[1].get(StoredResult._meta.label, 0)
        self.stdout.write(f"purged {count} results that {what} before {before.isoformat()}")
