"""``sharegroup tail``: prints records of a topic without taking them from any group.

    newest      the last records of each partition --> the newest of all, by timestamp
    range       partition after partition, in the order of offsets
    following   the records between the ends of the partitions at one look and at the next

It fetches without a group (`client.fetch`). So it takes no record from a group, and the records
that it prints stay as they are.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice

import click

from sharegroup.cli.common.cluster_access import (
    Access,
    UnreadableBatches,
    cluster_options,
    line_of,
    telling_errors,
)
from sharegroup.cli.common.log_positions import moment_ms, parse_offsets
from sharegroup.cli.common.name_arguments import naming_one
from sharegroup.cli.common.options import gathered
from sharegroup.cli.common.output import complain
from sharegroup.cli.common.running import Stop, lacks_broker, run, telling_waits, until_stopped
from sharegroup.cli.records.formats.template import RecordFormatError
from sharegroup.cli.records.formats.writing import RowWriter
from sharegroup.cli.records.group_tail import Browsed, browse, browsing_options
from sharegroup.cli.records.log_rows import coordinator_document, log_row
from sharegroup.cli.records.record_formats import log_format_options
from sharegroup.cli.records.standard_streams import write_all
from sharegroup.client.fetch.offsets import offsets_of
from sharegroup.client.fetch.record_reading import (
    PartitionRange,
    Unreadable,
    partition_ranges,
    read_records,
)
from sharegroup.client.net.cluster import Cluster, Topic
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.client_config import ReadingConfig, config_from
from sharegroup.errors import KafkaError, UnknownTopicOrPartition
from sharegroup.ids import OFFSET_MAX, TopicId
from sharegroup.internal_topics.coordinator_json import INTERNAL_TOPICS
from sharegroup.record_documents import Row, json_line

PartitionKey = tuple[TopicId | None, TopicPartition]
"""A partition of one topic: of another one that gets its name, the key is another one."""

LOOK_SECONDS = 0.25
"""Interval of looking for new records."""

RECORDS_DEFAULT = 10
RECORDS_MAX = 100_000
"""Maximum of ``--records``: all of them are in memory, because they are sorted."""

STATE = "state"


@dataclass(frozen=True, slots=True)
class TailRange:
    """The records to print."""

    newest: int | None = None
    """The number of newest records; None: all records from ``first`` and ``since_ms`` on."""
    first: int = 0
    end: int = OFFSET_MAX
    since_ms: int | None = None
    partitions: frozenset[int] = frozenset()
    """The partitions to read; empty: all."""
    follow: bool = False
    """Whether to continue with new records."""


def _range(
    *,
    newest: int | None,
    follow: bool,
    offsets: str | None,
    since: str | None,
    partitions: tuple[int, ...],
) -> TailRange:
    if newest is not None and (offsets is not None or since is not None):
        raise click.UsageError("--records excludes --offsets and --since")
    first, end = parse_offsets(offsets)
    if follow and end != OFFSET_MAX:
        raise click.UsageError("--follow excludes an END of --offsets")
    if offsets is None and since is None:
        newest = RECORDS_DEFAULT if newest is None else newest
    since_ms = moment_ms(since, "--since")
    return TailRange(newest, first, end, since_ms, frozenset(partitions), follow)


range_options = gathered(
    "wanted",
    _range,
    click.option(
        "-n",
        "--records",
        "newest",
        type=click.IntRange(0, RECORDS_MAX),
        metavar="N",
        help=f"Print the newest N records of all partitions.  [default: {RECORDS_DEFAULT}]",
    ),
    click.option("-f", "--follow", is_flag=True, help="Continue with new records until Ctrl-C."),
    click.option(
        "--offsets",
        metavar="FIRST:END",
        help="Print the offsets from FIRST up to, but not including, END; each can be omitted.",
    ),
    click.option(
        "--since",
        metavar="WHEN",
        help="Print records with this timestamp or later; '2h' means 2 hours ago.",
    ),
    click.option("--partition", "partitions", type=click.IntRange(0), multiple=True),
)
"""Adds the options that choose records to a verb, which is called with ``wanted``."""


@click.command("tail")
@naming_one("topic")
@range_options
@click.option("--max-messages", type=click.IntRange(1), help="Stop after this number of records.")
@click.option(
    "--decode",
    type=click.Choice([STATE]),
    help="Decode the records of the broker's own topics (`__consumer_offsets`, ...), as JSON.",
)
@browsing_options
@log_format_options
@cluster_options
def command(
    *,
    topic: str,
    wanted: TailRange,
    browsed: Browsed | None,
    max_messages: int | None,
    decode: str | None,
    write: RowWriter,
    access: Access,
) -> int:
    """Print records of a topic without taking them: no group is joined, and nothing is changed.

    \b
        sharegroup tail orders                       the newest 10 records
        sharegroup tail orders -f -n 0               only new records, until Ctrl-C
        sharegroup tail orders --since 2h --json     the records of the last 2 hours
        sharegroup tail orders --partition 0 --offsets 500:
        sharegroup tail __share_group_state --decode state

    The newest records are sorted by their timestamps.  --offsets and --since print one partition
    after the other.

    Verbs of --format: those of `sharegroup consume`, for example '%d{rfc3339} %p:%o %k %v\\n';
    %c, %l and %L are 0, because no record is delivered.  Keys and headers are escaped if standard
    output is a terminal; values are not: use --json.

    With --group the records of a share group are printed by state, the oldest of each partition
    first, in a table or as JSON:

    \b
        sharegroup tail orders --group billing                  what is not settled
        sharegroup tail orders --group billing --state acquired --limit 20 --json

    State, delivery count, member and lock need DESCRIBE on the group and the topic; keys, values
    and headers READ on the topic.  On Apache Kafka the states are those of __share_group_state,
    which needs READ on it: a record that a member holds looks as if nobody had it.

    Exit code 1: a batch cannot be decoded; it is omitted and reported on standard error.
    """
    if browsed is not None:
        selected = replace(
            browsed, topic=topic, first=wanted.first, end=wanted.end, partitions=wanted.partitions
        )
        return browse(access, selected, as_json=click.get_current_context().params["as_json"])
    if decode == STATE:
        write = _state_writer(topic)
    printing = _Printing(access, topic, wanted, write, max_messages)
    with telling_errors(access):
        try:
            return run(printing.run)
        except RecordFormatError as error:
            raise click.ClickException(str(error)) from error
        except BrokenPipeError:
            return 0  # The reader has seen enough, as in ``sharegroup tail orders | head -3``.


def _state_writer(topic: str) -> RowWriter:
    if topic not in INTERNAL_TOPICS:
        raise click.UsageError(
            f"--decode {STATE} is for {' and '.join(INTERNAL_TOPICS)}, not for topic {topic!r}"
        )
    classes = INTERNAL_TOPICS[topic]
    return lambda row: json_line(coordinator_document(classes, row))


class _Printing:
    """One run of the verb: reads, writes, and counts."""

    def __init__(
        self,
        access: Access,
        topic: str,
        wanted: TailRange,
        write: RowWriter,
        max_messages: int | None,
    ) -> None:
        self._access = access
        self._topic = topic
        self._wanted = wanted
        self._write = write
        self._left = max_messages
        self._number = 0
        self._unreadable = UnreadableBatches()

    async def run(self, stop: Stop) -> int:
        """Print until the records end, or ``stop`` is set; return the exit code."""
        config = config_from(ReadingConfig, self._access.client_options(ReadingConfig))
        with closing(Cluster(config)) as cluster:
            async with telling_waits(
                self._access.bootstrap_servers, lambda: lacks_broker(cluster.metrics.read())
            ):
                await until_stopped(self._print_all(cluster, stop), stop)
        # Ctrl-C is the way to end what follows without end.
        return self._unreadable.exit_code or (0 if self._wanted.follow else stop.code)

    async def _print_all(self, cluster: Cluster, stop: Stop) -> None:
        await self._check_topic(cluster)
        tail = TopicTail(cluster, self._topic, self._wanted, self._unreadable)
        async for rows in tail.rows():
            if not await self._print(rows) or stop.is_set():
                return
        if self._wanted.follow:
            async for rows in tail.following(stop):
                if not await self._print(rows):
                    return

    async def _check_topic(self, cluster: Cluster) -> None:
        """Refuse a missing topic at once, and a partition that the topic does not have."""
        described = await cluster.retrying(
            lambda: cluster.refresh([self._topic]), subject=f"topic {self._topic!r}"
        )
        found = described.get(self._topic)
        if isinstance(found, Topic):
            for partition in sorted(self._wanted.partitions):
                if partition >= len(found.leaders):
                    raise UnknownTopicOrPartition(
                        f"topic {self._topic!r} has partitions 0 to {len(found.leaders) - 1}, not "
                        f"{partition}"
                    )
        elif isinstance(found, UnknownTopicOrPartition) or (found and not found.retriable):
            raise found

    async def _print(self, rows: Sequence[Row]) -> bool:
        """Write rows; return whether more are wanted."""
        content: list[bytes] = []
        for row in islice(rows, self._left):
            self._number += 1
            try:
                content.append(self._write(row._replace(number=self._number)))
            except RecordFormatError as error:
                await write_all(sys.stdout.fileno(), b"".join(content))
                raise RecordFormatError(
                    f"topic {row.topic!r} partition {row.partition} offset {row.offset}: {error}"
                ) from error
        await write_all(sys.stdout.fileno(), b"".join(content))
        if self._left is not None:
            self._left -= len(content)
        return self._left is None or self._left > 0


@dataclass(slots=True)
class TopicTail:
    """Reads the records of one topic, and remembers where it is in each partition."""

    cluster: Cluster
    topic: str
    wanted: TailRange
    unreadable: Unreadable
    _ends: dict[PartitionKey, int] = field(default_factory=dict)
    """The offset behind the last record that was read, by partition."""

    async def rows(self) -> AsyncIterator[Sequence[Row]]:
        """Yield the records that the topic has now."""
        ranges = await self._ranges()
        self._ends = {_key(log_range): log_range.end for log_range in ranges}
        if self.wanted.newest is not None:
            yield await self._newest(ranges, self.wanted.newest)
            return
        # Kafka looks up no time before 1970, so those records are among all that there are.
        if self.wanted.since_ms is not None and self.wanted.since_ms >= 0:
            places = [log_range.where for log_range in ranges]
            since = await offsets_of(self.cluster, places, self.wanted.since_ms)
            ranges = [_later(log_range, since[log_range.where]) for log_range in ranges]
        for log_range in ranges:
            first = max(log_range.first, self.wanted.first)
            end = min(log_range.end, self.wanted.end)
            async for rows in self._read(log_range._replace(first=first, end=end)):
                yield rows

    async def following(self, stop: Stop) -> AsyncIterator[Sequence[Row]]:
        """Yield new records until ``stop`` is set; wait for brokers that do not answer."""
        while not stop.is_set():
            try:
                async for rows in self._news():
                    yield rows
            except KafkaError as error:
                if not error.retriable:
                    raise
                # The attempts took their timeout, so this loop is slow.
                complain(f"{line_of(error)}; still trying")
                continue
            await asyncio.sleep(LOOK_SECONDS)

    async def _news(self) -> AsyncIterator[Sequence[Row]]:
        for log_range in await self._ranges():
            # A partition that was added meanwhile is new from its first record on, and so is one
            # whose topic was deleted and made again.
            key = _key(log_range)
            first = self._ends.get(key, log_range.first)
            async for rows in self._read(log_range._replace(first=max(log_range.first, first))):
                yield rows
                # After each piece: `following` goes on here after an error, and prints no record
                # twice.
                self._ends[key] = rows[-1].offset + 1
            # The last offsets may have no record, for example those of transaction markers.
            self._ends[key] = max(first, log_range.end)

    async def _ranges(self) -> list[PartitionRange]:
        """Return the present offset ranges of the wanted partitions."""
        ranges = await partition_ranges(self.cluster, self.topic)
        if not self.wanted.partitions:
            return ranges
        return [
            log_range for log_range in ranges if log_range.where.partition in self.wanted.partitions
        ]

    async def _newest(self, ranges: Iterable[PartitionRange], count: int) -> Sequence[Row]:
        """Return the newest records of all partitions, the oldest of them first."""
        newest: list[tuple[tuple[int, int, int], Row]] = []
        for log_range in ranges:
            first = max(log_range.first, log_range.end - count)
            async for rows in self._read(log_range._replace(first=first)):
                for row in rows:
                    # The first part is unique, so rows, which have no order, are never compared.
                    entry = ((row.timestamp_ms, row.partition, row.offset), row)
                    if len(newest) < count:
                        heapq.heappush(newest, entry)
                    else:
                        heapq.heappushpop(newest, entry)
        return [row for _, row in sorted(newest)]

    async def _read(self, log_range: PartitionRange) -> AsyncIterator[Sequence[Row]]:
        if log_range.first >= log_range.end:
            return
        async for records in read_records(self.cluster, log_range, unreadable=self.unreadable):
            if records:
                yield [log_row(*log_range.where, record) for record in records]


def _key(log_range: PartitionRange) -> PartitionKey:
    return log_range.topic_id, log_range.where


def _later(log_range: PartitionRange, first: int) -> PartitionRange:
    """Return the range from this offset on; empty for -1, which means no such record."""
    return log_range._replace(first=max(log_range.first, first) if first >= 0 else log_range.end)
