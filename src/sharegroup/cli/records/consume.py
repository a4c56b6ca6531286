"""``sharegroup consume``: a member of a group that writes its records to a pipe.

In a share group, the default (`consume_as_member` has the other type):

    poll --> write --> flushed --> accept (or release, or reject) --> with the next fetch

A record is settled only after the system has accepted all its bytes. If the reader has closed
the pipe, or the disk is full, the records that were not written go back to the group. While a
slow reader blocks the pipe, the acquisition locks are renewed (`ShareConsumer`, auto_renew).
Bytes in a pipe count as written, because a writer cannot see whether anyone reads them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple

import click

from sharegroup.cli.common.cluster_access import Access, cluster_options, line_of, telling_errors
from sharegroup.cli.common.data_options import (
    consumer_property_option,
    group_of,
    group_option,
    with_properties,
)
from sharegroup.cli.common.name_arguments import naming_many
from sharegroup.cli.common.output import complain, counted
from sharegroup.cli.common.running import (
    Stop,
    run,
    until_stopped,
)
from sharegroup.cli.groups.group_start import from_beginning_option, start_options, tell_start
from sharegroup.cli.records.consume_as_member import consume_as_member, refuse_acknowledgements
from sharegroup.cli.records.formats.template import RecordFormatError
from sharegroup.cli.records.formats.writing import RowWriter
from sharegroup.cli.records.kafka_console_options import (
    kafka_consumer_options,
    kafka_formatter_options,
)
from sharegroup.cli.records.printing import (
    POLL_SECONDS,
    PrintingLimits,
    print_until,
    run_printer,
    say_processed,
)
from sharegroup.cli.records.record_formats import record_format_options
from sharegroup.cli.records.standard_streams import write_all
from sharegroup.cli.records.written_records import format_records
from sharegroup.client.records import AcknowledgementResult, TopicPartition
from sharegroup.client.settings.consumer_config import ShareConsumerConfig
from sharegroup.client.share.consumer.flow_control import FlowControl
from sharegroup.client.share.consumer.record import Record, UnreadableDelivery
from sharegroup.client.share.consumer.share_consumer import ShareConsumer
from sharegroup.errors import InvalidRecordState, KafkaError, UnsupportedVersion
from sharegroup.protocol_enums import AcknowledgeType, GroupType
from sharegroup.record_documents import Row

GROUP_DEFAULT = "console-share-consumer"
POLL_RECORDS_MAX = 500
SHUTDOWN_COMPLETE = "shutdown_complete"
Work = Callable[[Stop, Access, RowWriter, dict[str, Any]], Coroutine[Any, Any, int]]
SETTLING = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)


@click.command("consume")
@naming_many("topic")
@group_option(GROUP_DEFAULT)
@kafka_formatter_options
@record_format_options
@from_beginning_option
@click.option("--max-messages", type=click.IntRange(1), help="Stop after this number of records.")
@click.option(
    "--timeout-ms",
    "idle_ms",
    type=click.IntRange(0),
    help="Stop if no record arrives within this number of milliseconds.",
)
@click.option(
    "--group-type",
    type=click.Choice([str(GroupType.SHARE), str(GroupType.CONSUMER)]),
    default=str(GroupType.SHARE),
    show_default=True,
    help="Type of the group. A consumer group reads each partition in order, and commits offsets.",
)
@click.option("--accept", is_flag=True, help="Accept each record.  [default]")
@click.option("--release", is_flag=True, help="Release each record; it is delivered again.")
@click.option("--reject", is_flag=True, help="Reject each record; it is not delivered again.")
@click.option(
    "--reject-on-error",
    "--reject-message-on-error",
    is_flag=True,
    help="Reject a record that cannot be written in this format, and offsets that cannot be read; "
    "continue.",
)
@click.option(
    "--skip-message-on-error",
    is_flag=True,
    help="With --group-type consumer: skip a record that cannot be written in this format, and "
    "offsets that cannot be read; continue.",
)
@click.option(
    "--enable-systest-events",
    is_flag=True,
    help="Write the line shutdown_complete at the end, as Kafka's tools do for its system tests.",
)
@consumer_property_option
@kafka_consumer_options
@cluster_options
def command(
    *, access: Access, write: RowWriter, command_properties: tuple[str, ...], **options: Any
) -> int:
    """Consume records of TOPIC... as a member of a group, and write them.

    In a share group a record is accepted after it was written; if the pipe breaks, the records of
    the last write are released, also those that the reader has got.  A new group starts at the end
    of a topic; --from-beginning sets its setting share.auto.offset.reset to earliest:

    \b
        sharegroup consume orders --group audit --from-beginning --format '%p:%o %k %v{json}\\n'

    With --group-type consumer the verb is a member of an ordinary consumer group: offsets are
    committed after the records before them were written, and a new group starts where
    auto.offset.reset says, or with --from-beginning at the first record.  group.protocol=consumer
    in --command-property chooses the protocol of KIP-848:

    \b
        sharegroup consume orders --group-type consumer --group billing --from-beginning

    Keys and headers are escaped if standard output is a terminal; values are not: use --json, or
    %v{string} in a --format, for values that may contain terminal control characters.

    Verbs of --format: %t topic, %p partition, %o offset, %k key, %v value, %d timestamp, %c
    delivery count, %l the lock's deadline, %L milliseconds until then, %i number, %h{%k=%v }
    headers; %T %K %V %H are lengths.  %v{hex}, base64, string (JSON's), json (one line);
    %o{hex}, big32, little64; %d{rfc3339}, %d{%H:%M:%S}.  \\n, \\t and \\x00 are characters.

    Offsets that cannot be read are reported on standard error, and released at the end; with
    --reject-on-error they are rejected.

    Exit code 0: all written records are settled or committed, also after Ctrl-C or SIGTERM. 1: some
    are not, or some offsets cannot be read.
    """
    work, sayings = _member(options)
    access = with_properties(access, command_properties)
    with telling_errors(access):
        try:
            code = run(lambda stop: work(stop, access, write, options))
        except RecordFormatError as error:
            raise click.ClickException(f"{error}; {sayings.unwritable}") from error
        except BrokenPipeError as error:
            raise click.ClickException(
                f"the reader of the output has closed it; {sayings.unread}"
            ) from error
    if options["enable_systest_events"]:
        click.echo(SHUTDOWN_COMPLETE)
    return code


class Sayings(NamedTuple):
    """What becomes of records, by the type of the group."""

    unwritable: str
    """After the error of a record that cannot be written."""
    unread: str
    """After the reader of the output has closed it."""


SHARE_SAYINGS = Sayings(
    "it and the records after it are released (with --reject-on-error it is rejected, and the "
    "others are written)",
    "the records of the last write are released, also those that it has read, and are delivered "
    "again",
)
CONSUMER_SAYINGS = Sayings(
    "the offset of the group stays in front of it (with --skip-message-on-error it is skipped, and "
    "the others are written)",
    "the offsets of the last write are not committed, so its records are read again, also those "
    "that the reader has read",
)


def _member(options: dict[str, Any]) -> tuple[Work, Sayings]:
    """Return the work of a member of this type of group; UsageError for options of the other."""
    if options["group_type"] == GroupType.CONSUMER:
        refuse_acknowledgements(options)
        return consume_as_member, CONSUMER_SAYINGS
    if options["skip_message_on_error"]:
        raise click.UsageError(
            "--skip-message-on-error is for --group-type consumer; use --reject-on-error"
        )
    outcome = _outcome(options)

    async def work(stop: Stop, access: Access, write: RowWriter, options: dict[str, Any]) -> int:
        return await _consume(stop, access, write, outcome, options)

    return work, SHARE_SAYINGS


def _outcome(options: dict[str, Any]) -> AcknowledgeType:
    chosen_types = [kind for kind in SETTLING if options[kind.name.lower()]]
    if len(chosen_types) > 1:
        raise click.UsageError("--accept, --release and --reject exclude each other")
    return chosen_types[0] if chosen_types else AcknowledgeType.ACCEPT


async def _consume(
    stop: Stop, access: Access, write: RowWriter, outcome: AcknowledgeType, options: dict[str, Any]
) -> int:
    client_options = _consumer_options(access, options)
    from_beginning = options["from_beginning"]
    telling = tell_start(access, options["topics"], client_options, from_beginning=from_beginning)
    await until_stopped(telling, stop)
    consumer = ShareConsumer(*options["topics"], **client_options)
    printer = RecordPrinter(
        consumer,
        sys.stdout.fileno(),
        write=write,
        acknowledge_type=outcome,
        reject_on_error=options["reject_on_error"],
        complain=complain,
    )
    await run_printer(
        printer,
        stop,
        access,
        options,
        metrics=consumer.metrics,
        close=consumer.close,
        report=partial(_report, printer),
    )
    return 1 if printer.lost or printer.unreadable else 0


def _consumer_options(access: Access, options: dict[str, Any]) -> dict[str, Any]:
    consumer_options = {
        "client_id": GROUP_DEFAULT,
        "auto_renew": True,
        **access.client_options(ShareConsumerConfig),
        "group_id": group_of(access, options["group"], GROUP_DEFAULT),
        "share_acknowledgement_mode": "explicit",
        **start_options(from_beginning=options["from_beginning"]),
    }
    if options["max_messages"] is not None:
        # A record that is fetched and not written wastes a delivery: its delivery count grows.
        limit = min(
            options["max_messages"], consumer_options.get("max_poll_records", POLL_RECORDS_MAX)
        )
        consumer_options |= {
            "max_poll_records": limit,
            "share_acquire_mode": "record_limit",
            "fetch_ahead_ms": 0,
        }
    return consumer_options


def _report(printer: RecordPrinter) -> None:
    say_processed(printer.count, printer.rejected, "rejected", printer.unreadable)
    for (topic, partition), (count, error) in printer.lost.items():
        complain(
            f"topic {topic!r} partition {partition}: {counted(count, 'record')} written, but "
            f"could not be settled; delivery may be repeated: {line_of(error)}"
        )


class RecordPrinter:
    """Writes the records of a consumer to a file descriptor, and settles them."""

    __slots__ = (
        "_acknowledge_type",
        "_complain",
        "_consumer",
        "_fd",
        "_reject_on_error",
        "_write",
        "count",
        "lost",
        "rejected",
        "unreadable",
    )

    def __init__(
        self,
        consumer: ShareConsumer,
        fd: int,
        *,
        write: RowWriter,
        acknowledge_type: AcknowledgeType,
        reject_on_error: bool,
        complain: Callable[[str], None],
    ) -> None:
        self._consumer = consumer
        self._fd = fd
        self._write = write
        self._acknowledge_type = acknowledge_type
        self._reject_on_error = reject_on_error
        self._complain = complain
        self.count = 0
        """The number of records that were delivered and settled."""
        self.rejected = 0
        """The number of records among them that the format could not write."""
        self.unreadable = 0
        """The number of ranges of offsets that cannot be read."""
        self.lost: dict[TopicPartition, tuple[int, KafkaError]] = {}
        """By partition, the number of records whose acknowledgement failed, and the last error.

        These records may be delivered again.
        """
        consumer.set_acknowledgement_commit_callback(self._acknowledged)

    async def run(self, stop: Stop, limits: PrintingLimits) -> None:
        """Write and settle records until one of the limits is reached or ``stop`` is set."""
        await print_until(self, stop, limits)
        # Its callback fills `lost`, on which the exit code depends.
        await self._consumer.commit()

    async def poll(self, count_max: int | None) -> Sequence[Record]:
        """Return records; offsets that cannot be read are reported."""
        try:
            return await self._consumer.poll(POLL_SECONDS, count_max)
        except UnreadableDelivery as error:
            self._say_unreadable(error)
            return ()
        except (InvalidRecordState, UnsupportedVersion) as error:
            # The consumer raises once if the broker cannot renew locks, and then runs without.
            if not error.ends_renewal:
                raise
            self._complain(str(error))
            return ()

    def _say_unreadable(self, error: UnreadableDelivery) -> None:
        """Report offsets that cannot be read; they are released at the end unless told otherwise.

        Released at once, they would be delivered here again until the delivery count limit.
        """
        self.unreadable += 1
        if self._reject_on_error:
            self._consumer.reject(error)
        else:
            FlowControl(self._consumer).keep(error)
        outcome = "rejected" if self._reject_on_error else "released at the end"
        self._complain(f"{outcome}: {error}")

    async def print_records(self, records: Sequence[Record]) -> None:
        """Write records and settle them."""
        wall_ms, monotonic = time.time_ns() // 1_000_000, time.monotonic()

        def row_of(number: int, record: Record) -> Row:
            left_ms = int((record.deadline - monotonic) * 1000)
            return _row(record, wall_ms + left_ms, left_ms, self.count + number + 1)

        # Without `reject_on_error`, the record that cannot be written and those after it stay
        # unsettled, so closing the consumer releases them.
        formatted = format_records(records, row_of, self._write, continues=self._reject_on_error)
        for _, error in formatted.unwritable:
            self._complain(f"rejected: {error}")
        # Before anything is settled: records whose output fails have to be delivered again.
        await write_all(self._fd, formatted.content)
        for record in formatted.written:
            record.settle(self._acknowledge_type)
        for record, _ in formatted.unwritable:
            record.reject()
        self.count += len(formatted.written) + len(formatted.unwritable)
        self.rejected += len(formatted.unwritable)
        if formatted.failure is not None:
            raise formatted.failure

    def _acknowledged(self, result: AcknowledgementResult) -> None:
        # A failed renewal needs no report: the acknowledgement after it fails as well.
        if result.error is not None and not result.is_renewal:
            count, _ = self.lost.get(result.topic_partition, (0, None))
            self.lost[result.topic_partition] = count + len(result.offsets), result.error


def _row(record: Record, deadline_ms: int, left_ms: int, number: int) -> Row:
    return Row(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp_ms,
        record.key,
        record.value,
        record.headers,
        record.delivery_count,
        deadline_ms,
        left_ms,
        number,
        record.leader_epoch,
        record.has_append_time,
    )
