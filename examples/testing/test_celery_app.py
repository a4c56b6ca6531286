"""Tests a Celery application whose tasks go through Kafka.

    pip install . celery 'kombu[confluentkafka]' pytest
    pytest examples/testing/test_celery_app.py

The worker runs in a thread of the test. It takes ten seconds to stop, so all tests of the file
share one.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker

from sharegroup.testing import TestBroker

app = Celery("orders")
app.conf.update(task_ignore_result=True, worker_enable_remote_control=False)
bills: queue.Queue[str] = queue.Queue()


@app.task(bind=True, max_retries=3, default_retry_delay=0)
def bill(task: Any, customer: str, failures: int = 0) -> None:
    """The code under test: it fails a number of times, then it writes a bill."""
    if task.request.retries < failures:
        raise task.retry(exc=ConnectionError("no printer"))
    bills.put(f"{customer}, attempt {task.request.retries + 1}")


@pytest.fixture(scope="module", autouse=True)
def worker(sharegroup_session_broker: TestBroker) -> Iterator[None]:
    app.conf.broker_url = f"confluentkafka://{sharegroup_session_broker.bootstrap_servers}"
    with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=60):
        yield


def test_task_writes_a_bill() -> None:
    bill.delay("Ada")
    assert bills.get(timeout=60) == "Ada, attempt 1"


def test_task_that_fails_is_repeated() -> None:
    bill.delay("Grace", failures=2)
    assert bills.get(timeout=60) == "Grace, attempt 3"
