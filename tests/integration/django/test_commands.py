"""The management commands, the checks of settings, and the example project in processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connections
from django.tasks import TaskResultStatus, task_backends
from django.tasks.checks import check_tasks
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from sharegroup.django.models import OutboxRow, StoredResult
from sharegroup.django.removed_queues import check_outbox
from tests.integration.django import jobs
from tests.integration.django.conftest import backend_settings
from tests.integration.django.waiting import until
from tests.support.limits import HANGING_SECONDS

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[3]
SHOP = ROOT / "examples" / "django_shop"


def problems(**settings: Any) -> list[str]:
    with override_settings(TASKS={"default": settings}):
        return [message.msg for message in check_tasks()]


BACKEND = "sharegroup.django.SharegroupBackend"


def test_check_reports_each_wrong_setting() -> None:
    options = {"retrys": 1, "concurrency": 0, "retry": {"max_attempts": 0}, "database": "nowhere"}
    found = problems(BACKEND=BACKEND, QUEUES=["a b"], OPTIONS=options)
    assert [text.split(":")[0] for text in found] == ["TASKS['default']"] * len(found)
    assert [name for name in ("retrys", "concurrency", "retry:", "QUEUES") if
            not any(name in text for text in found)] == []  # fmt: skip
    assert "did you mean 'retry'" in found[0]
    missing = problems(BACKEND=BACKEND, OPTIONS={"database": "nowhere"})
    assert ["nowhere" in text for text in missing] == [True]
    assert problems(BACKEND=BACKEND, OPTIONS={"client": {"bootstrap_servers": "a:1"}}) != []
    with override_settings(INSTALLED_APPS=[]):
        assert ["tables are missing" in text for text in problems(BACKEND=BACKEND)] == [True]


def test_check_finds_backends_that_share_a_group() -> None:
    slow = {"BACKEND": BACKEND, "QUEUES": ["default"], "OPTIONS": {"max_handling": "1d"}}
    for options, count in (({}, 2), ({"name": "slow"}, 0)):
        other = {**slow, "OPTIONS": {**slow["OPTIONS"], **options}}
        with override_settings(TASKS={"default": {"BACKEND": BACKEND}, "slow": other}):
            found = [message.msg for message in check_tasks()]
        assert ["'django-tasks' and a queue are those of TASKS" in text for text in found] == [
            True
        ] * count


def test_check_finds_nothing_in_good_settings() -> None:
    assert list(check_tasks()) == []
    assert problems(**backend_settings("default")) == []
    assert problems(BACKEND=BACKEND) == []


def test_purge_deletes_finished_results_of_an_age(alias: str) -> None:
    task = jobs.add.using(backend=alias)
    rows = StoredResult.objects.using(alias)
    old, young, unfinished = (task.enqueue(number) for number in range(3))
    for result, days, status in (
        (old, 15, TaskResultStatus.FAILED),
        (young, 13, TaskResultStatus.SUCCESSFUL),
    ):
        rows.filter(id=result.id).update(
            finished_at=timezone.now() - timedelta(days=days), status=status
        )
    out = StringIO()
    with CaptureQueriesContext(connections[alias]) as queries:
        call_command("sharegroup_purge", backend=alias, stdout=out)
    assert "purged 1 results" in out.getvalue()
    assert not [query for query in queries if "return_value" in query["sql"]], "values are not read"
    kept = set(rows.values_list("id", flat=True))
    assert (old.id in kept, young.id in kept, unfinished.id in kept) == (False, True, True)
    with pytest.raises(CommandError, match="--older-than"):
        call_command("sharegroup_purge", backend=alias, older_than="soon")


def test_tasks_of_a_removed_queue_are_found_and_can_be_deleted(alias: str) -> None:
    rows = StoredResult.objects.using(alias)
    gone = {"backend": alias, "queue_name": "gone", "task_path": "a.b", "priority": 0}
    new = {**gone, "args": [], "kwargs": {}, "status": TaskResultStatus.READY}
    for number, days in enumerate((15, 13)):
        enqueued_at = timezone.now() - timedelta(days=days)
        row = rows.create(id=f"gone{number}", enqueued_at=enqueued_at, **new)
        OutboxRow.objects.using(alias).create(result=row, claimed_until=timezone.now())
    kept = jobs.add.using(backend=alias).enqueue(1)
    (warning,) = check_outbox(databases=[alias])
    assert f"2 tasks of TASKS['{alias}'] wait in the outbox" in warning.msg
    assert "queue 'gone'" in warning.msg
    assert check_outbox() == []
    found = StringIO()
    call_command("check", database=[alias], stderr=found)
    assert "sharegroup.W001" in found.getvalue()
    for arguments, left in (({}, {"gone1"}), ({"older_than": "1h"}, set())):
        call_command("sharegroup_purge", backend=alias, removed_queues=True, **arguments)
        assert set(rows.filter(queue_name="gone").values_list("id", flat=True)) == left
        assert OutboxRow.objects.using(alias).filter(result__queue_name="gone").count() == len(left)
    assert rows.filter(id=kept.id).exists()
    assert check_outbox(databases=[alias]) == []


def test_worker_refuses_what_it_cannot_run(project: Any) -> None:
    with pytest.raises(CommandError, match="expected one of QUEUES"):
        call_command("sharegroup_worker", queue=["unknown"])
    with pytest.raises(CommandError, match="expected 1 to 1000"):
        call_command("sharegroup_worker", concurrency=0)
    with (
        override_settings(
            TASKS={"default": {"BACKEND": "django.tasks.backends.dummy.DummyBackend"}}
        ),
        pytest.raises(CommandError, match="expected a SharegroupBackend"),
    ):
        call_command("sharegroup_worker")


def test_tables_agree_with_the_models(project: Any) -> None:
    call_command("makemigrations", "sharegroup_tasks", check_changes=True, verbosity=0)
    assert OutboxRow._meta.app_label == "sharegroup_tasks"
    assert task_backends["default"].supports_priority


@contextmanager
def shop_worker(environment: dict[str, str], log: Path) -> Iterator[None]:
    with open(log, "wb") as file:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "sharegroup_worker", "--health-port", "0"],
            cwd=SHOP, env=environment, stdout=file, stderr=file,
        )  # fmt: skip
    try:
        until(lambda: "ready app=shop" in log.read_text(), log.read_text)
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANGING_SECONDS) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def test_example_writes_receipts_with_its_orders(broker: Any, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "SHAREGROUP_BOOTSTRAP": broker.bootstrap_servers,
        "SHOP_DATABASE": str(tmp_path / "shop.sqlite3"),
        "PYTHONPATH": str(ROOT / "src"),
    }

    def manage(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=SHOP, env=environment, capture_output=True, text=True, timeout=HANGING_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    log = tmp_path / "worker.log"
    assert "no issues" in manage("check")
    manage("migrate")
    early = manage("order", "3000", "a@example.org")
    with shop_worker(environment, log):
        late = manage("order", "500", "b@example.org")
        until(lambda: log.read_text().count("receipt for") == 2, log.read_text)
    assert "order 1 of a@example.org" in early
    assert "order 2 of b@example.org" in late
    assert "stopped app=shop" in log.read_text()
