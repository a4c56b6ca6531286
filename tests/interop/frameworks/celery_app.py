"""A Celery application, which the test and its worker process import.

The environment names the broker, the queue and the file to which the tasks write.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from celery import Celery

app = Celery("orders", broker=os.environ.get("CELERY_BROKER", "memory://"))
app.conf.update(
    task_default_queue=os.environ.get("CELERY_QUEUE", "celery"),
    task_ignore_result=True,
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
)


def note(text: str) -> None:
    """Append a line to the file of the test."""
    with Path(os.environ["CELERY_OUTPUT"]).open("a") as output:
        output.write(f"{text}\n")


@app.task  # type: ignore[untyped-decorator]
def bill(total: int) -> None:
    """Bill an order."""
    note(f"billed {total}")


@app.task(bind=True, max_retries=2, default_retry_delay=0)  # type: ignore[untyped-decorator]
def bill_later(task: Any) -> None:
    """Fail twice, then succeed."""
    note(f"attempt {task.request.retries}")
    if task.request.retries < 2:
        raise task.retry()
