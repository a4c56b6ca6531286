"""Celery and kombu with the transport ``confluentkafka://``; the worker is a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.frameworks.conftest import wait_until

kombu = pytest.importorskip("kombu", reason="kombu is not installed; make frameworks runs this")
pytest.importorskip("celery", reason="Celery is not installed; make frameworks runs this")

MODULE = "tests.interop.frameworks.celery_app"
STOP_SECONDS_MAX = 60.0


@contextmanager
def worker(environment: dict[str, str], log: Path) -> Iterator[None]:
    """A worker of Celery with one process, which stops warmly."""
    command = [sys.executable, "-m", "celery", "-A", MODULE, "worker", "--pool", "solo"]
    options = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "INFO"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *options], env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture
def environment(
    bootstrap: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """The environment of the worker, and of the application that sends tasks."""
    monkeypatch.setenv("CELERY_BROKER", f"confluentkafka://{bootstrap}")
    monkeypatch.setenv("CELERY_QUEUE", request.node.name.replace("_", "-"))
    monkeypatch.setenv("CELERY_OUTPUT", str(tmp_path / "output"))
    return dict(os.environ)


def sent(environment: dict[str, str], calls: str) -> None:
    """Run calls in another process, because the application reads its environment once."""
    program = f"from {MODULE} import bill, bill_later\n{calls}"
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=60)


def lines(environment: dict[str, str]) -> list[str]:
    output = Path(environment["CELERY_OUTPUT"])
    return output.read_text().splitlines() if output.exists() else []


def lines_reach(environment: dict[str, str], count: int) -> Callable[[], bool]:
    return lambda: len(lines(environment)) >= count


def test_message_of_kombu_is_received_and_acknowledged(bootstrap: str) -> None:
    with kombu.Connection(f"confluentkafka://{bootstrap}") as connection:
        queue = connection.SimpleQueue("kombu-orders")
        queue.put({"total": 3})
        message = queue.get(block=True, timeout=60)
        assert message.payload == {"total": 3}
        message.ack()
        queue.close()


def test_tasks_sent_before_and_after_the_start_are_run(
    environment: dict[str, str], tmp_path: Path
) -> None:
    sent(environment, "for total in range(3): bill.delay(total)")
    with worker(environment, tmp_path / "log"):
        wait_until(lines_reach(environment, 3), waiting_for="three tasks")
        sent(environment, "for total in range(3, 6): bill.delay(total)")
        wait_until(lines_reach(environment, 6), waiting_for="six tasks")
    assert sorted(lines(environment)) == [f"billed {total}" for total in range(6)]


def test_task_is_retried(environment: dict[str, str], tmp_path: Path) -> None:
    sent(environment, "bill_later.delay()")
    with worker(environment, tmp_path / "log"):
        wait_until(lines_reach(environment, 3), waiting_for="the third attempt")
    assert lines(environment) == ["attempt 0", "attempt 1", "attempt 2"]
