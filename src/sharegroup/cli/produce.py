"""``sharegroup produce``: records from files and pipes.

    bytes --> reader (lines, JSON, --format) --> producer --> acknowledged, or an error

The exit code says whether every record that was read is acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import click

from sharegroup.cli.asking import Access, cluster_options, kept_pairs, telling_errors
from sharegroup.cli.data_options import (
    acks_option,
    command_property_option,
    compression_option,
    producer_options,
    with_properties,
)
from sharegroup.cli.formats.lines import line_form
from sharegroup.cli.formats.reading import (
    LineReader,
    NewRecord,
    Reader,
    TemplateReader,
    json_record,
)
from sharegroup.cli.formats.template import (
    FormatError,
    RecordFormatError,
    parse_template,
    unescape,
)
from sharegroup.cli.naming import complete_topics
from sharegroup.cli.output import complain
from sharegroup.cli.pipes import read_chunks
from sharegroup.cli.running import Stop, run
from sharegroup.cli.sending import Counts, Defaults, Sending
from sharegroup.client.config import ProducerConfig
from sharegroup.client.producer import Producer

STDIN = "-"
LOOK_SECONDS = 0.2
"""How often outcomes are looked at while no input comes, and progress is shown."""

NewReader = Callable[[], Reader]


@click.command("produce")
@click.argument("topic", shell_complete=complete_topics)
@click.argument("file", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--json", "as_json", is_flag=True, help="Each line is a record as JSON.")
@click.option("--format", "form", metavar="FORMAT", help="How records stand in the input.")
@click.option("--key-separator", metavar="TEXT", help="A key stands before this in each line.")
@click.option("--headers", is_flag=True, help="Each line begins with name:value,... and a tab.")
@click.option("--null-marker", metavar="TEXT", help="A key or value that says this is null.")
@click.option(
    "--reader-property",
    "properties",
    metavar="KEY=VALUE",
    multiple=True,
    help="A property of Kafka's line reader: parse.key, headers.delimiter, ...",
)
@click.option("--key", metavar="TEXT", help="The key of records that have none.")
@click.option(
    "--header", "header", metavar="NAME=VALUE", multiple=True, help="One for each record."
)
@click.option("--partition", type=click.IntRange(0), help="Send everything there.")
@click.option("--any-partition", is_flag=True, help="Ignore partitions that the input names.")
@compression_option
@acks_option
@command_property_option
@cluster_options
def command(*, access: Access, command_properties: tuple[str, ...], **options: Any) -> int:
    """Send records from each FILE, or from standard input, to TOPIC.

    One line is one record, its value whatever stands before the line's end.  With --format the
    input is taken apart by verbs: %k key, %v value, %p partition, %d timestamp, %h{...} headers
    (after %H, their number); %K and %V are lengths of what follows, for input of any bytes:

    \b
        sharegroup produce orders --format '%k=%v\\n' orders.txt
        sharegroup produce orders --format '%K{big32}%k%V{big32}%v' orders.bin
        sharegroup consume orders --json | sharegroup produce copies --json

    Exit code 0: every record is acknowledged.  1: one is not, or the input could not be read.
    """
    reader = _reader(options)
    access = with_properties(access, command_properties)
    with telling_errors(access):
        counts, stop = run(lambda stop: _produce(stop, access, reader, options))
    for failure in counts.failures:
        complain(failure)
    if not counts.complete or sys.stderr.isatty():
        click.echo(f"acknowledged {counts.acknowledged:,} of {counts.read:,} records", err=True)
    return stop.code if counts.complete else stop.code or 1


def _reader(options: dict[str, Any]) -> NewReader:
    """Makes the reader that the options ask for, one for each file."""
    line_options = {
        name: options[name] for name in ("key_separator", "headers", "properties") if options[name]
    }
    chosen = [name for name in ("as_json", "form") if options[name]]
    if line_options:
        chosen.append("lines")
    if len(chosen) > 1:
        raise click.UsageError(
            "--json, --format and the options for lines (--key-separator, --headers, "
            "--reader-property) exclude each other"
        )
    null = options["null_marker"]
    try:
        if options["as_json"]:
            return lambda: LineReader(json_record)
        if options["form"]:
            template = parse_template(options["form"])
            null_bytes = None if null is None else unescape(null)
            TemplateReader(template, null=null_bytes)  # Refused here, not when input has come.
            return lambda: TemplateReader(template, null=null_bytes)
        form = line_form(_line_properties(options))
    except FormatError as error:
        raise click.UsageError(str(error)) from error
    return lambda: LineReader(form.parse)


def _line_properties(options: dict[str, Any]) -> dict[str, str]:
    properties: dict[str, str] = {}
    if options["key_separator"] is not None:
        properties |= {"parse.key": "true", "key.separator": options["key_separator"]}
    if options["headers"]:
        properties["parse.headers"] = "true"
    if options["null_marker"] is not None:
        properties["null.marker"] = options["null_marker"]
    return properties | kept_pairs(options["properties"], "--reader-property")


async def _produce(
    stop: Stop, access: Access, reader: NewReader, options: dict[str, Any]
) -> tuple[Counts, Stop]:
    producer = Producer(
        **{
            "max_block_ms": access.timeout_ms,
            **access.client_options(ProducerConfig),
            **producer_options(options["compression"], options["acks"]),
        }
    )
    sending = Sending(producer, options["topic"], _defaults(options))
    looking = asyncio.create_task(_look(sending, stop))
    try:
        await sending.send_all(_records(options["file"] or (STDIN,), reader, stop))
    except RecordFormatError as error:
        sending.counts.failures.append(str(error))
        sending.counts.unreadable = True
    finally:
        looking.cancel()
        await sending.finish()
    return sending.counts, stop


def _defaults(options: dict[str, Any]) -> Defaults:
    key = options["key"]
    headers = kept_pairs(options["header"], "--header")
    return Defaults(
        key=None if key is None else os.fsencode(key),
        headers=tuple((name, os.fsencode(value)) for name, value in headers.items()),
        partition=options["partition"],
        any_partition=options["any_partition"],
    )


async def _records(
    names: Sequence[str], new_reader: NewReader, stop: Stop
) -> AsyncIterator[list[NewRecord]]:
    """The records of all files, as many at a time as come in one piece."""
    for name in names:
        fd = sys.stdin.fileno() if name == STDIN else os.open(name, os.O_RDONLY)
        reader = new_reader()
        try:
            async for some in read_chunks(fd, stop):
                for records in _whole(reader.feed(some)):
                    yield records
            if not stop.is_set():  # Else the last record may lack its end.
                for records in _whole(reader.finish()):
                    yield records
        except RecordFormatError as error:
            raise RecordFormatError(f"{_shown(name)}: {error}") from error
        finally:
            if name != STDIN:
                os.close(fd)


def _whole(records: Iterator[NewRecord]) -> Iterator[list[NewRecord]]:
    """All at once; what stands before something unreadable is not lost with it."""
    found = []
    try:
        for record in records:
            found.append(record)  # noqa: PERF402  What was read before an error counts.
    except RecordFormatError:
        yield found
        raise
    yield found


async def _look(sending: Sending, stop: Stop) -> None:
    """While input is slow: notice what failed, and show how far it is."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        sending.settle()
        if sending.is_over:
            stop.set()
        if sys.stderr.isatty():
            counts = sending.counts
            line = f"\r{counts.read:,} records, {counts.acknowledged:,} acknowledged\x1b[K\r"
            click.echo(line, err=True, nl=False)


def _shown(name: str) -> str:
    return "standard input" if name == STDIN else name
