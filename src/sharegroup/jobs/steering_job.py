"""Jobs that run waiting records now, or cancel them, by a filter.

The retry topics are read up to where they ended when the job first ran.  So a record that the job
has run, and that fails and waits again, is not run a second time.  A chunk of commands is a slice:
the answers are durable before the job notes that it is past these records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sharegroup.client.records import TopicPartition
from sharegroup.dead_letters.topics import own_topic
from sharegroup.errors import InvalidConfig
from sharegroup.jobs.filters import WAITING
from sharegroup.jobs.job import Document, JobPlan, JobProgress, JobRequest
from sharegroup.jobs.job_run import JobAccess, JobRun
from sharegroup.waiting.control_records import Intent
from sharegroup.waiting.waiting_filter import WaitingFilter, WaitingRecord

if TYPE_CHECKING:
    # Imported for its types alone, as in `_waiting_records`.
    from sharegroup.waiting.waiting_records import TierRange, WaitingRecords

KINDS_OF_INTENTS: Mapping[Intent, str] = MappingProxyType(
    {Intent.RUN: "run-waiting", Intent.CANCEL: "cancel-waiting"}
)
CHUNK_RECORDS = 500
WITHOUT_ID = "without-id"
"""In the result: the number of records that were left out, because they have no id."""


def steering_request(
    group: str, intent: Intent, selection: WaitingFilter, *, everything: bool = False
) -> JobRequest:
    """Return the request for a job that runs or cancels the waiting records of a group that match.

    A filter without conditions raises InvalidConfig, unless ``everything`` says that all are meant.
    """
    return JobRequest(
        kind=KINDS_OF_INTENTS[intent],
        topic=own_topic(group),
        filter=WAITING.document(selection, everything=everything),
        options={"group": group},
    )


class SteeringJobs:
    """The kind of jobs that give one command for many waiting records."""

    producing: Document = MappingProxyType({})

    def __init__(self, intent: Intent) -> None:
        self._intent = intent

    def check(self, request: JobRequest) -> None:
        """Raise InvalidConfig if filter or options are not valid."""
        WAITING.parsed(request.filter)
        _group_of(request)

    async def plan(self, request: JobRequest, access: JobAccess) -> JobPlan:
        """Count the records that match now."""
        selection, count = WAITING.parsed(request.filter), 0
        async with _waiting_records(request, access.reading) as waiting:
            async for _ in waiting.records(selection):
                count += 1
        return JobPlan(count, {})

    async def run(self, run: JobRun) -> None:
        """Give the commands that are left, chunk by chunk."""
        request = run.job.request
        selection = WAITING.parsed(request.filter)
        async with _waiting_records(request, run.access.producing) as waiting:
            ranges = await run.during(waiting.ranges())
            if "ranges" not in run.job.result:
                await run.slice(result={"ranges": [_written(tier) for tier in ranges]})
            now = {tier.unread.where: tier for tier in ranges}
            for index, written in enumerate(run.job.result["ranges"]):
                tier = _tier_range(written, now)
                chunk: list[WaitingRecord] = []
                async for record in waiting.records(selection, ranges=[tier] if tier else []):
                    chunk.append(record)
                    if len(chunk) >= CHUNK_RECORDS:
                        await self._steer(run, waiting, index, chunk)
                        chunk = []
                if chunk:
                    await self._steer(run, waiting, index, chunk)

    async def _steer(
        self, run: JobRun, waiting: WaitingRecords, index: int, chunk: Sequence[WaitingRecord]
    ) -> None:
        """Give the command for these records, and note their outcomes."""
        await run.look()
        job = run.job
        known = [record for record in chunk if record.id is not None]
        outcomes = await run.during(
            waiting.steer(
                self._intent,
                {record.id for record in known if record.id is not None},
                by=job.started_by,
                known=known,
            )
        )
        counts: Counter[str] = Counter(job.result.get("outcomes", {}))
        counts.update(str(steered.outcome) for steered in outcomes.values())
        counts[WITHOUT_ID] += len(chunk) - len(known)
        ranges = [list(written) for written in job.result["ranges"]]
        ranges[index][2] = chunk[-1].place.offset + 1
        await run.slice(
            progress=JobProgress(job.progress.counted, job.progress.done + len(chunk)),
            result={"ranges": ranges, "outcomes": dict(+counts)},
        )


def _waiting_records(request: JobRequest, options: Mapping[str, Any]) -> WaitingRecords:
    # Imported here, because its requests about groups are a tenth of the start of `dlq redrive`,
    # which runs no such job.
    from sharegroup.waiting.waiting_records import WaitingRecords

    return WaitingRecords(_group_of(request), **options)


def _group_of(request: JobRequest) -> str:
    group = request.options.get("group")
    if not isinstance(group, str) or own_topic(group) != request.topic:
        raise InvalidConfig(
            f"expected the group of topic {request.topic!r} in the options, found {group!r:.100}"
        )
    return group


def _written(tier: TierRange) -> list[Any]:
    unread = tier.unread
    return [unread.where.topic, unread.where.partition, unread.first, unread.end]


def _tier_range(
    written: Sequence[Any], now: Mapping[TopicPartition, TierRange]
) -> TierRange | None:
    """Return what is left of a range, without what has moved; None if the topic is gone."""
    topic, partition, first, end = written
    tier = now.get(TopicPartition(str(topic), int(partition)))
    if tier is None:
        return None
    unread = tier.unread._replace(first=max(int(first), tier.unread.first), end=int(end))
    return tier._replace(unread=unread)
