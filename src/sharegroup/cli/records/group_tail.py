"""``sharegroup tail --group``: the records of a share group by state, without taking them.

    runs       from the coordinator, page after page; on Apache Kafka from the state topic
      │        those in the wanted states
    stretches  runs that are near each other
      │        ordinary fetches; without READ on the topic the offsets alone
    rows

The runs are older than the records: a record may be settled, deleted or compacted in between.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from sharegroup.cli.common.cluster_access import Access, UnreadableBatches
from sharegroup.cli.common.options import gathered
from sharegroup.cli.common.output import (
    complain,
    counted,
    in_colour,
    plural,
    printable,
    terminal_width,
)
from sharegroup.cli.common.running import Stop, lacks_broker, telling_waits, until_stopped
from sharegroup.cli.common.tables import table
from sharegroup.cli.groups.group_runs import DURABLE_ONLY, share_partitions_at, stored_runs
from sharegroup.cli.records.log_rows import log_row
from sharegroup.cli.records.standard_streams import write_all
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.types import ShareRun
from sharegroup.client.fetch.record_reading import PartitionRange, read_records
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.client_config import ReadingConfig, config_from
from sharegroup.errors import TopicAuthorizationFailed, UnknownTopicOrPartition, UnsupportedVersion
from sharegroup.ids import OFFSET_MAX, TopicId
from sharegroup.record_documents import as_json, json_line
from sharegroup.share_runs.broker_runs import run_pages
from sharegroup.share_runs.share_runs import (
    ACQUIRED,
    ARCHIVING,
    AVAILABLE,
    DELAYED,
    STATES,
    ShownSharePartition,
)
from sharegroup.wire.batches.records import DecodedRecord

UNSETTLED = (AVAILABLE, ACQUIRED, ARCHIVING, DELAYED)
LIMIT_DEFAULT = 100
LIMIT_MAX = 10_000
"""Maximum of ``--limit``: the rows of a table are in memory."""
SHOWN_CHARACTERS_MAX = 200
"""Characters of a key or value in the table."""
GAP_MAX = 200
"""Offsets between two runs that are fetched together; those between are fetched for nothing."""
STORED_RUNS_MAX = 100_000
"""Runs of a share partition that are read from the state topic."""

COLUMNS = (
    *("partition", "offset", "state", "delivery_count"),
    *("lock_s", "member_id", "key", "value"),
)
SPARE = ("lock_s", "member_id", "key")

NOT_WITH_GROUP = {
    "newest": "--records: --limit is the number of records, the oldest first",
    "follow": "--follow: `sharegroup groups inspect GROUP TOPIC --watch 1` follows the states",
    "since": "--since: --offsets selects records",
    "max_messages": "--max-messages: use --limit",
    "decode": "--decode",
    "form": "--format: use --json",
    "null_marker": "--null-marker: use --json",
    "properties": "--formatter-property: use --json",
}
"""The options of `tail` that are for records of a topic alone, and what to use."""


@dataclass(frozen=True, slots=True)
class Browsed:
    """The records of a group to print."""

    group: str
    states: frozenset[str]
    limit: int
    topic: str = ""
    first: int = 0
    end: int = OFFSET_MAX
    partitions: frozenset[int] = frozenset()
    """The partitions to read; empty: all."""


def _browsed(*, group: str | None, states: str | None, limit: int | None) -> Browsed | None:
    if group is None:
        if states is not None or limit is not None:
            raise click.UsageError("--state and --limit need --group")
        return None
    parameters = click.get_current_context()
    for name, instead in NOT_WITH_GROUP.items():
        if parameters.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"--group excludes {instead}")
    wanted = frozenset(UNSETTLED if states is None else states.split(","))
    if not wanted <= set(STATES):
        raise click.BadParameter(
            f"{states!r}: expected some of {','.join(STATES)}", param_hint="--state"
        )
    return Browsed(group, wanted, LIMIT_DEFAULT if limit is None else limit)


browsing_options = gathered(
    "browsed",
    _browsed,
    click.option("--group", metavar="GROUP", help="Print records of this share group by state."),
    click.option(
        "--state",
        "states",
        metavar="STATES",
        help=(
            f"With --group: some of {','.join(STATES)}, with commas.  "
            f"[default: {','.join(UNSETTLED)}]"
        ),
    ),
    click.option(
        "--limit",
        type=click.IntRange(1, LIMIT_MAX),
        metavar="N",
        help=f"With --group: maximum number of records.  [default: {LIMIT_DEFAULT}]",
    ),
)
"""Adds the options of a group to a verb, which is called with ``browsed``; None: no group."""


class GroupRecord(NamedTuple):
    """A record of a group, with the run that has its offset."""

    where: TopicPartition
    offset: int
    run: ShareRun
    record: DecodedRecord | None
    """None: the user has no READ on the topic."""


@dataclass(slots=True)
class GroupRecords:
    """Reads the records of a group, one partition after the other."""

    cluster: Cluster
    browsed: Browsed
    topic_id: TopicId | None
    unreadable: UnreadableBatches = field(default_factory=UnreadableBatches)
    may_read: bool = True
    absent_count: int = 0
    """Offsets of runs that were read and have no record that can be shown."""

    async def of(self, page: ShownSharePartition) -> AsyncGenerator[list[GroupRecord], None]:
        """Yield the records of a page in the wanted states."""
        where = TopicPartition(page.topic, page.partition)
        for stretch in _stretches(_selected(page, self.browsed)):
            reached = stretch[0].first_offset
            if self.may_read:
                try:
                    async for found in self._read(where, stretch):
                        yield found
                        reached = found[-1].offset + 1
                except TopicAuthorizationFailed as error:
                    self.may_read = False
                    complain(f"{error}; keys, values and headers are left out")
                else:
                    continue
            for offset, of_run in _offsets(stretch, reached):
                yield [GroupRecord(where, offset, of_run, None)]

    async def _read(
        self, where: TopicPartition, stretch: Sequence[ShareRun]
    ) -> AsyncGenerator[list[GroupRecord], None]:
        absent_count = sum(of_run.count for of_run in stretch)
        first, end = stretch[0].first_offset, stretch[-1].last_offset + 1
        wanted = PartitionRange(where, first, end, self.topic_id)
        runs = iter(stretch)
        of_run = next(runs)
        async for records in read_records(self.cluster, wanted, unreadable=self.unreadable):
            found = []
            for record in records:
                while record.offset > of_run.last_offset:
                    of_run = next(runs)
                if record.offset >= of_run.first_offset:
                    found.append(GroupRecord(where, record.offset, of_run, record))
            if found:
                absent_count -= len(found)
                yield found
        self.absent_count += absent_count


def _selected(page: ShownSharePartition, browsed: Browsed) -> Iterator[ShareRun]:
    """Yield the runs of a page in the wanted states, cut to the wanted offsets."""
    for of_run in page.all_runs:
        first = max(of_run.first_offset, browsed.first)
        last = min(of_run.last_offset, browsed.end - 1)
        if of_run.state in browsed.states and first <= last:
            yield replace(of_run, first_offset=first, last_offset=last)


def _stretches(runs: Iterator[ShareRun]) -> Iterator[list[ShareRun]]:
    """Yield the runs, those with few offsets in between together."""
    stretch: list[ShareRun] = []
    for of_run in runs:
        if stretch and of_run.first_offset - stretch[-1].last_offset > GAP_MAX:
            yield stretch
            stretch = []
        stretch.append(of_run)
    if stretch:
        yield stretch


def _offsets(stretch: Sequence[ShareRun], reached: int) -> Iterator[tuple[int, ShareRun]]:
    for of_run in stretch:
        for offset in range(max(reached, of_run.first_offset), of_run.last_offset + 1):
            yield offset, of_run


class Browsing:
    """One run of the verb with ``--group``: reads, and prints a table or JSON."""

    def __init__(self, access: Access, browsed: Browsed, as_json: bool) -> None:
        self._access = access
        self._browsed = browsed
        self._as_json = as_json
        self._cells: list[list[str]] = []
        self._left = browsed.limit
        self._without_offset = 0

    async def run(self, stop: Stop) -> int:
        """Print until the records or the limit end, or ``stop`` is set; return the exit code."""
        config = config_from(ReadingConfig, self._access.client_options(ReadingConfig))
        with closing(Cluster(config)) as cluster:
            async with (
                AdminClient(**self._access.client_options()) as admin,
                telling_waits(
                    self._access.bootstrap_servers, lambda: lacks_broker(admin.metrics())
                ),
            ):
                try:
                    code = await until_stopped(self._print_all(admin, cluster), stop)
                finally:
                    # Also after an error or a signal: what was read is of use.
                    if self._cells:
                        await self._print_table()
        return code or stop.code

    async def _print_all(self, admin: AdminClient, cluster: Cluster) -> int:
        wanted = await self._share_partitions(admin)
        # Before the runs: records of another topic with this name are not theirs.
        topic_id = (await cluster.topic(self._browsed.topic)).topic_id
        records = GroupRecords(cluster, self._browsed, topic_id)
        async with aclosing(self._pages(admin, wanted)) as pages:
            async for page in pages:
                self._without_offset += page.start_offset is None
                async with aclosing(records.of(page)) as found:
                    async for part in found:
                        await self._print(part[: self._left])
                        if self._left == 0:
                            return records.unreadable.exit_code
        if records.absent_count:
            complain(
                f"{counted(records.absent_count, 'offset')} in these states without a record: "
                "deleted, compacted, unreadable, or the end of a transaction"
            )
        if self._without_offset:
            complain(
                f"the group has no offset yet in {counted(self._without_offset, 'partition')}, "
                "because no member has fetched from there"
            )
        if not self._as_json and not self._cells:
            states = ", ".join(state for state in STATES if state in self._browsed.states)
            click.echo(printable(f"Group {self._browsed.group!r} has no such records: {states}."))
        return records.unreadable.exit_code

    async def _share_partitions(self, admin: AdminClient) -> list[TopicPartition]:
        group, topic = self._browsed.group, self._browsed.topic
        wanted = await share_partitions_at(admin, group, (topic, None))
        numbers = self._browsed.partitions
        if missing := sorted(numbers - {where.partition for where in wanted}):
            raise UnknownTopicOrPartition(
                f"group {group!r} has no share {plural(len(missing), 'partition')} "
                f"{', '.join(map(str, missing))} of topic {topic!r}"
            )
        return [where for where in wanted if not numbers or where.partition in numbers]

    async def _pages(
        self, admin: AdminClient, wanted: Sequence[TopicPartition]
    ) -> AsyncGenerator[ShownSharePartition, None]:
        group, first = self._browsed.group, self._browsed.first
        try:
            async for page in run_pages(
                admin.list_share_group_runs, group, wanted, first_offset=first
            ):
                yield page
        except UnsupportedVersion:
            complain(DURABLE_ONLY)
            for page in await stored_runs(
                self._access, admin, group, wanted, runs_max=STORED_RUNS_MAX
            ):
                if page.left_out:
                    complain(
                        f"partition {page.partition}: {page.left_out:,} runs beyond the first "
                        f"{STORED_RUNS_MAX:,} are left out"
                    )
                yield page

    async def _print(self, found: Sequence[GroupRecord]) -> None:
        self._left -= len(found)
        if self._as_json:
            await write_all(sys.stdout.fileno(), b"".join(json_line(_document(r)) for r in found))
        else:
            self._cells += [_cells(record) for record in found]

    async def _print_table(self) -> None:
        text = table(
            self._cells, COLUMNS, coloured=in_colour(), width=terminal_width(), spare=SPARE
        )
        await write_all(sys.stdout.fileno(), f"{text}\n".encode())


def _document(found: GroupRecord) -> dict[str, Any]:
    where, offset, of_run, record = found
    document: dict[str, Any] = {**where._asdict(), "offset": offset}
    if record is not None:
        document = as_json(log_row(*where, record))
    return document | {
        "state": of_run.state,
        "delivery_count": of_run.delivery_count,
        "member_id": of_run.member_id,
        "lock_ms_left": of_run.lock_ms_left,
    }


def _cells(found: GroupRecord) -> list[str]:
    where, offset, of_run, record = found
    lock_ms = of_run.lock_ms_left
    return [
        *(str(where.partition), str(offset), of_run.state, str(of_run.delivery_count)),
        "-" if lock_ms is None else f"{lock_ms / 1000:.1f}",
        printable(of_run.member_id or "-"),
        *(_beginning(content) for content in ((record.key, record.value) if record else ("", ""))),
    ]


def _beginning(content: bytes | str | None) -> str:
    if not content:
        return "-" if content is None else ""
    assert isinstance(content, bytes)
    text = content[: 4 * SHOWN_CHARACTERS_MAX].decode(errors="backslashreplace")
    cut = text[:SHOWN_CHARACTERS_MAX]
    return printable(cut if cut == text and len(content) <= 4 * SHOWN_CHARACTERS_MAX else f"{cut}…")
