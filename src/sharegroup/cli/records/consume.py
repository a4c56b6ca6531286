"""``sharegroup consume``: a member of a share group that writes its records to a pipe."""

from __future__ import annotations

import sys
from typing import Any

import click

from sharegroup.cli.common.cluster_access import Access, cluster_options, line_of, telling_errors
from sharegroup.cli.common.data_options import (
    consumer_property_option,
    group_of,
    group_option,
    with_properties,
)
from sharegroup.cli.common.name_arguments import naming_many
from sharegroup.cli.common.output import complain
from sharegroup.cli.common.running import (
    CLOSE_SECONDS,
    Stop,
    lacks_broker,
    run,
    telling_waits,
    until_stopped,
)
from sharegroup.cli.groups.group_start import from_beginning_option, start_options, tell_start
from sharegroup.cli.records.formats.template import RecordFormatError
from sharegroup.cli.records.formats.writing import RowWriter
from sharegroup.cli.records.kafka_console_options import (
    kafka_consumer_options,
    kafka_formatter_options,
)
from sharegroup.cli.records.record_formats import record_format_options
from sharegroup.cli.records.record_printer import RecordPrinter
from sharegroup.client.settings.consumer_config import ShareConsumerConfig
from sharegroup.client.share.consumer.share_consumer import ShareConsumer
from sharegroup.protocol_enums import AcknowledgeType

GROUP_DEFAULT = "console-share-consumer"
POLL_RECORDS_MAX = 500
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
@consumer_property_option
@kafka_consumer_options
@cluster_options
def command(
    *, access: Access, write: RowWriter, command_properties: tuple[str, ...], **options: Any
) -> int:
    """Consume records of TOPIC... as a member of a share group, and write them.

    A record is accepted after it was written; if the pipe breaks, the records of the last write
    are released, also those that the reader has got.  A new group starts at the end of a topic;
    --from-beginning sets its setting share.auto.offset.reset to earliest:

    \b
        sharegroup consume orders --group audit --from-beginning --format '%p:%o %k %v{json}\\n'

    Keys and headers are escaped if standard output is a terminal; values are not: use --json, or
    %v{string} in a --format, for values that may contain terminal control characters.

    Verbs of --format: %t topic, %p partition, %o offset, %k key, %v value, %d timestamp, %c
    delivery count, %l the lock's deadline, %L milliseconds until then, %i number, %h{%k=%v }
    headers; %T %K %V %H are lengths.  %v{hex}, base64, string (JSON's), json (one line);
    %o{hex}, big32, little64; %d{rfc3339}, %d{%H:%M:%S}.  \\n, \\t and \\x00 are characters.

    Offsets that cannot be read are reported on standard error, and released at the end; with
    --reject-on-error they are rejected.

    Exit code 0: all written records are settled, also after Ctrl-C or SIGTERM. 1: some are not, or
    some offsets cannot be read.
    """
    outcome = _outcome(options)
    access = with_properties(access, command_properties)
    with telling_errors(access):
        try:
            return run(lambda stop: _consume(stop, access, write, outcome, options))
        except RecordFormatError as error:
            raise click.ClickException(
                f"{error}; it and the records after it are released (with --reject-on-error it is "
                "rejected, and the others are written)"
            ) from error
        except BrokenPipeError as error:
            raise click.ClickException(
                "the reader of the output has closed it; the records of the last write are "
                "released, also those that it has read, and are delivered again"
            ) from error


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
    limits = {"count_max": options["max_messages"], "idle_ms": options["idle_ms"]}
    try:
        async with telling_waits(
            access.bootstrap_servers, lambda: lacks_broker(consumer.metrics())
        ):
            await until_stopped(printer.run(stop, **limits), stop)
    finally:
        # After a signal the verb has to end before STOP_SECONDS_MAX, at which it is cancelled.
        await consumer.close(timeout=CLOSE_SECONDS if stop.code else access.timeout_ms / 1000)
        _report(printer)
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
    rejected = f", {printer.rejected} of them rejected" if printer.rejected else ""
    unreadable = (
        f"; {printer.unreadable} ranges of offsets could not be read" if printer.unreadable else ""
    )
    complain(f"processed {printer.count} records{rejected}{unreadable}")
    for (topic, partition), (count, error) in printer.lost.items():
        complain(
            f"topic {topic!r} partition {partition}: {count} records were written, but could "
            f"not be settled; they may be delivered again: {line_of(error)}"
        )
