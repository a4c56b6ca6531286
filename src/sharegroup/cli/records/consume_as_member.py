"""``sharegroup consume --group-type consumer``: reads as a member of an ordinary consumer group.

    poll --> write --> commit the offsets behind the written records

Each partition has one reader in the group, and is read in order. Offsets are committed only after
the system has accepted the bytes of the records before them, so a record may be written twice, and
none is left out. Heartbeats go on while a slow reader blocks the pipe. If it does so for longer
than max.poll.interval.ms, the group gives the partitions to other members, which read the records
of the last write again.

A record that cannot be written cannot be left behind for others, as in a share group: the run ends
in front of it, or it is skipped with ``--skip-message-on-error``.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click

from sharegroup.cli.common.cluster_access import Access, line_of
from sharegroup.cli.common.data_options import group_of
from sharegroup.cli.common.output import complain, counted
from sharegroup.cli.common.running import Stop, until_stopped
from sharegroup.cli.groups.group_start import tell_start
from sharegroup.cli.records.formats.writing import RowWriter
from sharegroup.cli.records.printing import (
    POLL_SECONDS,
    PrintingLimits,
    print_until,
    run_printer,
    say_processed,
)
from sharegroup.cli.records.standard_streams import write_all
from sharegroup.cli.records.written_records import format_records
from sharegroup.client.consume.consumer import Consumer
from sharegroup.client.consume.consumer_record import ConsumerRecord
from sharegroup.client.records import CommitFailedError, TopicPartition
from sharegroup.client.settings.plain_consumer_config import ConsumerConfig
from sharegroup.errors import KafkaError, UnreadableBatch
from sharegroup.protocol_enums import GroupType
from sharegroup.record_documents import Row

GROUP_DEFAULT = "console-consumer"
SHARE_ONLY = ("accept", "release", "reject", "reject_on_error")
"""The options about acknowledgements, which consumer groups do not have."""


def refuse_acknowledgements(options: dict[str, Any]) -> None:
    """Raise UsageError for options that mean something for share groups only."""
    for name in SHARE_ONLY:
        if options[name]:
            instead = "; --skip-message-on-error leaves out such records" * (
                name == "reject_on_error"
            )
            raise click.UsageError(
                f"--{name.replace('_', '-')} is for share groups: a consumer group commits offsets "
                f"and does not settle single records{instead}"
            )


async def consume_as_member(
    stop: Stop, access: Access, write: RowWriter, options: dict[str, Any]
) -> int:
    """Write records until a limit or a signal, and return the exit code."""
    client_options = _client_options(access, options)
    telling = tell_start(
        access,
        options["topics"],
        client_options,
        from_beginning=options["from_beginning"],
        group_type=GroupType.CONSUMER,
    )
    await until_stopped(telling, stop)
    consumer = Consumer(*options["topics"], **client_options)
    printer = CommittingPrinter(
        consumer,
        sys.stdout.fileno(),
        write=write,
        skips=options["skip_message_on_error"],
        complain=complain,
    )
    await run_printer(
        printer,
        stop,
        access,
        options,
        metrics=consumer.metrics,
        close=partial(consumer.close, commit=False),
        report=partial(_report, printer),
    )
    return 1 if printer.uncommitted or printer.unreadable else 0


def _client_options(access: Access, options: dict[str, Any]) -> dict[str, Any]:
    client_options = {
        "client_id": GROUP_DEFAULT,
        # A mistyped name is reported, as in a share group, and does not become a topic.
        "allow_auto_create_topics": False,
        **access.client_options(ConsumerConfig),
        "group_id": group_of(access, options["group"], GROUP_DEFAULT),
        "enable_auto_commit": False,
    }
    return client_options | ({"auto_offset_reset": "earliest"} if options["from_beginning"] else {})


def _report(printer: CommittingPrinter) -> None:
    say_processed(printer.count, printer.skipped, "skipped", printer.unreadable)
    cause = "" if printer.error is None else f": {_line(printer.error)}"
    for (topic, partition), count in sorted(printer.uncommitted.items()):
        complain(
            f"topic {topic!r} partition {partition}: {counted(count, 'record')} written, but the "
            f"offset could not be committed; delivery may be repeated{cause}"
        )


def _line(error: Exception) -> str:
    return line_of(error) if isinstance(error, KafkaError) else str(error)


class CommittingPrinter:
    """Writes the records of a consumer to a file descriptor, and commits the offsets behind."""

    __slots__ = (
        "_complain",
        "_consumer",
        "_fd",
        "_skips",
        "_write",
        "count",
        "error",
        "skipped",
        "uncommitted",
        "unreadable",
    )

    def __init__(
        self,
        consumer: Consumer,
        fd: int,
        *,
        write: RowWriter,
        skips: bool,
        complain: Callable[[str], None],
    ) -> None:
        self._consumer = consumer
        self._fd = fd
        self._write = write
        self._skips = skips
        self._complain = complain
        self.count = 0
        """The number of records that were written or skipped."""
        self.skipped = 0
        """The number of records among them that the format could not write."""
        self.unreadable = 0
        """The number of ranges of offsets that cannot be read and were skipped."""
        self.uncommitted: Counter[TopicPartition] = Counter()
        """By partition, the number of written records that other members may read again."""
        self.error: Exception | None = None
        """The error of the last commit that failed."""

    async def run(self, stop: Stop, limits: PrintingLimits) -> None:
        """Write and commit records until one of the limits is reached or ``stop`` is set."""
        await print_until(self, stop, limits)

    async def poll(self, count_max: int | None) -> Sequence[ConsumerRecord]:
        """Return records; offsets that cannot be read end the run, or are skipped."""
        try:
            return await self._consumer.poll(POLL_SECONDS, count_max)
        except UnreadableBatch as error:
            if not self._skips:
                self._complain("with --skip-message-on-error the following offsets are skipped")
                raise
            self.unreadable += 1
            self._complain(f"skipped: {error}")
            where = TopicPartition(error.topic, error.partition)
            self._consumer.seek(where, error.end)
            await self._commit({where: error.end})
            return ()

    async def print_records(self, records: Sequence[ConsumerRecord]) -> None:
        """Write records and commit the offsets behind them."""

        def row_of(number: int, record: ConsumerRecord) -> Row:
            return _row(record, self.count + number + 1)

        formatted = format_records(records, row_of, self._write, continues=self._skips)
        for _, error in formatted.unwritable:
            self._complain(f"skipped: {error}")
        # Before the commit: records whose output fails have to be read again.
        await write_all(self._fd, formatted.content)
        done = [*formatted.written, *(record for record, _ in formatted.unwritable)]
        self.count += len(done)
        self.skipped += len(formatted.unwritable)
        self.uncommitted.update(record.topic_partition for record in done)
        ends: dict[TopicPartition, int] = {}
        for record in done:
            where = record.topic_partition
            ends[where] = max(ends.get(where, 0), record.offset + 1)
        await self._commit(ends)
        if formatted.failure is not None:
            raise formatted.failure

    async def _commit(self, ends: dict[TopicPartition, int]) -> None:
        """Commit the offsets behind the written records.

        A refusal, because the group has given the partitions to others, does not end the run: the
        next poll joins again.
        """
        try:
            await self._consumer.commit(ends)
        except CommitFailedError as error:
            self.error = error
        except KafkaError as error:
            self.error = error
            raise
        else:
            for where in ends:
                del self.uncommitted[where]


def _row(record: ConsumerRecord, number: int) -> Row:
    return Row(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp_ms,
        record.key,
        record.value,
        record.headers,
        number=number,
        leader_epoch=record.leader_epoch,
        has_append_time=record.has_append_time,
    )
