"""``sharegroup produce``: sends records from files and pipes.

    bytes --> reader (lines, JSON, --format) --> producer --> acknowledged, or an error

Reading continues while earlier records are in flight. It ends early after an error that the
next record would also get, such as a missing topic or a broker that does not answer. An error
of one record alone (too large) is reported, and the other records are sent. The exit code says
whether all records that were read are acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import click

from sharegroup.cli.common.cluster_access import (
    Access,
    cluster_options,
    kept_pairs,
    line_of,
    telling_errors,
)
from sharegroup.cli.common.data_options import (
    command_property_option,
    producer_options,
    with_properties,
)
from sharegroup.cli.common.name_arguments import complete_topics
from sharegroup.cli.common.output import complain, plural
from sharegroup.cli.common.progress import showing_progress
from sharegroup.cli.common.running import Stop, lacks_broker, run, telling_waits, until_stopped
from sharegroup.cli.records.formats.lines import line_form
from sharegroup.cli.records.formats.reading import (
    LineReader,
    NewRecord,
    Reader,
    TemplateReader,
    json_record,
)
from sharegroup.cli.records.formats.template import (
    FormatError,
    RecordFormatError,
    parse_template,
    unescape,
)
from sharegroup.cli.records.standard_streams import read_chunks
from sharegroup.client.produce.producer import Producer, SendFuture
from sharegroup.client.records import Header
from sharegroup.client.settings.client_config import ProducerConfig
from sharegroup.errors import InvalidRecord, InvalidTimestamp, KafkaError, MessageTooLarge

STDIN = "-"
OUTSTANDING_MAX = 100_000
"""Maximum number of records without an outcome; at the limit, reading waits for the oldest."""

FAILURES_SHOWN_MAX = 10

ABOUT_ONE_RECORD = (MessageTooLarge, InvalidRecord, InvalidTimestamp)
LOOK_SECONDS = 0.2
"""The interval of checking outcomes, also while no input arrives."""

NewReader = Callable[[], Reader]


@click.command("produce")
@click.argument("topic", shell_complete=complete_topics)
@click.argument("file", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--json", "as_json", is_flag=True, help="Read each line as a record in JSON.")
@click.option("--format", "form", metavar="FORMAT", help="Format of the input.")
@click.option(
    "--key-separator", metavar="TEXT", help="Separator between the key and the value in each line."
)
@click.option(
    "--headers",
    is_flag=True,
    help="Read headers, name:value,... and a tab, at the start of each line.",
)
@click.option("--null-marker", metavar="TEXT", help="Text of a key or value that is sent as null.")
@click.option(
    "--reader-property",
    "properties",
    metavar="KEY=VALUE",
    multiple=True,
    help="Property of Kafka's line reader: parse.key, headers.delimiter, ...",
)
@click.option("--key", metavar="TEXT", help="Key of records without a key.")
@click.option(
    "--header",
    "header",
    metavar="NAME=VALUE",
    multiple=True,
    help="Header that is added to each record.",
)
@click.option(
    "--partition", type=click.IntRange(0), help="Partition to which all records are sent."
)
@click.option("--any-partition", is_flag=True, help="Ignore partitions in the input.")
@producer_options
@command_property_option
@cluster_options
def command(*, access: Access, command_properties: tuple[str, ...], **options: Any) -> int:
    """Send records from each FILE, or from standard input, to TOPIC.

    Each line is the value of one record.  With --format, verbs describe the parts of the input:
    %k key, %v value, %p partition, %d timestamp, %h{...} headers (after %H, their number);
    %K and %V, written before %k and %v, are their lengths, for input of any bytes:

    \b
        sharegroup produce orders --format '%k=%v\\n' orders.txt
        sharegroup produce orders --format '%K{big32}%k%V{big32}%v' orders.bin
        sharegroup consume orders --json | sharegroup produce copies --json

    Exit code 0: every record is acknowledged.  1: a record is not, or the input could not be read.
    """
    reader = _reader(options)
    access = with_properties(access, command_properties)
    with telling_errors(access):
        counts, stop = run(lambda stop: _produce(stop, access, reader, options))
    for failure in counts.failures:
        complain(failure)
    if not counts.complete or sys.stderr.isatty():
        records = plural(counts.read, "record")
        click.echo(f"acknowledged {counts.acknowledged:,} of {counts.read:,} {records}", err=True)
    return stop.code if counts.complete else stop.code or 1


def _reader(options: dict[str, Any]) -> NewReader:
    """Return a function that makes the reader of the options; each file needs a new one."""
    line_options = {
        name: options[name] for name in ("key_separator", "headers", "properties") if options[name]
    }
    forms = [name for name in ("as_json", "form") if options[name]]
    if line_options:
        forms.append("lines")
    if len(forms) > 1:
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
            TemplateReader(template, null=null_bytes)  # Raises now instead of at the first input.
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
            # A record that no broker takes, for example because its disk is full, fails as early.
            "delivery_timeout_ms": access.timeout_ms,
            **access.client_options(ProducerConfig),
            **options["producer_options"],
        }
    )
    sender = RecordSender(producer, options["topic"], _defaults(options))
    looking = asyncio.create_task(_look(sender, stop))
    files = options["file"] or (STDIN,)
    source = _Input(files, reader)
    sending = sender.send_all(source.records(stop))
    async with (
        telling_waits(
            access.bootstrap_servers,
            lambda: sender.is_waiting and lacks_broker(producer.metrics()),
        ),
        _progress(source, sender),
    ):
        try:
            await until_stopped(sending, stop)
        except RecordFormatError as error:
            sender.counts.failures.append(str(error))
            sender.counts.unreadable = True
        finally:
            looking.cancel()
            # Also after an error of the input: the records before it were read, and are sent.
            await until_stopped(sender.finish(), stop)
    return sender.counts, stop


def _defaults(options: dict[str, Any]) -> Defaults:
    key = options["key"]
    headers = kept_pairs(options["header"], "--header")
    return Defaults(
        key=None if key is None else os.fsencode(key),
        headers=tuple((name, os.fsencode(value)) for name, value in headers.items()),
        partition=options["partition"],
        any_partition=options["any_partition"],
    )


class _Input:
    """The files to read, and how much of them was read."""

    def __init__(self, names: Sequence[str], new_reader: NewReader) -> None:
        self._names = names
        self._new_reader = new_reader
        self.read_bytes = 0

    @property
    def total_bytes(self) -> int | None:
        """The size of all files; None if one is a pipe or a terminal."""
        if STDIN in self._names:
            return None
        results = [os.stat(name) for name in self._names]
        are_files = all(stat.S_ISREG(result.st_mode) for result in results)
        return sum(result.st_size for result in results) if are_files else None

    async def records(self, stop: Stop) -> AsyncIterator[list[NewRecord]]:
        """Yield the records of all files; each list has the records that end in one chunk."""
        for name in self._names:
            fd = sys.stdin.fileno() if name == STDIN else os.open(name, os.O_RDONLY)
            reader = self._new_reader()
            try:
                async for chunk in read_chunks(fd, stop):
                    self.read_bytes += len(chunk)
                    for records in _whole(reader.feed(chunk)):
                        yield records
                if not stop.is_set():  # After a stop the last record may be incomplete.
                    for records in _whole(reader.finish()):
                        yield records
            except RecordFormatError as error:
                raise RecordFormatError(f"{_shown(name)}: {error}") from error
            finally:
                if name != STDIN:
                    os.close(fd)


def _progress(source: _Input, sender: RecordSender) -> AbstractAsyncContextManager[object]:
    """Return the progress: of the bytes of files, or of the records of a pipe.

    There is none while a person types the records: a bar would get between the lines.
    """
    total = source.total_bytes
    if total is not None:
        return showing_progress(
            "producing", lambda: source.read_bytes, total=lambda: total, unit="bytes"
        )
    if os.isatty(sys.stdin.fileno()):
        return nullcontext()
    return showing_progress(
        "producing", lambda: sender.counts.acknowledged, unit="records acknowledged"
    )


def _whole(records: Iterator[NewRecord]) -> Iterator[list[NewRecord]]:
    """Yield the records as one list; on an error, yield those before it, then raise it."""
    complete_records = []
    try:
        for record in records:
            complete_records.append(record)  # noqa: PERF402  Keeps the records before an error.
    except RecordFormatError:
        yield complete_records
        raise
    yield complete_records


async def _look(sender: RecordSender, stop: Stop) -> None:
    """Count outcomes at intervals; stop the input after a fatal error."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        sender.settle()
        if sender.is_over:
            stop.set()


