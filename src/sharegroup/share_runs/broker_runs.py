"""Reads the runs of a share group from its coordinator, page after page, over Kafka's protocol.

Only our broker lists them (`AdminClient.list_share_group_runs`); others raise UnsupportedVersion.
The runs of a page are of one moment, two pages are not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import replace
from itertools import islice

from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.share_group_runs import RUNS_DEFAULT
from sharegroup.client.admin.types import SharePartitionRuns, ShareRun
from sharegroup.client.records import TopicPartition
from sharegroup.errors import KafkaError, UnknownServerError
from sharegroup.share_runs.share_runs import ShownSharePartition

PARTITIONS_PER_PAGE = 200
"""Share partitions that are asked about together."""

ListRuns = Callable[..., Awaitable[dict[TopicPartition, SharePartitionRuns | KafkaError]]]
"""`AdminClient.list_share_group_runs`, or the same over other connections."""


async def broker_runs(
    admin: AdminClient,
    group: str,
    wanted: Iterable[TopicPartition],
    *,
    runs_max: int,
    first_offset: int = 0,
) -> list[ShownSharePartition]:
    """Return the wanted share partitions, with ``runs_max`` runs each from ``first_offset`` on."""
    newest: dict[TopicPartition, ShownSharePartition] = {}
    runs: dict[TopicPartition, list[ShareRun]] = {}
    pages = run_pages(
        admin.list_share_group_runs, group, wanted, runs_max=runs_max, first_offset=first_offset
    )
    async for page in pages:
        where = TopicPartition(page.topic, page.partition)
        newest[where] = page
        runs.setdefault(where, []).extend(page.runs)
    return [
        replace(page, runs=tuple(listed), run_count=max(page.run_count, len(listed)))
        for page, listed in ((page, runs[where][:runs_max]) for where, page in newest.items())
    ]


async def run_pages(
    list_runs: ListRuns,
    group: str,
    wanted: Iterable[TopicPartition],
    *,
    runs_max: int | None = None,
    first_offset: int = 0,
) -> AsyncIterator[ShownSharePartition]:
    """Yield the pages of the wanted share partitions, one share partition after the other.

    Each has a page, also without runs.  With ``runs_max`` no more pages of a share partition follow
    once it has so many runs.
    """
    pending = dict.fromkeys(sorted(wanted), first_offset)
    counts = dict.fromkeys(pending, 0)
    while pending:
        asked = dict(islice(pending.items(), PARTITIONS_PER_PAGE))
        page_max = RUNS_DEFAULT if runs_max is None else min(RUNS_DEFAULT, runs_max * len(asked))
        answered = await list_runs(group, asked, runs_max=page_max)
        has_progress = False
        for where, first in asked.items():
            page = answered[where]
            if isinstance(page, KafkaError):
                raise page
            if page.next_offset is not None and not page.runs:
                break  # The page had no room for it, nor for those after it.
            has_progress = True
            counts[where] += len(page.runs)
            _check_order(group, where, page, first)
            if page.next_offset is None or (runs_max is not None and counts[where] >= runs_max):
                del pending[where]
            else:
                pending[where] = page.next_offset
            yield _shown(where, page)
        if not has_progress:
            raise UnknownServerError(
                f"group {group!r}: expected runs of {next(iter(asked))}, the broker listed none "
                "and said that there are more"
            )


def _check_order(group: str, where: TopicPartition, page: SharePartitionRuns, first: int) -> None:
    """Raise if the broker would be asked about the same offsets again and again."""
    if page.next_offset is not None and not first <= page.runs[-1].last_offset < page.next_offset:
        raise UnknownServerError(
            f"group {group!r} {where}: the broker listed runs to offset "
            f"{page.runs[-1].last_offset} from {first} on, and said to go on at {page.next_offset}"
        )


def _shown(where: TopicPartition, page: SharePartitionRuns) -> ShownSharePartition:
    return ShownSharePartition(
        *where, page.start_offset, page.end_offset, page.high_watermark, page.run_count, page.runs
    )
