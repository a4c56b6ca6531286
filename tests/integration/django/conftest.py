"""A Django project in the process of the tests: a broker, SQLite, and PostgreSQL where it is.

Django has one configuration in a process, so all modules share it.  ``django.tasks`` came with
Django 6, which needs Python 3.12: `test_newer_python` runs these tests where this Python is older.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support import postgres
from tests.support.limits import HANGING_SECONDS

HAS_TASKS = find_spec("django") is not None and find_spec("django.tasks") is not None
collect_ignore = (
    [] if HAS_TASKS else [path.name for path in Path(__file__).parent.glob("test_[!n]*.py")]
)

if HAS_TASKS:
    from sharegroup.testing import TestBroker, run_broker
    from sharegroup.worker import App

RETRY = {"max_attempts": 3, "initial_delay": "50ms", "dont_retry_on": ["KeyError"]}


def backend_settings(database: str, **options: Any) -> dict[str, Any]:
    return {
        "BACKEND": "sharegroup.django.SharegroupBackend",
        "QUEUES": ["default", "emails"],
        "OPTIONS": {
            "name": f"tasks-{database}",
            "database": database,
            "retry": RETRY,
            "result_bytes_max": 1000,
            **options,
        },
    }


if HAS_TASKS:
    import django
    from django.conf import settings

    # Here and not in a fixture: a task is declared with its backend when its module is imported.
    # Where the databases are is known later.
    settings.configure(
        SECRET_KEY="a",
        USE_TZ=True,
        INSTALLED_APPS=["sharegroup.django"],
        DATABASES={
            "default": {"ENGINE": "django.db.backends.sqlite3", "OPTIONS": {"timeout": 20}},
            "postgres": {"ENGINE": "django.db.backends.postgresql", "CONN_MAX_AGE": None},
        },
        TASKS={
            "default": backend_settings("default"),
            "postgres": backend_settings("postgres"),
            "short": backend_settings(
                "default", name="tasks-short", max_handling="300ms", concurrency=1
            ),
        },
    )
    django.setup()


@pytest.fixture(scope="package")
def broker() -> Iterator[TestBroker]:
    with run_broker() as running:
        yield running


@pytest.fixture(scope="package")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The databases that are there."""
    from django.db import connections

    sqlite = tmp_path_factory.mktemp("django") / "db.sqlite3"
    connections.settings["default"]["NAME"] = str(sqlite)
    with ExitStack() as stack:
        names = ["default"]
        if postgres.why_missing() is None and find_spec("psycopg") is not None:
            place = stack.enter_context(postgres.running())
            parts = dict(part.split("=") for part in place.split())
            names.append("postgres")
            connections.settings["postgres"].update(
                HOST=parts["host"], PORT=parts["port"], USER=parts["user"], NAME=parts["dbname"]
            )
        yield names
        connections.close_all()


@pytest.fixture(scope="package")
def project(broker: TestBroker, databases: list[str]) -> Iterator[list[str]]:
    """The databases with their tables, and the broker by its variable."""
    from django.core.management import call_command

    from sharegroup.django.publisher import PUBLISHERS

    for database in databases:
        call_command("migrate", database=database, verbosity=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHAREGROUP_BOOTSTRAP", broker.bootstrap_servers)
        yield databases
        PUBLISHERS.close()


@pytest.fixture(params=["default", "postgres"])
def alias(request: pytest.FixtureRequest, project: list[str]) -> str:
    """The name of a backend, and of its database."""
    if request.param not in project:
        pytest.skip(str(postgres.why_missing() or "psycopg is not installed"))
    name: str = request.param
    return name


@contextmanager
def working(app: App) -> Iterator[None]:
    """A worker on an event loop in a thread."""
    ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def work() -> None:
        async with app:
            stop = asyncio.Event()
            ready.set_result((asyncio.get_running_loop(), stop))
            await stop.wait()

    def main() -> None:
        try:
            asyncio.run(work())
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    thread = threading.Thread(target=main)
    thread.start()
    try:
        loop, stop = ready.result(HANGING_SECONDS)
        yield
        loop.call_soon_threadsafe(stop.set)
    finally:
        thread.join(HANGING_SECONDS)
        assert not thread.is_alive()


@pytest.fixture(scope="package")
def workers(project: list[str]) -> Iterator[Callable[[str], None]]:
    """Starts a worker for a backend, once; it stays until the last test."""
    from django.tasks import task_backends

    from sharegroup.django.task_app import as_worker

    started: set[str] = set()
    with ExitStack() as stack:

        def start(alias: str) -> None:
            if alias not in started:
                started.add(alias)
                backend: Any = task_backends[alias]
                stack.enter_context(working(as_worker(backend.task_app.another())))

        yield start


@pytest.fixture
def worked(alias: str, workers: Callable[[str], None]) -> str:
    """The name of a backend that has a worker."""
    workers(alias)
    return alias