def _shown(name: str) -> str:
    return "standard input" if name == STDIN else name


class Defaults(NamedTuple):
    """Values for records of the input that have none; ``headers`` are added to each record.

    ``partition`` goes before that of a record. ``any_partition`` ignores a record's partition.
    """

    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    any_partition: bool = False


@dataclass(slots=True)
class Counts:
    """Counts of the records of one run, by outcome, and the bytes of their keys and values."""

    read: int = 0
    bytes: int = 0
    acknowledged: int = 0
    failed: int = 0
    unreadable: bool = False
    """Whether the input has a part that is not a record; the records before it were sent."""
    failures: list[str] = field(default_factory=list)
    """The messages of the first failures, at most `FAILURES_SHOWN_MAX`."""

    @property
    def complete(self) -> bool:
        """Whether all records of the input are acknowledged."""
        return self.acknowledged == self.read and not self.unreadable


class RecordSender:
    """Sends records to one topic and counts their outcomes."""

    __slots__ = ("_defaults", "_outstanding", "_producer", "_topic", "counts", "is_over")

    def __init__(self, producer: Producer, topic: str, defaults: Defaults) -> None:
        self._producer = producer
        self._topic = topic
        self._defaults = defaults
        self._outstanding: deque[tuple[int, SendFuture]] = deque()
        self.counts = Counts()
        self.is_over = False
        """Whether an error occurred that further records would also get, so sending ends."""

    async def send_all(self, records: AsyncIterator[Sequence[NewRecord]]) -> None:
        """Send all records, or those until an error that further records would also get."""
        async for chunk in records:
            for record in chunk:
                await self._send(record)
                if self.is_over:
                    return
            self.settle()

    @property
    def is_waiting(self) -> bool:
        """Whether a record is being sent that has no outcome yet."""
        return self.counts.read > self.counts.acknowledged + self.counts.failed

    async def finish(self) -> None:
        """Wait until every record has an outcome; if cancelled, the others fail at once."""
        try:
            await self._producer.flush()
        finally:
            await self._producer.close(timeout=0)
            self.settle()

    def settle(self) -> None:
        """Count the records that have an outcome by now, the oldest first."""
        # From the oldest on: the order of the input is the order of the messages.
        while self._outstanding and self._outstanding[0][1].done():
            number, future = self._outstanding.popleft()
            try:
                future.result()
            except KafkaError as error:
                self._failed(number, error)
            else:
                self.counts.acknowledged += 1

    async def _send(self, record: NewRecord) -> None:
        counts, defaults = self.counts, self._defaults
        counts.read += 1
        counts.bytes += len(record.key or b"") + len(record.value or b"")
        own = None if defaults.any_partition else record.partition
        try:
            future = await self._producer.send(
                self._topic,
                record.value,
                key=defaults.key if record.key is None else record.key,
                headers=(*record.headers, *defaults.headers),
                partition=own if defaults.partition is None else defaults.partition,
                timestamp_ms=record.timestamp_ms,
            )
        except KafkaError as error:
            self._failed(counts.read, error)
            return
        self._outstanding.append((counts.read, future))
        if len(self._outstanding) >= OUTSTANDING_MAX:
            await _outcome(self._outstanding[0][1])
            self.settle()

    def _failed(self, number: int, error: KafkaError) -> None:
        self.counts.failed += 1
        if len(self.counts.failures) < FAILURES_SHOWN_MAX:
            self.counts.failures.append(f"record {number}: {line_of(error)}")
        # Otherwise a million records would each wait for their timeout at a broker that is away.
        if not isinstance(error, ABOUT_ONE_RECORD):
            self.is_over = True


async def _outcome(future: SendFuture) -> None:
    """Wait until the record has an outcome, good or bad; `settle` counts it."""
    try:
        await future
    except KafkaError:
        return
