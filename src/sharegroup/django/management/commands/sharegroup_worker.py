"""``manage.py sharegroup_worker``: runs the tasks of a backend until SIGTERM or SIGINT."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections
from django.tasks import DEFAULT_TASK_BACKEND_ALIAS, task_backends

from sharegroup.django.backend import SharegroupBackend
from sharegroup.django.models import OutboxRow, StoredResult
from sharegroup.django.options import CONCURRENCY_MAX
from sharegroup.django.removed_queues import HINT, left_in_the_outbox
from sharegroup.django.task_app import as_worker
from sharegroup.errors import KafkaError
from sharegroup.worker.lifecycle.program import Surroundings, run


class Command(BaseCommand):
    """Runs tasks, and publishes those that were left in the outbox."""

    help = "Runs the tasks of a backend of TASKS until SIGTERM or SIGINT."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        parser.add_argument("--backend", default=DEFAULT_TASK_BACKEND_ALIAS, help="Name in TASKS.")
        parser.add_argument("--queue", action="append", default=[], help="Only this; repeatable.")
        parser.add_argument("--concurrency", type=int, help="Tasks that run at the same time.")
        parser.add_argument("--health-port", type=int, help="Port of /live, /ready and /status.")
        parser.add_argument("--metrics-port", type=int, help="Port of /metrics.")

    def handle(self, **options: Any) -> None:
        """Run the worker; the exit code is 0 after a stop that was asked for, else 1."""
        backend = backend_named(options["backend"])
        queues, concurrency = options["queue"], options["concurrency"]
        for queue in queues:
            if queue not in backend.queues:
                raise CommandError(
                    f"--queue {queue!r}: expected one of QUEUES: {', '.join(backend.queues)}"
                )
        if concurrency is not None and not 1 <= concurrency <= CONCURRENCY_MAX:
            raise CommandError(f"--concurrency {concurrency}: expected 1 to {CONCURRENCY_MAX}")
        check_tables(backend.task_options.database)
        for text in left_in_the_outbox(backend.task_options.database):
            self.stderr.write(self.style.WARNING(f"{text} {HINT}"))
        app = as_worker(backend.task_app, queues, concurrency=concurrency)
        around = Surroundings(
            health_port=options["health_port"],
            metrics_port=options["metrics_port"],
            module=f"TASKS[{backend.alias!r}]",
        )
        try:
            code = run(app, around)
        except KafkaError as error:  # Its message names the cause; the traceback adds nothing.
            raise CommandError(str(error)) from error
        sys.exit(code)


def backend_named(alias: str) -> SharegroupBackend:
    """Return the backend with this name in TASKS; raises CommandError for others."""
    backend = task_backends[alias]
    if not isinstance(backend, SharegroupBackend):
        raise CommandError(
            f"TASKS[{alias!r}] is a {type(backend).__name__}; expected a SharegroupBackend: "
            f"--backend names another one"
        )
    return backend


def check_tables(database: str) -> None:
    """Raise CommandError if the tables are missing."""
    names = connections[database].introspection.table_names()
    for model in (StoredResult, OutboxRow):
        if model._meta.db_table not in names:
            raise CommandError(
                f"database {database!r} has no table {model._meta.db_table}; run: manage.py "
                f"migrate --database {database}"
            )
