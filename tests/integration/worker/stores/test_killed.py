"""Processes that die between reserve, write and confirm, on a real broker and a file of SQLite."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sharegroup.testing import run_broker
from tests.integration.worker.stores.sender_process import DIED

SECONDS_MAX = 60
MODULE = "tests.integration.worker.stores.sender_process"


def send(servers: str, file: Path, step: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", MODULE, servers, str(file), step],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode in (0, DIED), done.stderr
    return done.returncode, done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "records"),
    [("never", 1), ("reserved", 1), ("written", 2)],
)
def test_a_record_is_never_lost_and_twice_only_after_a_death_before_the_confirmation(
    tmp_path: Path, step: str, records: int
) -> None:
    file = tmp_path / "names.db"
    with run_broker() as broker:
        broker.create_topic("orders")
        first = send(broker.bootstrap_servers, file, step)
        assert first == ((0, "new") if step == "never" else (DIED, ""))
        second = send(broker.bootstrap_servers, file, "never")
        assert second == (0, "before" if step == "never" else "new")
        assert send(broker.bootstrap_servers, file, "never") == (0, "before")
        assert [record.value for record in broker.records("orders")] == [b'{"id":42}'] * records
