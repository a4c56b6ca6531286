"""``sharegroup consume``: a member of a share group that writes what it gets to a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import click

from sharegroup.cli.asking import Access, cluster_options, kept_pairs, line_of, telling_errors
from sharegroup.cli.data_options import (
    command_property_option,
    group_of,
    group_option,
    with_properties,
)
from sharegroup.cli.formats.kafka_formatter import kafka_writer
from sharegroup.cli.formats.template import (
    FormatError,
    RecordFormatError,
    parse_template,
    unescape,
)
from sharegroup.cli.formats.writing import RowWriter, json_writer, template_writer
from sharegroup.cli.naming import naming_many
from sharegroup.cli.output import complain
from sharegroup.cli.printing import Printing
from sharegroup.cli.running import Stop, run
from sharegroup.client.admin import AdminClient
from sharegroup.client.config import ClientConfig
from sharegroup.client.consumer_config import ShareConsumerConfig
from sharegroup.client.records import AcknowledgeType
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.errors import UnknownTopicOrPartition

GROUP_DEFAULT = "console-share-consumer"
NULL_DEFAULT = "null"
POLL_RECORDS_MAX = 500
SETTLING = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)


@click.command("consume")
@naming_many("topic")
@group_option(GROUP_DEFAULT)
@click.option("--json", "as_json", is_flag=True, help="Each record as JSON, one on a line.")
@click.option("--format", "form", metavar="FORMAT", help="A record by the verbs above.")
@click.option("--null-marker", metavar="TEXT", help="Written for null.  [default: null]")
@click.option(
    "--formatter-property",
    "--property",
    "properties",
    metavar="KEY=VALUE",
    multiple=True,
    help="A property of Kafka's formatter: print.key, key.separator, ...",
)
@click.option("--max-messages", type=click.IntRange(1), help="End after so many records.")
@click.option(
    "--timeout-ms", "idle_ms", type=click.IntRange(0), help="End when none comes for so long."
)
@click.option("--accept", is_flag=True, help="Each record is done.  [default]")
@click.option("--release", is_flag=True, help="Give each record back.")
@click.option("--reject", is_flag=True, help="Nobody shall have it again.")
@click.option(
    "--reject-on-error",
    "--reject-message-on-error",
    is_flag=True,
    help="Reject a record that can't be written as asked, and go on.",
)
@command_property_option
@cluster_options
def command(*, access: Access, command_properties: tuple[str, ...], **options: Any) -> int:
    """Take the records that a share group hands out for TOPIC..., and write them.

    A record is accepted after it was written; if the pipe breaks, what was not written goes
    back to the group.  A new group begins at the end of a topic, unless its setting
    share.auto.offset.reset says earliest:

    \b
        sharegroup configs alter --group audit --set share.auto.offset.reset=earliest
        sharegroup consume orders --group audit --format '%p:%o %k %v{json}\\n'

    Verbs of --format: %t topic, %p partition, %o offset, %k key, %v value, %d timestamp, %c
    delivery count, %l the lock's deadline, %L milliseconds until then, %i number, %h{%k=%v }
    headers; %T %K %V %H are lengths.  %v{hex}, base64, string (JSON's), json (one line);
    %o{hex}, big32, little64; %d{rfc3339}, %d{%H:%M:%S}.  \\n, \\t and \\x00 are characters.

    Exit code 0: everything that was written is settled, also after Ctrl-C.
    """
    write, outcome = _writer(options), _outcome(options)
    access = with_properties(access, command_properties)
    with telling_errors(access):
        try:
            return run(lambda stop: _consume(stop, access, write, outcome, options))
        except RecordFormatError as error:
            raise click.ClickException(
                f"{error}; it goes back to the group (--reject-on-error rejects it and goes on)"
            ) from error
        except BrokenPipeError as error:
            raise click.ClickException(
                "nobody reads the output any more; what was not written goes back to the group"
            ) from error


def _writer(options: dict[str, Any]) -> RowWriter:
    chosen = [name for name in ("as_json", "form", "properties") if options[name]]
    if len(chosen) > 1:
        raise click.UsageError("--json, --format and --formatter-property exclude each other")
    if options["as_json"]:
        return json_writer()
    null = options["null_marker"]
    try:
        if options["form"]:
            null_bytes = unescape(NULL_DEFAULT if null is None else null)
            return template_writer(parse_template(options["form"]), null=null_bytes)
        properties = kept_pairs(options["properties"], "--formatter-property")
        return kafka_writer(properties if null is None else {"null.literal": null, **properties})
    except FormatError as error:
        raise click.UsageError(str(error)) from error


def _outcome(options: dict[str, Any]) -> AcknowledgeType:
    chosen = [kind for kind in SETTLING if options[kind.name.lower()]]
    if len(chosen) > 1:
        raise click.UsageError("--accept, --release and --reject exclude each other")
    return chosen[0] if chosen else AcknowledgeType.ACCEPT


async def _consume(
    stop: Stop, access: Access, write: RowWriter, outcome: AcknowledgeType, options: dict[str, Any]
) -> int:
    client_options = _consumer_options(access, options)
    await _warn_of_missing(options["topics"], client_options)
    consumer = ShareConsumer(*options["topics"], **client_options)
    printing = Printing(
        consumer,
        sys.stdout.fileno(),
        write=write,
        acknowledge_type=outcome,
        reject_on_error=options["reject_on_error"],
        complain=complain,
    )
    try:
        await printing.run(stop, count_max=options["max_messages"], idle_ms=options["idle_ms"])
    finally:
        await consumer.close(timeout=access.timeout_ms / 1000)
        _report(printing)
    return 1 if printing.lost else 0


async def _warn_of_missing(topics: Iterable[str], client_options: dict[str, Any]) -> None:
    """A group may wait for a topic to be created; who mistyped a name would wait for ever."""
    known = {field.name for field in fields(ClientConfig)}
    common = {name: value for name, value in client_options.items() if name in known}
    async with AdminClient(**common) as admin:
        for topic, found in (await admin.describe_topics(topics)).items():
            if isinstance(found, UnknownTopicOrPartition):
                complain(f"topic {topic!r} does not exist yet (sharegroup topics list)")


def _consumer_options(access: Access, options: dict[str, Any]) -> dict[str, Any]:
    chosen = {
        "client_id": GROUP_DEFAULT,
        "auto_renew": True,
        **access.client_options(ShareConsumerConfig),
        "group_id": group_of(access, options["group"], GROUP_DEFAULT),
        "share_acknowledgement_mode": "explicit",
    }
    if options["max_messages"] is not None:
        # What is fetched and not written has been delivered for nothing: its count goes up.
        limit = min(options["max_messages"], chosen.get("max_poll_records", POLL_RECORDS_MAX))
        chosen |= {
            "max_poll_records": limit,
            "share_acquire_mode": "record_limit",
            "fetch_ahead_ms": 0,
        }
    return chosen


def _report(printing: Printing) -> None:
    rejected = f", {printing.rejected} of them rejected" if printing.rejected else ""
    complain(f"processed {printing.count} records{rejected}")
    for (topic, partition), (count, error) in printing.lost.items():
        complain(
            f"topic {topic!r} partition {partition}: {count} records were written and not "
            f"settled, they may come again: {line_of(error)}"
        )
