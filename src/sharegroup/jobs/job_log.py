"""The topic of jobs: one compacted topic, from which the state of every job is read.

    writer                                   record              read
    start, resume, abort of a waiting job    the job             committed, by everybody
    the runner, in each slice                the job             committed, by everybody
    anybody                                  request to abort    uncommitted, by the runner

Committed reading ends at the first open transaction.  Behind it may be records that are committed,
so code that decides by the state of a job waits until there is none (`load`).  A request to abort
is in no transaction, and its runner looks for it without waiting for the transactions of others.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from zlib import crc32

from sharegroup.client.admin.topics import describe_topics
from sharegroup.client.admin.types import TopicDescription
from sharegroup.client.fetch.offsets import OffsetSpec, offsets_of
from sharegroup.client.fetch.record_reading import PartitionRange, partition_ranges, read_records
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.produce.producer import Producer
from sharegroup.client.records import TopicPartition
from sharegroup.dead_letters.ledger import TRANSACTION_WAIT_MS
from sharegroup.dead_letters.own_topics import create_if_missing
from sharegroup.errors import (
    InvalidRecord,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from sharegroup.jobs.job import Job, JobListing, JobNotFound, JobState
from sharegroup.jobs.job_records import (
    ABORT_SUFFIX,
    AbortRequest,
    abort_key,
    encoded_abort,
    encoded_job,
    job_key,
    parsed_abort,
    parsed_job,
)
from sharegroup.wire.batches.records import DecodedRecord

log = logging.getLogger(__name__)

JOBS_TOPIC = "__sharegroup.jobs"
JOBS_READ_MAX = 5_000
"""Jobs in the topic that a reader keeps; more are no work of this library."""
JOBS_LISTED_MAX = 1_000
LOOK_WAIT_MS = 2_000
"""How long a listing waits for an open transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsTopic:
    """The name of the topic of jobs, and what it has when it is created."""

    name: str = JOBS_TOPIC
    partitions: int = 1
    replication_factor: int | None = None
    """None: three, or one for each broker if there are fewer."""


