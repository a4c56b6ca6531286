"""Runs a job in the process of a verb, with its progress on the terminal."""

from __future__ import annotations

import asyncio
from typing import Any

from sharegroup.cli.common.cluster_access import Access
from sharegroup.cli.common.output import complain
from sharegroup.cli.common.progress import showing_progress
from sharegroup.cli.common.running import Stop, lacks_broker, telling_waits, until_stopped
from sharegroup.client.settings.client_config import ProducerConfig
from sharegroup.dead_letters.letter import LETTER_BYTES_MAX
from sharegroup.dead_letters.queue import DeadLetterQueue
from sharegroup.errors import KafkaError
from sharegroup.jobs import Job, Jobs, JobState

BATCH_BYTES = 256 * 1024


def sending_options(access: Access) -> dict[str, Any]:
    """Return the options of a producer that sends letters back."""
    return {
        # A letter has more headers than the record sent back, so this limit is large enough.
        "request_bytes_max": LETTER_BYTES_MAX,
        "batch_bytes": BATCH_BYTES,
        "max_block_ms": access.timeout_ms,
        "delivery_timeout_ms": access.timeout_ms,
        **access.client_options(ProducerConfig),
    }


async def letters_in(access: Access, topic: str) -> int:
    """Return the number of offsets of a topic; raises KafkaError if there is no such topic."""
    queue = DeadLetterQueue(topic, **access.client_options(warn=_ignore))
    async with (
        telling_waits(access.bootstrap_servers, lambda: lacks_broker(queue.cluster.metrics.read())),
        queue,
    ):
        return sum(log_range.end - log_range.first for log_range in queue.ranges)


def _ignore(_: str) -> None:
    """Pass over a warning that the options of the producer repeat."""


async def run_job(
    stop: Stop,
    access: Access,
    jobs: Jobs,
    job: Job,
    *,
    total: int | None = None,
    unit: str = "dead letters",
) -> tuple[Job, int]:
    """Run a job until it ends, or a signal; return it with the exit code of the verb.

    The code is 1 if the job is not done, or could not send some letters.

    ``total`` is the number of its records, if it is known.
    """
    last = job

    def told(job: Job) -> None:
        nonlocal last
        last = job

    running = jobs.run(job.id, stop=stop, stopped=JobState.ABORTED, told=told)
    try:
        async with (
            telling_waits(access.bootstrap_servers, lambda: lacks_broker(jobs.metrics)),
            showing_progress(
                f"{job.request.kind} {job.request.topic}",
                lambda: last.progress.done,
                total=lambda: total,
                unit=unit,
            ),
        ):
            # The runner stops by itself after a signal; this ends it if a broker keeps it waiting.
            ended = await until_stopped(running, stop) or last
    except (KafkaError, asyncio.CancelledError):
        complain(
            f"job {job.id}: {last.progress.done} processed; sharegroup jobs resume {job.id} goes on"
        )
        raise
    if ended.state is JobState.DONE:
        return ended, 1 if ended.result.get("refused") else 0
    return ended, stop.code or 1
