"""A real worker that dies between what its handler writes, the commit and the acknowledgement.

A first process writes and dies at the step.  A second one gets the record when the lock has ended.
The work is done once in each case.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sharegroup.testing import run_broker
from tests.integration.worker.processes import WorkerProcess
from tests.support import postgres

SHORT_LOCK = {"share.record.lock.duration.ms": "1500"}
APP = """
from sharegroup.worker import PostgresStore, SqliteStore

store = {store}
app = App("orders-service", bootstrap_servers={servers!r}, store=store)
STEP = {step!r}


@app.middleware
async def dies_after_the_commit(call, proceed):
    await proceed(call)
    if STEP == "committed":
        os._exit(9)
    note("passed")


@app.share_group("billing", topics="orders", once_by=lambda order: order["id"], once_for="7d",
                 group_configs={configs!r})
async def bill(order: dict) -> None:
    note("run")
    done = store.connection().execute("INSERT INTO billed VALUES (7)")
    if isinstance(store, PostgresStore):
        await done
    if STEP == "written":
        os._exit(9)
"""


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    with postgres.running() as place:
        yield place


@pytest.mark.slow
@pytest.mark.parametrize(("step", "runs"), [("written", 2), ("committed", 1)])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_work_of_a_killed_worker_is_done_once(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str, step: str, runs: int
) -> None:
    billed = tmp_path / "store.db"
    if kind == "sqlite":
        store = f"SqliteStore({str(billed)!r})"
        with closing(sqlite3.connect(billed)) as database:
            database.execute("CREATE TABLE billed (id bigint)")
    else:
        psycopg = pytest.importorskip("psycopg")
        if (why := postgres.why_missing()) is not None:
            pytest.skip(why)
        place = request.getfixturevalue("place")
        store = f"PostgresStore({place!r})"
        with psycopg.connect(place, autocommit=True) as connection:
            connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
            connection.execute("CREATE TABLE billed (id bigint)")
    with run_broker() as broker:
        broker.create_topic("orders")
        values = {"store": store, "servers": broker.bootstrap_servers, "configs": SHORT_LOCK}
        with WorkerProcess(tmp_path / "first", APP.format(step=step, **values)) as first:
            broker.produce("orders", '{"id": 7}')
            assert first.wait() == 9
            began = first.journal.read_text().count("run")
        with WorkerProcess(tmp_path / "second", APP.format(step="never", **values)) as second:
            second.wait_noted("passed")
            began += second.journal.read_text().count("run")
    assert began == runs
    if kind == "sqlite":
        with closing(sqlite3.connect(billed)) as database:
            assert database.execute("SELECT count(*) FROM billed").fetchone() == (1,)
    else:
        with psycopg.connect(place) as connection:
            assert connection.execute("SELECT count(*) FROM billed").fetchone() == (1,)
