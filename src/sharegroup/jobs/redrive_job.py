"""Jobs that redrive dead letters: each slice is one transaction.

    letters  0   1   2   3   4   5   6   7             slice 1: copies of 0, 1, 3   ┐
    copied   x   x       x                             ledger [0,2) [3,4)           ├ committed
                             ▲ position 4              job: 3 done, position 4      ┘ together

The next runner goes on at the position, so a letter is sent once, however often the job is taken
over.  Readers of the target must be read_committed, because the copies of an aborted slice are sent
again (ADR 0044).

A refused copy fails its whole transaction.  The letters that a broker names are left out, and the
others are sent again in halves; if it names none, this ends at slices of one letter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar

from sharegroup.client.fetch.record_reading import TopicMadeAgain, Unreadable
from sharegroup.client.produce.producer import Producer, SendFuture
from sharegroup.dead_letters.letter import LETTER_BYTES_MAX
from sharegroup.dead_letters.queue import Chunk, DeadLetterQueue
from sharegroup.dead_letters.redrive_copies import (
    OF_ONE_BATCH,
    OF_ONE_TARGET,
    Copy,
    RedriveCopies,
    RedriveOptions,
    error_text,
    hand_over,
    outcome_of,
)
from sharegroup.errors import KafkaError, TransactionAbortable
from sharegroup.jobs.filters import LETTERS, options_document, options_of
from sharegroup.jobs.job import Document, JobPlan, JobProgress, JobRequest, Position, moved
from sharegroup.jobs.job_run import JobAccess, JobRun
from sharegroup.jobs.letters_ahead import LettersAhead, Portion
from sharegroup.jobs.redrive_results import letters_of, redriven_document, redriven_of

SLICE_LETTERS_MAX = 16_000
"""The letters of a slice are in memory together, and those of the next one, which are read ahead.

A transaction costs a dozen waits for the broker, which smaller slices spend most of their time in.
"""
SLICE_BYTES_MAX = 12 * 1024 * 1024
"""Contents of the copies in a slice; a larger copy is a slice of its own.

