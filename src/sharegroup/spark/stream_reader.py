"""The streaming reader of ``kafka-share``: a member of the share group, in Spark's form.

Spark makes two of these.  One lives as long as the query in a process of its own on the
driver's host and gets all calls but `read`; the other is only made to be pickled to the
executors.  So making one does nothing, and the member starts with the first call that needs
it, which after a restart may be `partitions`.

What each call means for the group is said in `ShareStream`; here are Spark's rules:

    latestOffset   asked only after the batch before is committed; an error ends the query, so
                   what passes by itself is logged and answered with ``start``
    partitions     a pure function of the two offsets: no broker is needed
    commit         comes late, twice or never: does nothing
    stop           from Spark's ``finally`` when the process ends (`lifecycle`)

A query that was killed and starts again has the same member id as before, kept in its offsets.
Else the group would count two members until the dead one's session times out, and the living
one would get half of the partitions.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from sharegroup import freed_memory
from sharegroup.client.config import ClientConfig, config_from
from sharegroup.client.share_ranges import RECORDS_MAX, ShareRanges
from sharegroup.errors import KafkaError
from sharegroup.spark.background import LoopThread
from sharegroup.spark.decision_files import DecisionFiles, default_location
from sharegroup.spark.kept_records import Keeper
from sharegroup.spark.lifecycle import GOODBYE_SECONDS, exit_as_orphan, exit_on_sigterm
from sharegroup.spark.offsets import StreamOffset, Subscription, parse
from sharegroup.spark.options import SourceOptions
from sharegroup.spark.plan import plan
from sharegroup.spark.share_stream import ShareStream

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

Json = dict[str, Any]
T = TypeVar("T")


class TriggerNotSupported(ValueError):
    """The query's trigger can't work with a share group."""


class KafkaShareStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See the module's text."""

    def __init__(self, options: SourceOptions, load: str) -> None:
        self._options = options
        self._load = load
        self._subscription = Subscription(options.group, options.topics)
        self._member: _Member | None = None
        self._is_available_now = False

    # What Spark calls, in its order.

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's names.
        """The run ends at what are the last offsets when it asks for the first time."""
        self._is_available_now = True

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Always a number, so that Trigger.Once, which asks for everything, is recognised."""
        return ReadMaxRows(self._options.records_per_trigger_max or RECORDS_MAX)

    def initialOffset(self) -> Json:  # noqa: N802
        """Before the first batch; the group's position is the broker's."""
        return StreamOffset(self._subscription).to_json()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """Acknowledge the batch that ended at ``start`` and acquire the next one."""
        if isinstance(limit, ReadAllAvailable) and not self._is_available_now:
            raise TriggerNotSupported(
                "the trigger once ends a query without telling its source that the batch is done, "
                "so its records could never be acknowledged; use trigger(availableNow=True)"
            )
        records_max = limit.max_rows if isinstance(limit, ReadMaxRows) else RECORDS_MAX
        offset = parse(start, self._subscription)
        member = self._started(offset)
        member.keeper.begin()  # Spark asks when the batch before is done, so its records are too.
        if self._is_available_now and not member.stream.has_end:
            member.call(member.stream.stop_at_the_end())
        try:
            end = member.call(member.stream.advance(offset, records_max=records_max))
        except KafkaError as error:
            if self._is_available_now or not error.retriable:
                raise
            log.warning("stream.waits group=%s error=%r", self._options.group, error)
            return start
        return start if end is offset else end.to_json()

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        """Figures about the group and this reader, for Spark's progress reports."""
        if self._member is None:
            return None
        self._member.refresh()
        return dict(self._member.stream.report())

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """The tasks that read what was acquired for the batch that ends at ``end``."""
        if start == end:
            return []  # Spark runs an empty first batch when there are no records yet.
        offset = parse(end, self._subscription)
        member = self._started(offset)  # Joining the group can begin meanwhile.
        return plan(
            offset.acquired,
            offset.names,
            tasks_min=self._options.partitions_min,
            rows_per_task_max=self._options.records_per_partition_max,
            keeper=member.keeper,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, on an executor."""
        from sharegroup.spark.executor_read import read

        return read(self._options, partition)

    def commit(self, end: Json) -> None:
        """Nothing: `latestOffset` has said it already, or will."""

    def stop(self) -> None:
        """Leave the group; what is held is given back with the session."""
        member, self._member = self._member, None
        if member is not None:
            member.close()

    def _started(self, offset: StreamOffset) -> _Member:
        """The member, which keeps the name that the query's offsets have for it."""
        if self._member is None:
            self._member = _Member(self._options, self._load, offset.query or uuid.uuid4().hex)
        return self._member


class _Member:
    """The member's thread: heartbeats, renewals and requests go on while Spark does not call."""

    def __init__(self, options: SourceOptions, load: str, query: str) -> None:
        exit_on_sigterm()
        freed_memory.keep_for_answers()
        self._thread = LoopThread("kafka-share-driver")
        self.keeper = Keeper(options.kept_bytes_max)
        self._ranges = self._thread.call(_make_ranges(options, query, self.keeper))
        files = DecisionFiles(options.outcomes_location or default_location(), options.group, load)
        files.remove_old()
        self.stream = ShareStream(self._ranges, files, query=query, load=load)
        self._thread.submit(exit_as_orphan(self._ranges.close))

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it on the member's thread and wait for it."""
        return self._thread.call(work)

    def refresh(self) -> None:
        """Have the group's position asked for in the background."""
        self._thread.submit(self.stream.refresh_positions())

    def close(self) -> None:
        leaving = self._thread.submit(self._ranges.close())
        try:
            leaving.result(GOODBYE_SECONDS)
        except (FutureTimeout, KafkaError) as error:
            log.warning("stream.leave_failed error=%r (locks and membership time out)", error)
        self._thread.close()
        self.keeper.close()


async def _make_ranges(options: SourceOptions, query: str, keeper: Keeper) -> ShareRanges:
    """On the loop it belongs to; begins to join the group."""
    ranges = ShareRanges(
        config_from(ClientConfig, options.client),
        group_id=options.group,
        topics=options.topics,
        member_id=query,
        on_records=keeper.keep,
    )
    ranges.start()
    return ranges