CONFIGS = {
    "cleanup.policy": "compact",
    # A runner writes a record for each slice.  Compaction does not touch the segment that is
    # written, so small segments keep short what everybody reads.
    "segment.bytes": str(16 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}
"""The settings of a new topic of jobs."""


class JobLog:
    """The jobs of a cluster, as far as this reader has read them.

    Each `load` reads what is new.  Calls may run at the same time.
    """

    def __init__(self, cluster: Cluster, topic: JobsTopic) -> None:
        self._cluster = cluster
        self.topic = topic
        self._partition_count = 0
        self._next: dict[TopicPartition, PartitionRange] = {}
        """By partition the range that was read last; the next one begins at its end."""
        self._looked: dict[TopicPartition, int] = {}
        """By partition the offset up to which a runner has looked for requests to abort."""
        self._jobs: dict[str, Job] = {}
        self._aborts: dict[str, AbortRequest] = {}
        self._unreadable = 0
        self._loading = asyncio.Lock()

    async def create(self) -> None:
        """Create the topic if it is missing."""
        name, replicas = self.topic.name, self.topic.replication_factor
        await create_if_missing(
            self._cluster, name, CONFIGS, partitions=self.topic.partitions, replicas=replicas
        )
        # Until it is there: a broker may hear of it later than the one that created it.
        self._partition_count = len((await self._cluster.topic(name)).leaders)

    async def load(self, *, wait_ms: int = TRANSACTION_WAIT_MS) -> bool:
        """Read what was written since the last time; False if an open transaction hides a part.

        A transaction is waited for up to ``wait_ms``.
        """
        async with self._loading:
            return await self._load(wait_ms)

    async def _load(self, wait_ms: int) -> bool:
        name = self.topic.name
        described = (await describe_topics(self._cluster, [name]))[name]
        if isinstance(described, UnknownTopicOrPartition):
            self._forget()
            return True
        if not isinstance(described, TopicDescription):
            raise described
        self._partition_count = described.partition_count
        for log_range in await partition_ranges(self._cluster, name):
            last = self._next.get(log_range.where)
            if last is not None and (
                last.topic_id != log_range.topic_id or last.end > log_range.end
            ):
                self._forget()  # Another topic of this name, or a log that lost its end.
                last = None
            first = log_range.first if last is None else max(last.end, log_range.first)
            if not await self._read(log_range._replace(first=first), wait_ms):
                return False
        return True

    async def _read(self, unread: PartitionRange, wait_ms: int) -> bool:
        """Take the records of a range; False if a transaction is open longer than ``wait_ms``."""
        reading = read_records(self._cluster, unread, committed=True, timeout_ms=wait_ms)
        try:
            async for records in reading:
                for record in records:
                    self._take(unread.where, record)
                self._next[unread.where] = unread._replace(end=records[-1].offset + 1)
        except RequestTimedOut as error:
            log.info("event=jobs.hidden topic=%s reason=%r", self.topic.name, str(error))
            return False
        self._next[unread.where] = unread
        return True

    def _forget(self) -> None:
        self._next.clear()
        self._looked.clear()
        self._jobs.clear()
        self._aborts.clear()
        self._unreadable = 0

    def _take(self, where: TopicPartition, record: DecodedRecord) -> None:
        key, value = record.key, record.value
        text = (key or b"").decode("utf-8", "replace")
        is_abort = text.endswith(ABORT_SUFFIX)
        if value is None:
            self._jobs.pop(text, None)
            self._aborts.pop(text.removesuffix(ABORT_SUFFIX), None)
            return
        try:
            if is_abort:
                request = parsed_abort(key, bytes(value))
                self._aborts[request.job_id] = request
            else:
                job = parsed_job(key, bytes(value))
                self._jobs[job.id] = job
        except ValueError as error:
            self._unreadable += 1
            log.warning(
                "event=jobs.unreadable topic=%s partition=%d offset=%d reason=%r "
                "effect=left_out do=%r",
                *where,
                record.offset,
                str(error),
                "find the program that writes to this topic, or use this library's newer version",
            )
        if len(self._jobs) + len(self._aborts) > 2 * JOBS_READ_MAX:
            raise InvalidRecord(
                f"topic {self.topic.name!r} has more than {JOBS_READ_MAX} jobs, and this library "
                "keeps far fewer; another program writes to it. Delete its records, or use a "
                "topic with another name"
            )

    def job(self, job_id: str) -> Job:
        """Return a job; raises JobNotFound."""
        job = self._jobs.get(job_id)
        if job is None:
            raise JobNotFound(
                f"job {job_id!r:.100} is not in topic {self.topic.name!r}; "
                "sharegroup jobs list shows those that are"
            )
        request = self._aborts.get(job_id)
        asked = request is not None and request.resumes == job.resumes
        return replace(job, state=JobState.ABORTING) if asked and _is_running(job) else job

    def listing(self, *, limit: int, is_current: bool) -> JobListing:
        """Return the newest jobs."""
        jobs = sorted(map(self.job, self._jobs), key=lambda job: (-job.created_ms, job.id))
        return JobListing(tuple(jobs[:limit]), is_current, self._unreadable)

    async def abort_request(self, job: Job) -> AbortRequest | None:
        """Look for a request to abort this run of the job; waits for no transaction."""
        where = TopicPartition(self.topic.name, self._partition(job.id))
        last = self._next.get(where)
        first = self._looked.get(where, 0 if last is None else last.end)
        end = (await offsets_of(self._cluster, [where], OffsetSpec.LATEST))[where]
        if first < end:
            async for records in read_records(self._cluster, PartitionRange(where, first, end)):
                for record in records:
                    # Those of other jobs, too, whose runs here look from this offset on.
                    if (record.key or b"").endswith(ABORT_SUFFIX.encode()):
                        self._take(where, record)
        self._looked[where] = end
        request = self._aborts.get(job.id)
        return request if request is not None and request.resumes == job.resumes else None

    async def write(self, producer: Producer, job: Job) -> None:
        """Write the record of a job, in the transaction of the producer if it has one."""
        await self._send(producer, job.id, job_key(job.id), encoded_job(job))

    async def request_abort(self, producer: Producer, request: AbortRequest) -> None:
        """Write a request to abort a job."""
        key = abort_key(request.job_id)
        await self._send(producer, request.job_id, key, encoded_abort(request))

    async def delete(self, producer: Producer, job_id: str) -> None:
        """Delete a job and the request to abort it."""
        for key in (job_key(job_id), abort_key(job_id)):
            await self._send(producer, job_id, key, None)

    async def _send(self, producer: Producer, job_id: str, key: bytes, value: bytes | None) -> None:
        partition = self._partition(job_id)
        await producer.send_and_wait(self.topic.name, value, key=key, partition=partition)

    def _partition(self, job_id: str) -> int:
        """Return the partition of a job; all records of one job are in one partition, in order."""
        return crc32(job_id.encode()) % max(1, self._partition_count)


def _is_running(job: Job) -> bool:
    return job.state is JobState.RUNNING