A slice has to be written within the time of a transaction.
"""

REDRIVE = "redrive"


def redrive_request(topic: str, options: RedriveOptions, *, everything: bool = False) -> JobRequest:
    """Return the request for a job that sends back the selected letters of a topic.

    A selection without conditions raises InvalidConfig, unless ``everything`` says that all letters
    are meant.
    """
    return JobRequest(
        kind=REDRIVE,
        topic=topic,
        filter=LETTERS.document(options.selection, everything=everything),
        options=options_document(options),
    )


def _options(request: JobRequest) -> RedriveOptions:
    return options_of(LETTERS.parsed(request.filter), request.options)


async def open_queue(run: JobRun, stack: AsyncExitStack) -> DeadLetterQueue:
    """Open the letters that are left to read; the first run notes where they end.

    Raises TopicMadeAgain if the topic was deleted and created again since then.
    """
    queue = DeadLetterQueue(run.job.request.topic, **run.access.reading)
    await run.during(stack.enter_async_context(queue))
    if run.job.topic_id is None:
        positions = tuple(
            Position(log_range.where.partition, log_range.first, log_range.end)
            for log_range in queue.ranges
        )
        await run.slice(topic_id=queue.topic_id, positions=positions)
        return queue
    if run.job.topic_id != queue.topic_id:
        raise TopicMadeAgain(
            f"topic {queue.topic!r} was deleted and created again since job {run.job.id!r} began; "
            "start another job for the new one"
        )
    left = {position.partition: position for position in run.job.positions}
    queue.ranges = [
        log_range._replace(
            first=max(log_range.first, left[log_range.where.partition].next),
            end=left[log_range.where.partition].end,
        )
        for log_range in queue.ranges
        if log_range.where.partition in left
    ]
    return queue


class RedriveJobs:
    """The kind of jobs that send dead letters back."""

    producing: ClassVar[Document] = MappingProxyType({"request_bytes_max": LETTER_BYTES_MAX})
    """A letter has more headers than the record sent back, so this limit is large enough."""

    def check(self, request: JobRequest) -> None:
        """Raise InvalidConfig if the filter or the options are not valid."""
        _options(request)

    async def plan(self, request: JobRequest, access: JobAccess) -> JobPlan:
        """Count what would be sent, without sending anything."""
        options = _options(request)
        async with DeadLetterQueue(request.topic, **access.reading) as queue:
            copies = RedriveCopies(queue.cluster, replace(options, dry_run=True), at_ms=0)
            async for chunk in queue.chunks_of(
                copies.copy, options.selection, complete=True, unreadable=copies.refuse_unreadable
            ):
                copies.done.sent.update(copy.target for copy in await copies.choose(chunk))
                if copies.is_at_limit:
                    break
        return JobPlan(sum(copies.done.sent.values()), redriven_document(copies.done))

    async def run(self, run: JobRun) -> None:
        """Send back what is left, slice by slice."""
        options = _options(run.job.request)
        async with AsyncExitStack() as stack:
            queue = await open_queue(run, stack)
            await queue.ledger.create(queue.cluster)
            firsts = {log_range.where.partition: log_range.first for log_range in queue.ranges}
            await queue.ledger.prune(queue.cluster, queue.noted, firsts)
            await _Slices(run, queue, options).send_all()


class _SliceRefused(Exception):
    """Copies of a slice were refused, so nothing of it was written."""

    def __init__(self, refused: Sequence[tuple[Copy, KafkaError]]) -> None:
        super().__init__(refused)
        self.refused = refused


class _Slices:
    """The slices of one run."""

    def __init__(self, run: JobRun, queue: DeadLetterQueue, options: RedriveOptions) -> None:
        self._run = run
        self._queue = queue
        self._options = options
        # The time of the job and not of the run: `--again` makes the ids of its copies with it.
        copies = RedriveCopies(queue.cluster, options, run.job.created_ms)
        copies.done = redriven_of(run.job.result)
        copies.chosen = int(run.job.result.get("chosen", 0))
        self._copies = copies
        self._partition = -1
        self._chosen: list[Copy] = []
        """The copies of the next slice; all their letters are of one partition."""
        self._bytes = 0
        """The size of the portions that they are of."""
        self._end = 0
        """The offset up to which the partition is read."""

    async def send_all(self) -> None:
        copies = self._copies
        if copies.is_at_limit:
            return
        chunk_letters = copies.chunk_letters_max
        enough = SLICE_LETTERS_MAX if self._options.rate is None else chunk_letters

        def chunks(unreadable: Unreadable) -> AsyncGenerator[Chunk[Copy], None]:
            return self._queue.chunks_of(
                copies.copy, self._options.selection, size=chunk_letters, complete=True, empty=True,
                unreadable=unreadable,
            )  # fmt: skip

        async with LettersAhead(
            chunks, copies.refuse_unreadable, letters_max=enough, bytes_max=SLICE_BYTES_MAX
        ) as ahead:
            async for portion in ahead:
                chunk = portion.chunk
                # Before letters are chosen, because a slice counts what was chosen until it is
                # sent.
                if chunk.partition != self._partition or not self._has_room(portion):
                    await self._send()
                    self._partition = chunk.partition
                if chosen := await copies.choose(chunk):
                    self._chosen += chosen
                    self._bytes += portion.bytes
                self._end = chunk.end
                if copies.is_at_limit:
                    break
                if len(self._chosen) >= enough or self._run.is_slice_due:
                    await self._send()
        await self._send()

    def _has_room(self, portion: Portion) -> bool:
        """Whether the next slice has room for all letters of a portion; an empty one has."""
        return not self._chosen or (
            len(self._chosen) + len(portion.chunk.letters) <= SLICE_LETTERS_MAX
            and self._bytes + portion.bytes <= SLICE_BYTES_MAX
        )

    async def _send(self) -> None:
        """Send the chosen letters in a slice."""
        if self._partition < 0:
            return
        chosen, self._chosen, self._bytes = self._chosen, [], 0
        await self._run.look()
        if chosen:
            await self._run.pause(self._copies.seconds_to_wait())
            self._copies.pace(len(chosen))
        await self._send_part(chosen, self._end)

    async def _send_part(self, chosen: Sequence[Copy], end: int) -> None:
        """Send letters in one transaction, after which everything below ``end`` is processed."""
        try:
            await self._send_slice(chosen, end)
        except _SliceRefused as refusal:
            refused = refusal.refused
        else:
            return
        closed = {copy.target for copy, error in refused if not isinstance(error, OF_ONE_BATCH)}
        left: list[Copy] = []
        errors = {copy.letter: error for copy, error in refused}
        of_target = {copy.target: error for copy, error in refused}
        for copy in chosen:
            error = errors.get(copy.letter)
            if copy.target in closed:
                error = of_target[copy.target]
            elif error is None or not (len(chosen) == 1 or _is_certain(error, refused)):
                left.append(copy)
                continue
            self._copies.refuse(copy.letter, copy.target, error_text(error))
        # In halves, also if letters were refused: where one was, there may be more, and each
        # attempt finds only those of one batch.
        if middle := len(left) // 2:
            await self._send_part(left[:middle], _end_of(left[:middle]))
        await self._send_part(left[middle:], end)

    async def _send_slice(self, chosen: Sequence[Copy], end: int) -> None:
        sent: dict[str, int] = defaultdict(int)
        for copy in chosen:
            sent[copy.target] += 1
        # A copy of the counts, because they count only if the slice is committed.
        done = redriven_of(redriven_document(self._copies.done))
        done.sent.update(sent)

        async def write(producer: Producer) -> None:
            await self._write_copies(producer, chosen)

        job = self._run.job
        await self._run.slice(
            write if chosen else None,
            positions=moved(job.positions, {self._partition: end}),
            progress=JobProgress(job.progress.counted, letters_of(done)),
            result={**redriven_document(done), "chosen": self._copies.chosen},
        )
        self._copies.done = done

    async def _write_copies(self, producer: Producer, chosen: Sequence[Copy]) -> None:
        refused: list[tuple[Copy, KafkaError]] = []
        handed_over: list[Copy] = []
        futures: list[SendFuture] = []
        failed: BaseException | None = None
        for copy in chosen:
            try:
                future = await hand_over(producer, copy)
            except OF_ONE_TARGET as error:
                refused.append((copy, error))
            except TransactionAbortable as error:
                failed = error  # A copy before this one has failed, as its future will say.
                break
            else:
                handed_over.append(copy)
                futures.append(future)
        for copy, future in zip(handed_over, futures, strict=True):
            # Without a coroutine for each: with the first copy of a batch, all others are done.
            if future.done():
                error_of_copy = future.exception()
            else:
                error_of_copy = await outcome_of(future)
            if isinstance(error_of_copy, OF_ONE_TARGET):
                refused.append((copy, error_of_copy))
            failed = failed or error_of_copy
        if refused:
            raise _SliceRefused(refused)
        if failed is not None:
            raise failed
        targets = sorted({copy.target for copy in chosen})
        facts = {"at_ms": self._copies.at_ms, "to": targets, "job": self._run.job.id}
        offsets = [copy.letter[1] for copy in chosen]
        await self._queue.ledger.note(producer, self._partition, offsets, facts=facts)


def _end_of(copies: Sequence[Copy]) -> int:
    """The offset behind the last of these letters."""
    return copies[-1].letter[1] + 1


def _is_certain(error: KafkaError, refused: Sequence[tuple[Copy, KafkaError]]) -> bool:
    """Whether the error is of this copy, and not perhaps of another one in its batch."""
    # A broker that names the records gives each an error of its own (KIP-467).  One that refuses
    # the batch gives all of them the same.
    return sum(other is error for _, other in refused) == 1
