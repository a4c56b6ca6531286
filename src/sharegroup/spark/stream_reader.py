"""The streaming reader of ``kafka-share``, which is a member of the share group.

Spark creates two readers.  One exists as long as the query, in its own process on the driver's
host, and gets all calls but `read`.  The other is only pickled to the executors.  So the
constructor does nothing.  The member starts with the first call that needs it, which after a
restart may be `partitions`.

`ShareStream` describes what each call means for the group.  Spark's rules are:

    latestOffset   is called only after the previous batch is committed; an error ends the query,
                   so a retriable error is logged and ``start`` is returned
    partitions     is a pure function of the two offsets: no broker is needed
    commit         is called late, twice or never: it does nothing
    stop           is called by Spark's ``finally`` when the process ends (`lifecycle`)

The offsets store the member id, so a query that was killed has the same member id when it starts
again.  Otherwise the group would have two members until the session of the old one times out, and
the new one would get only half of the partitions.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from sharegroup import freed_memory
from sharegroup.client.share.session.acquired_records import RECORDS_MAX
from sharegroup.errors import KafkaError
from sharegroup.spark.decision_files import default_location, folder_of, write_decisions
from sharegroup.spark.offsets import StreamOffset, Subscription, parse
from sharegroup.spark.options import SourceOptions
from sharegroup.spark.plan import plan

if TYPE_CHECKING:
    import pyarrow as pa

    from sharegroup.client.share.session.offset_set import OffsetSet
    from sharegroup.protocol_enums import AcknowledgeType
    from sharegroup.spark.plan import PartitionRuns
    from sharegroup.spark.stream_member import StreamMember

log = logging.getLogger(__name__)

Json = dict[str, Any]


class TriggerNotSupported(ValueError):
    """The query's trigger is not supported for share groups."""


class KafkaShareStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the records of a share group, for ``spark.readStream``."""

    def __init__(self, options: SourceOptions, load: str) -> None:
        self._options = options
        self._load = load
        self._subscription = Subscription(options.group, options.topics)
        self._member: StreamMember | None = None
        self._is_available_now = False

    # The methods that Spark calls, in the order of the calls.

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's names.
        """Let the run end at the end offsets of the first `latestOffset` call."""
        self._is_available_now = True

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return a number of rows, so that Trigger.Once, which has no limit, can be detected."""
        # Only the query's reader gets this call, at its start. Spark creates the checkpoint next,
        # and meanwhile a thread imports what the first call of `latestOffset` needs. The memory is
        # configured first, because a thread that starts before that gets an arena of its own.
        freed_memory.keep_for_answers()
        Thread(target=import_module, args=("sharegroup.spark.stream_member",), daemon=True).start()
        return ReadMaxRows(self._options.records_per_trigger_max or RECORDS_MAX)

    def initialOffset(self) -> Json:  # noqa: N802
        """Return the offset before the first batch; the broker keeps the group's position."""
        # A constant, without query and load: Spark asks for it twice, and again when batch 0 is
        # replayed.
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
        # Spark has finished the previous batch, so its kept records are not needed any more.
        member.keeper.release()
        if self._is_available_now and not member.stream.has_end:
            member.call(member.stream.stop_at_the_end())
        try:
            end = member.call(member.stream.advance(offset, records_max=records_max))
        except KafkaError as error:
            # With availableNow an unchanged offset would end the run as if there were no records
            # left.
            if self._is_available_now or not error.retriable:
                raise
            # An equal offset starts no batch, so Spark asks again at the next trigger.
            log.warning("event=stream.waits group=%s error=%r", self._options.group, error)
            return start
        finally:
            member.keeper.publish()
        # Spark compares offsets as text, so an equal one starts no batch.
        if end is offset:
            return start
        # After `publish`, so what is received from now on is kept for the next batch and not for
        # this one.
        member.call(member.stream.acquire_ahead(end, records_max))
        return end.to_json()

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        """Return figures about the group and this reader, for Spark's progress reports."""
        if self._member is None:
            return None
        self._member.refresh()
        # With the group, because Spark's progress report names a Python source by its class.
        return {"group": self._options.group, **self._member.report()}

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Return the tasks that read the records of the batch that ends at ``end``."""
        if start == end:
            return []  # Spark runs an empty first batch when there are no records yet.
        # The end alone has the records of the batch; ``start`` has those of the batch before.
        offset = parse(end, self._subscription)
        member = self._started(offset)  # So that the member joins the group in the meantime.
        # Before the batch runs, because `foreachBatch` may decide, and the driver die, at any time.
        member.stream.runs_again(offset)
        return plan(
            offset.acquired,
            offset.names,
            tasks_min=self._options.partitions_min,
            rows_per_task_max=self._options.records_per_partition_max,
            keeper=member.keeper,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, on an executor."""
        # Imported here because only executors read.
        from sharegroup.spark import executor_read

        return executor_read.read(self._options, partition, decide=self._decide)

    def _decide(self, part: PartitionRuns, kind: AcknowledgeType, offsets: OffsetSet) -> None:
        """Decide about offsets without rows: of an unreadable batch, or of records that are gone.

        This runs on an executor: the decision is a file, like those of `foreachBatch`. If it cannot
        be written, the offsets are accepted.
        """
        location = self._options.outcomes_location or default_location()
        folder = folder_of(location, self._options.group, self._load)
        try:
            write_decisions(folder, {(part.topic, part.partition): {kind: offsets}})
        except OSError as error:
            log.warning(
                "event=outcomes.not_written folder=%s error=%r action='offsets that cannot be "
                "read are accepted with their batch'",
                folder,
                error,
            )

    def commit(self, end: Json) -> None:
        """Do nothing: `latestOffset` acknowledges the records."""

    def stop(self) -> None:
        """Leave the group; the held records are released when the session is closed."""
        member, self._member = self._member, None
        if member is not None:
            member.close()

    def _started(self, offset: StreamOffset) -> StreamMember:
        """Return the member, started if necessary, with the member id of the query's offsets."""
        if self._member is None:
            # Imported here because processes that plan a query or run its tasks have no member.
            from sharegroup.spark.stream_member import StreamMember

            self._member = StreamMember(self._options, self._load, offset.query or uuid.uuid4().hex)
        return self._member
