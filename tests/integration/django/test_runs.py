"""Tasks that a worker runs: outcomes, retries, context, signals; on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.tasks import TaskResultStatus
from django.tasks.base import TaskResult
from django.tasks.signals import task_enqueued, task_finished, task_started

from tests.integration.django import jobs
from tests.integration.django.waiting import finished, until


def test_task_runs_and_its_result_can_be_read(worked: str) -> None:
    result = jobs.add.using(backend=worked).enqueue(2, right=3)
    assert (result.status, result.attempts) == (TaskResultStatus.READY, 0)
    finished(result)
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, 5)
    assert (result.attempts, result.errors, len(result.worker_ids)) == (1, [], 1)
    assert result.enqueued_at <= result.started_at <= result.finished_at
    again = jobs.add.using(backend=worked).get_result(result.id)
    assert (again.return_value, again.args, again.kwargs) == (5, [2], {"right": 3})


def test_coroutine_runs_and_is_enqueued_by_coroutines(worked: str) -> None:
    async def main() -> Any:
        task = jobs.add_later.using(backend=worked)
        result = await task.aenqueue(2, 3)
        while not result.is_finished:
            await asyncio.sleep(0.01)
            await result.arefresh()
        return await task.aget_result(result.id)

    assert asyncio.run(main()).return_value == 5


def test_task_gets_its_context(worked: str) -> None:
    result = jobs.attempt.using(backend=worked).enqueue("a")
    assert finished(result).return_value == [1, result.id, "a"]


def test_failed_attempts_are_retried_and_their_errors_are_kept(worked: str) -> None:
    result = finished(jobs.fail_until.using(backend=worked).enqueue(f"retried {worked}", 3))
    assert (result.return_value, result.attempts) == (3, 3)
    assert [error.exception_class for error in result.errors] == [ValueError, ValueError]
    assert f"attempt 2 of retried {worked}" in result.errors[1].traceback


def test_task_fails_after_its_last_attempt(worked: str) -> None:
    result = finished(jobs.fail_until.using(backend=worked).enqueue(f"failing {worked}", 9))
    assert (result.status, result.attempts, len(result.errors)) == (
        TaskResultStatus.FAILED, 3, 3,
    )  # fmt: skip
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


@pytest.mark.parametrize(("task", "error"), [("fail_for_good", KeyError), ("reject", Exception)])
def test_errors_that_are_not_retried_fail_at_once(
    worked: str, task: str, error: type[Exception]
) -> None:
    result = finished(getattr(jobs, task).using(backend=worked).enqueue(f"{task} {worked}"))
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 1)
    assert issubclass(result.errors[0].exception_class, error)


@pytest.mark.parametrize("value", ["set", "large", "null", "nan"])
def test_return_value_that_cannot_be_stored_fails_without_a_retry(worked: str, value: str) -> None:
    before = jobs.RUNS[value]
    result = finished(jobs.give.using(backend=worked).enqueue(value))
    assert (result.status, jobs.RUNS[value] - before) == (TaskResultStatus.FAILED, 1)
    assert "give" in result.errors[0].traceback or "set" in result.errors[0].traceback


def test_none_is_a_return_value(worked: str) -> None:
    result = finished(jobs.give.using(backend=worked).enqueue("none"))
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, None)


def test_task_runs_not_before_its_time(worked: str) -> None:
    at = datetime.now(UTC) + timedelta(seconds=0.5)
    result = jobs.note_time.using(backend=worked, run_after=at).enqueue("a")
    assert finished(result).return_value >= at.timestamp()
    assert jobs.note_time.get_backend().alias == "default"
    past = datetime.now(UTC) - timedelta(days=1)
    assert finished(jobs.note_time.using(backend=worked, run_after=past).enqueue("a"))


@pytest.mark.parametrize("priority", [-100, 0, 100])
def test_each_priority_has_its_topic(worked: str, priority: int, broker: Any) -> None:
    result = jobs.send_email.using(backend=worked, priority=priority).enqueue("a@example.org")
    assert finished(result).return_value == "sent to a@example.org"
    level = {-100: "low", 0: "normal", 100: "high"}[priority]
    records = broker.records(f"tasks-{worked}.emails.{level}")
    assert result.id.encode() in [record.key for record in records]
    assert finished(result).task.priority == priority


def test_signals_are_sent_with_the_result(worked: str) -> None:
    seen: list[tuple[str, str, TaskResultStatus]] = []

    def note(name: str) -> Any:
        def receive(sender: Any, task_result: TaskResult, **_: Any) -> None:
            seen.append((name, task_result.id, task_result.status))

        return receive

    def broken(sender: Any, **_: Any) -> None:
        raise RuntimeError("a receiver of the tests")

    signals = {"enqueued": task_enqueued, "started": task_started, "finished": task_finished}
    receivers = [(signal, note(name)) for name, signal in signals.items()]
    receivers += [(task_started, broken), (task_finished, broken)]
    for signal, receiver in receivers:
        signal.connect(receiver, weak=False)
    try:
        good = jobs.add.using(backend=worked).enqueue(1)
        bad = jobs.fail_for_good.using(backend=worked).enqueue("signals")
        finished(good), finished(bad)
        ended = {good.id, bad.id}
        # A signal is sent after the result is stored.
        until(lambda: ended <= {id_ for name, id_, _ in seen if name == "finished"}, lambda: seen)
    finally:
        for signal, receiver in receivers:
            signal.disconnect(receiver)
    for result, status in (
        (good, TaskResultStatus.SUCCESSFUL),
        (bad, TaskResultStatus.FAILED),
    ):
        assert [(name, status) for name, id_, status in seen if id_ == result.id] == [
            ("enqueued", TaskResultStatus.READY),
            ("started", TaskResultStatus.RUNNING),
            ("finished", status),
        ]
