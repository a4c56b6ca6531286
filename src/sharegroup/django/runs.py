"""Runs tasks in a worker: the handler of all its topics.

    record    row                       what happens
    first     READY                     RUNNING, the task runs, SUCCESSFUL or READY or FAILED
    again     READY, RUNNING            the same: a retry, or the worker before died
    again     SUCCESSFUL                nothing
    again     FAILED                    dead letter; it runs again if it was redriven since
    another   not READY                 nothing: the task was published twice
    any       none                      dead letter: purged, or another database

At least once: a task runs again if its worker dies after the effect, before the outcome is stored.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.tasks.base import TaskContext, TaskResult, TaskResultStatus
from django.tasks.signals import task_finished, task_started
from django.utils import timezone
from django.utils.json import normalize_json

from sharegroup.django.calls import call_task
from sharegroup.django.connections import ThreadConnections, when_available
from sharegroup.django.json_values import storable
from sharegroup.django.models import StoredResult
from sharegroup.django.options import TaskOptions
from sharegroup.django.results import result_of, with_error, with_worker
from sharegroup.django.sending import TaskOrder
from sharegroup.worker import Record, Reject, Route
from sharegroup.worker.decisions.decide import Bury, Redeliver, decide
from sharegroup.worker.executors.threads import Interrupted

log = logging.getLogger(__name__)

FINISHED = (TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED)


def new_worker_id() -> str:
    """Return an id of this process, for the ``worker_ids`` of results."""
    return f"{socket.gethostname()[:100]}-{os.getpid()}-{secrets.token_hex(3)}"


@dataclass(slots=True)
class _Attempt:
    """A run of a task: its row, and its result if the task could be imported."""

    row: StoredResult
    result: TaskResult | None = None


class TaskRuns:
    """Runs the tasks of a backend, in the threads of a worker."""

    def __init__(self, backend: str, options: TaskOptions, sender: type[object]) -> None:
        self._backend = backend
        self._database = options.database
        self._result_bytes_max = options.result_bytes_max
        self._sender = sender
        self._worker_id: tuple[int, str] = (0, "")
        self.connections = ThreadConnections()
        self.route: Route | None = None
        """A route of the backend, whose policy says whether a failure is the last."""

    def run(self, order: TaskOrder, record: Record) -> None:
        """Run a task and store its outcome; raises what the task raises."""
        with self.connections.of_run():
            row = when_available(self._database, lambda: self._begin(order, record), order.id)
            if row is not None:
                self._call(_Attempt(row), record)

    def fail(self, task_id: str, redrives: int, error: BaseException) -> None:
        """Make a result FAILED whose record became a dead letter, unless it has an outcome.

        Raises the database's error if that is away.
        """
        rows = StoredResult.objects.using(self._database).filter(backend=self._backend)
        row = rows.filter(id=task_id).first()
        if row is None or row.status in FINISHED or row.redrives != redrives:
            return
        attempt = _Attempt(row)
        try:
            attempt.result = result_of(row)
        except Exception as broken:  # noqa: BLE001  Importing a task runs code of the application.
            log.warning("event=task_not_imported task=%s error=%r", row.id, broken)
        outcome = _failure(row, error, is_last=True)
        if self._update(row, outcome):
            self._tell_finished(attempt, outcome)

    def _begin(self, order: TaskOrder, record: Record) -> StoredResult | None:
        """Make the result RUNNING; None if there is nothing to run."""
        rows = StoredResult.objects.using(self._database)
        with transaction.atomic(using=self._database):
            row = rows.select_for_update().filter(id=order.id, backend=self._backend).first()
            if row is None:
                raise Reject(
                    f"task {order.id}: database {self._database!r} has no such row of backend "
                    f"{self._backend!r}: it was purged, or enqueued into another database"
                )
            if row.publication not in ("", order.publication):
                log.info("event=task_duplicate task=%s status=%s", row.id, row.status)
                return None
            if row.status == TaskResultStatus.SUCCESSFUL:
                return None
            if row.status == TaskResultStatus.FAILED and record.redrives <= row.redrives:
                raise Reject(f"task {order.id} has failed; its result has the errors")
            now = timezone.now()
            row.status = TaskResultStatus.RUNNING
            row.publication = order.publication
            row.redrives = record.redrives
            row.started_at = row.started_at or now
            row.last_attempted_at, row.finished_at = now, None
            row.worker_ids = with_worker(row.worker_ids, self._id())
            row.save(using=self._database)
        return row

    def _call(self, attempt: _Attempt, record: Record) -> None:
        try:
            attempt.result = result = result_of(attempt.row)
            task_started.send_robust(sender=self._sender, task_result=result)
            context = [TaskContext(task_result=result)] if result.task.takes_context else []
            returned = call_task(result.task, [*context, *result.args], result.kwargs)
        except Interrupted:
            raise  # The worker has decided about the record, and `fail` notes a last failure.
        except BaseException as error:
            step = self._judged(error, record)
            if isinstance(step, Redeliver):
                self._store(attempt, {"status": TaskResultStatus.READY})
            else:
                self._store_failure(attempt, error, is_last=isinstance(step, Bury))
            raise
        self._succeeded(attempt, returned)

    def _succeeded(self, attempt: _Attempt, returned: object) -> None:
        row = attempt.row
        try:
            what = f"return value of {row.task_path}"
            value = storable(normalize_json(returned), what, self._result_bytes_max)
        except Exception as error:
            # Not retried: the task has done its work, and would do it again.
            self._store_failure(attempt, error, is_last=True)
            raise Reject(str(error)) from error
        outcome = {
            "status": TaskResultStatus.SUCCESSFUL,
            "finished_at": timezone.now(),
            "return_value": value,
        }
        self._store(attempt, outcome)

    def _store_failure(self, attempt: _Attempt, error: BaseException, *, is_last: bool) -> None:
        self._store(attempt, _failure(attempt.row, error, is_last=is_last))

    def _store(self, attempt: _Attempt, outcome: dict[str, Any]) -> None:
        """Store the outcome of an attempt, unless another attempt has begun since."""
        row = attempt.row
        if when_available(self._database, lambda: self._update(row, outcome), row.id):
            self._tell_finished(attempt, outcome)
        else:
            log.warning("event=task_overtaken task=%s outcome=%s", row.id, outcome["status"])

    def _update(self, row: StoredResult, outcome: dict[str, Any]) -> bool:
        rows = StoredResult.objects.using(self._database).filter(id=row.id)
        # A lock that was lost lets another worker begin while this one still runs.
        mine = rows.filter(last_attempted_at=row.last_attempted_at)
        return bool(mine.exclude(status__in=FINISHED).update(**outcome))

    def _tell_finished(self, attempt: _Attempt, outcome: dict[str, Any]) -> None:
        """Change the result that receivers of `task_started` and the task have; send the signal."""
        if attempt.result is None:
            return  # The task cannot be imported.
        for name, value in outcome.items():
            setattr(attempt.row, name, value)
        stored = result_of(attempt.row)
        for name in ("status", "errors", "finished_at", "_return_value"):
            object.__setattr__(attempt.result, name, getattr(stored, name))
        if attempt.result.is_finished:
            task_finished.send_robust(sender=self._sender, task_result=attempt.result)

    def _judged(self, error: BaseException, record: Record) -> object:
        assert self.route is not None, "set with the declaration"
        now_ms = time.time_ns() // 1_000_000
        return decide(
            self.route, error, record.story, now_ms=now_ms, chance=0.5, holding_allowed_seconds=0
        )

    def _id(self) -> str:
        if self._worker_id[0] != os.getpid():
            self._worker_id = (os.getpid(), new_worker_id())
        return self._worker_id[1]


def _failure(row: StoredResult, error: BaseException, *, is_last: bool) -> dict[str, Any]:
    outcome: dict[str, Any] = {
        "status": TaskResultStatus.FAILED if is_last else TaskResultStatus.READY,
        "errors": with_error(row.errors, error),
    }
    if is_last:
        outcome["finished_at"] = timezone.now()
    return outcome
