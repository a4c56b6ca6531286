"""Tasks commit with the caller's transaction, and are published once, here or by a relay."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError, connections, transaction
from django.tasks import TaskResultStatus, task_backends
from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist, TaskResultMismatch
from django.test.utils import CaptureQueriesContext

from sharegroup.client import IllegalStateError
from sharegroup.django.enqueueing import enqueue
from sharegroup.django.models import OutboxRow, StoredResult
from sharegroup.django.outbox import claim, give_back, put, remove
from sharegroup.django.publisher import PUBLISHERS, Publishers
from sharegroup.django.results import new_result
from sharegroup.django.sending import SEND_SECONDS, TaskOrder
from sharegroup.django.task_app import TaskApp, as_worker, task_app
from sharegroup.worker import Event, Reject, Retry
from tests.integration.django import jobs
from tests.integration.django.conftest import working
from tests.integration.django.waiting import finished, until
from tests.support.limits import HANGING_SECONDS

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[3]


class Roll(Exception):
    """Rolls a transaction back."""


@contextmanager
def rolled_back(database: str) -> Iterator[None]:
    with suppress(Roll), transaction.atomic(using=database):
        yield
        raise Roll


def keys(broker: Any, name: str, level: str = "normal") -> Counter[str]:
    topic = f"tasks-{name}.default.{level}"
    return Counter(record.key.decode() for record in broker.records(topic))


def waiting(alias: str) -> list[str]:
    database = "postgres" if alias == "postgres" else "default"
    return list(OutboxRow.objects.using(database).values_list("result_id", flat=True))


def test_enqueue_commits_with_the_callers_transaction(alias: str, broker: Any) -> None:
    task = jobs.add.using(backend=alias)
    task.enqueue(1)  # The topic exists.
    with rolled_back(alias):
        gone = task.enqueue(2)
    with transaction.atomic(using=alias):
        kept = task.enqueue(3)
        with rolled_back(alias):
            undone = task.enqueue(4)
        late = task.enqueue(5)
        assert keys(broker, alias)[kept.id] == 0
        assert kept.id in waiting(alias)
    published = keys(broker, alias)
    assert [published[result.id] for result in (gone, kept, undone, late)] == [0, 1, 0, 1]
    assert waiting(alias) == []
    for result in (gone, undone):
        with pytest.raises(TaskResultDoesNotExist):
            task.get_result(result.id)


def test_many_tasks_of_a_transaction_are_published_together(alias: str, broker: Any) -> None:
    task = jobs.add.using(backend=alias)
    with transaction.atomic(using=alias):
        results = [task.enqueue(number) for number in range(30)]
        assert len(connections[alias].run_on_commit) == 1
    published = keys(broker, alias)
    assert [published[result.id] for result in results] == [1] * 30


def test_rows_that_their_process_left_are_published_by_the_relay(worked: str, broker: Any) -> None:
    task = jobs.add.using(backend=worked)
    result = new_result(task, [7], {}, worked)
    with transaction.atomic(using=worked):
        put(result, worked, is_claimed=False)
    assert finished(task.get_result(result.id)).return_value == 7
    assert keys(broker, worked)[result.id] == 1


def test_a_claimed_row_is_left_alone(worked: str) -> None:
    task = jobs.add.using(backend=worked)
    result = new_result(task, [7], {}, worked)
    with transaction.atomic(using=worked):
        row = put(result, worked, is_claimed=True)
    assert result.id not in {task.id for task in claim(worked, worked, ["default"])}
    remove(worked, [row])


def test_a_claim_of_a_clock_that_is_hours_ahead_does_not_count(alias: str) -> None:
    name = f"{alias}-clocks"  # No relay has this backend's name.
    with transaction.atomic(using=alias):
        row = put(new_result(jobs.add.using(backend=alias), [7], {}, name), alias, is_claimed=True)
    assert claim(alias, name, ["default"]) == []
    ahead = datetime.now(UTC) + timedelta(hours=3)
    OutboxRow.objects.using(alias).filter(id=row.row_id).update(claimed_until=ahead)
    assert claim(alias, name, ["default"]) == [row]
    assert claim(alias, name, ["default"]) == []
    remove(alias, [row])


def test_relay_does_not_read_arguments(alias: str) -> None:
    name = f"{alias}-arguments"  # No relay has this backend's name.
    with transaction.atomic(using=alias):
        row = put(new_result(jobs.add.using(backend=alias), [7], {}, name), alias, is_claimed=False)
    with CaptureQueriesContext(connections[alias]) as queries:
        assert claim(alias, name, ["default"]) == [row]
    assert not [query for query in queries if "args" in query["sql"]]
    remove(alias, [row])


def test_relays_never_claim_the_same_row(alias: str) -> None:
    """Four relays claim at the same moment, in rounds; after each the claims are taken back."""
    name, rounds = f"{alias}-claims", 15  # No relay has this backend's name.
    with transaction.atomic(using=alias):
        rows = [
            put(
                new_result(jobs.add.using(backend=alias), [number], {}, name),
                alias,
                is_claimed=False,
            )
            for number in range(20)
        ]
    together = threading.Barrier(4, timeout=HANGING_SECONDS)

    def relay(number: int) -> list[tuple[int, str]]:
        claimed = []
        try:
            connections[alias].ensure_connection()
            for turn in range(rounds):
                together.wait()
                claimed += [(turn, row.id) for row in claim(alias, name, ["default"])]
                together.wait()
                if number == 0:
                    give_back(alias, rows, -1.0)
        finally:
            connections.close_all()
        return claimed

    with ThreadPoolExecutor(4) as pool:
        claimed = Counter(found for of_relay in pool.map(relay, range(4)) for found in of_relay)
    assert claimed == Counter((turn, row.id) for turn in range(rounds) for row in rows)
    StoredResult.objects.using(alias).filter(backend=name).delete()


def changed_app(alias: str, **options: Any) -> TaskApp:
    backend: Any = task_backends[alias]
    return task_app(alias, replace(backend.task_options, **options), backend.queues, type(backend))


def test_without_a_broker_tasks_are_stored_and_callers_wait_once(
    project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHAREGROUP_BOOTSTRAP", "127.0.0.1:1")
    away = changed_app("short", grace="31s")
    task = jobs.add.using(backend="short")
    results = [enqueue(away, task, [1], {})]
    began = time.monotonic()
    results += [enqueue(away, task, [number], {}) for number in range(5)]
    assert time.monotonic() - began < SEND_SECONDS
    assert {result.id for result in results} <= set(waiting("short"))
    assert PUBLISHERS.is_paused(away)
    rows = OutboxRow.objects.filter(result__in=[result.id for result in results])
    assert all(row.claimed_until <= datetime.now(UTC) for row in rows)
    rows.delete()


def test_options_that_connect_nothing_keep_no_other_publisher_open(project: Any) -> None:
    publishers = Publishers()
    wrong = changed_app("short", client={"security_protocol": "SSL", "ssl_cafile": "/nowhere.pem"})
    with pytest.raises(Exception, match=r"nowhere\.pem"):
        publishers.of(wrong).publish([])
    good = publishers.of(changed_app("default"))
    good.publish([])
    publishers.close()
    with pytest.raises(IllegalStateError, match="after it was closed"):
        good.publish([])


def test_record_of_a_task_that_was_published_twice_does_nothing(worked: str, broker: Any) -> None:
    name = f"twice {worked}"
    task = jobs.count.using(backend=worked)
    result = finished(task.enqueue(name))
    order = TaskOrder(id=result.id, publication="another", priority=0)
    value = f'{{"id":"{order.id}","publication":"{order.publication}","priority":0}}'
    broker.produce(f"tasks-{worked}.default.normal", value, key=result.id)
    last = finished(task.enqueue("after it"))
    assert (last.status, jobs.RUNS[name]) == (TaskResultStatus.SUCCESSFUL, 1)
    assert task.get_result(result.id).attempts == 1


@pytest.mark.parametrize("task", ["sleep_long", "sleep_in_group"])
def test_a_task_that_runs_too_long_fails_by_its_dead_letter(
    project: Any, workers: Callable[[str], None], task: str
) -> None:
    workers("short")
    result = finished(getattr(jobs, task).using(backend="short").enqueue())
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 3)
    assert result.errors[-1].exception_class.__name__ == "HandlingTimeout"


def test_a_process_that_dies_beside_its_dead_letter_leaves_no_result_running(
    project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = changed_app("short", name="tasks-letters", retry=Retry(max_attempts=1))
    result = enqueue(tasks, jobs.sleep_long.using(backend="short"), [], {})
    seen: list[str] = []
    times_away = iter([True, True])

    def status() -> str:
        try:
            return StoredResult.objects.get(id=result.id).status
        finally:
            connections.close_all()

    def note(event: Event) -> None:  # What is stored when the letter is written, and no later.
        with ThreadPoolExecutor(1) as pool:
            seen.append(pool.submit(status).result())

    def fail(*arguments: Any) -> None:
        if next(times_away, False):
            raise OperationalError("the database is away")
        tasks_fail(*arguments)

    worker = tasks.another()
    tasks_fail = worker.runs.fail
    monkeypatch.setattr(worker.runs, "fail", fail)
    app = as_worker(worker)
    app.on("record.dead_lettered", note)
    with working(app):
        until(lambda: bool(seen), lambda: seen)
        assert seen == [TaskResultStatus.FAILED]
        # The record is delivered again, if the process died before it was settled.
        row = StoredResult.objects.get(id=result.id)
        record: Any = SimpleNamespace(redrives=0)
        with pytest.raises(Reject, match="has failed"):
            tasks.runs.run(TaskOrder(id=row.id, publication=row.publication, priority=0), record)


def test_waiting_for_a_turn_is_not_running(project: Any, workers: Callable[[str], None]) -> None:
    workers("short")
    results = [
        jobs.sleep_short.using(backend="short", priority=priority).enqueue()
        for priority in (1, 1, 0, 0, -1, -1)
    ]
    statuses = [(finished(result).status, result.attempts) for result in results]
    assert statuses == [(TaskResultStatus.SUCCESSFUL, 1)] * 6  # Each ran for half of its limit.


def test_connections_that_the_database_closed_are_renewed(worked: str) -> None:
    if worked != "postgres":
        pytest.skip("SQLite has no server")
    task = jobs.add.using(backend=worked)
    finished(task.enqueue(1))
    with connections[worked].cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND usename = current_user AND backend_type = %s",
            ["client backend"],
        )
        assert cursor.fetchone()[0] >= 1
    assert finished(task.enqueue(2)).return_value == 2


def test_an_interrupted_task_leaves_no_transaction_to_the_next_one(
    project: Any, workers: Callable[[str], None]
) -> None:
    workers("short")
    interrupted = jobs.stay_in_transaction.using(backend="short").enqueue()
    assert finished(interrupted).status == TaskResultStatus.FAILED
    # In the same thread, because this backend has one for each topic.
    assert finished(jobs.add.using(backend="short").enqueue(1)).return_value == 1


def test_results_of_others_are_not_returned(alias: str) -> None:
    task = jobs.add.using(backend=alias)
    result = task.enqueue(1)
    for missing in ("0" * 32, "", "\0", "x" * 1000, 17):
        with pytest.raises(TaskResultDoesNotExist):
            task.get_result(missing)
    with pytest.raises(TaskResultMismatch):
        jobs.count.using(backend=alias).get_result(result.id)
    if alias == "default":
        with pytest.raises(TaskResultDoesNotExist):
            jobs.add.using(backend="short").get_result(result.id)


@pytest.mark.parametrize("argument", ["\0", float("nan"), "\ud800", "x" * 2_000_000, {1}, object()])
def test_arguments_that_cannot_be_stored_are_refused(alias: str, argument: Any) -> None:
    before = StoredResult.objects.using(alias).count()
    with transaction.atomic(using=alias):
        with pytest.raises((TypeError, ValueError)):
            jobs.add.using(backend=alias).enqueue(argument)
        assert StoredResult.objects.using(alias).count() == before  # The transaction is usable.


def test_run_after_has_a_horizon(project: Any) -> None:
    with pytest.raises(InvalidTask, match="next 366 days"):
        jobs.add.using(run_after=datetime.now(UTC) + timedelta(days=400))
    with pytest.raises(InvalidTask, match="not valid for backend"):
        jobs.add.using(queue_name="unknown")


FORKS = """
import os, sys
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["sharegroup.django"], USE_TZ=True,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}},
    TASKS={"default": {"BACKEND": "sharegroup.django.SharegroupBackend",
                       "OPTIONS": {"name": "tasks-default"}}},
)
import django
django.setup()
from tests.integration.django import jobs_of_forks as jobs
print(jobs.add.enqueue(1).id, flush=True)
child = os.fork()
print(jobs.add.enqueue(2).id, flush=True)
if child:
    assert os.waitpid(child, 0)[1] == 0
else:
    from sharegroup.django.publisher import PUBLISHERS, Publishers
    PUBLISHERS.close()
    os._exit(0)
"""


def test_a_forked_process_has_its_own_producer(project: Any, broker: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS, connections["default"].settings_dict["NAME"]],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"},
        capture_output=True,
        text=True,
        timeout=HANGING_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    ids = done.stdout.split()
    assert len(ids) == 3
    published = keys(broker, "default")
    assert [published[id_] for id_ in ids] == [1, 1, 1]
