"""Reads the runs of share partitions from the metrics port of `sharegroup serve`.

The broker's page ``/share-partitions`` has the acquisition locks, too, which are only in memory. An
answer has a limited number of runs, so the rest of a share partition is requested from its
``next_offset`` on. Meanwhile the state may change: two answers are from different moments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from sharegroup.client.admin.types import ShareRun
from sharegroup.escaping import escaped
from sharegroup.http_documents import get_document
from sharegroup.json_documents import Fields, ForeignDocument, typed_fields
from sharegroup.share_runs.share_runs import STATES, ShownSharePartition

PATH = "/share-partitions"

ANSWER: Fields = {"left_out": int, "share_partitions": list}
ENTRY: Fields = {
    "topic": str,
    "partition": int,
    "start_offset": int | None,
    "end_offset": int | None,
    "high_watermark": int,
    "run_count": int,
    "next_offset": int | None,
    "runs": list,
}
RUN: Fields = {
    "first_offset": int,
    "last_offset": int,
    "state": str,
    "delivery_count": int,
    "member_id": str | None,
    "lock_ms_left": int | None,
}


class LiveRunsError(Exception):
    """The broker's metrics port gave no answer that can be used; the text says what to do."""


async def live_runs(
    url: str,
    group: str,
    topic: str | None,
    partition: int | None,
    *,
    runs_max: int,
    timeout_ms: int,
    first_offset: int | None = None,
) -> list[ShownSharePartition]:
    """Return the group's share partitions in the broker's memory, with their first runs.

    With ``first_offset`` the runs begin there; it needs a partition.
    """
    query: dict[str, object] = {"group": group}
    query |= {} if topic is None else {"topic": topic}
    query |= {} if partition is None else {"partition": partition}
    query |= {} if first_offset is None else {"first_offset": first_offset}
    left_out, entries = await _ask(url, query, timeout_ms)
    if left_out:
        raise LiveRunsError(
            f"{url} has {left_out} share partitions of group {group!r} beyond the first "
            f"{len(entries)}, which fill an answer; name a topic and a partition"
        )
    return [
        await _complete(url, group, entry, runs_max=runs_max, timeout_ms=timeout_ms)
        for entry in entries
    ]


async def _complete(
    url: str, group: str, entry: _Entry, *, runs_max: int, timeout_ms: int
) -> ShownSharePartition:
    """Request the runs that the first answer had no room for, up to ``runs_max``."""
    shown, next_offset = entry
    runs = list(shown.runs)
    while next_offset is not None and len(runs) < runs_max:
        query = {
            "group": group,
            "topic": shown.topic,
            "partition": shown.partition,
            "first_offset": next_offset,
        }
        _, found = await _ask(url, query, timeout_ms)
        if not found:
            break  # It was unloaded meanwhile: its last member has left.
        more, following = found[0].shown.runs, found[0].next_offset
        if following is not None and not (more and following > next_offset):
            raise _foreign(url, f"{len(more)} runs from {next_offset} on end at {following}")
        runs, next_offset = [*runs, *more], following
    runs = runs[:runs_max]
    is_whole = next_offset is None and len(runs) < runs_max
    run_count = len(runs) if is_whole else max(len(runs), shown.run_count)
    return replace(shown, run_count=run_count, runs=tuple(runs))


class _Entry(NamedTuple):
    """A share partition of an answer, and the offset of its first run that the answer lacks."""

    shown: ShownSharePartition
    next_offset: int | None


async def _ask(url: str, query: Mapping[str, object], timeout_ms: int) -> tuple[int, list[_Entry]]:
    """Return the number of omitted share partitions and the others.

    ClickException with what to do if there is no answer, or not that of a broker.
    """
    target = f"{url}{PATH}?{urlencode(query, quote_via=quote)}"
    try:
        status, answer = await asyncio.to_thread(_answer, target, timeout_ms / 1000)
    except OSError as error:
        raise LiveRunsError(
            f"no response from {url}: {error}; check that a broker listens there "
            "(sharegroup serve --metrics-port PORT), or leave out --metrics to ask the coordinator"
        ) from error
    except ForeignDocument as error:
        raise _foreign(url, error) from error
    if not isinstance(answer, tuple):
        raise LiveRunsError(f"{url}: {escaped(str(answer.get('error', f'status {status}')))}")
    return answer


def _answer(target: str, timeout_s: float) -> tuple[int, tuple[int, list[_Entry]] | dict[str, Any]]:
    """Return the status, and the share partitions or the document that says why there are none.

    A thread calls this: reading 20,000 runs takes 70 ms.
    """
    status, document = get_document(target, timeout_s=timeout_s)
    if status != 200:
        return status, document
    fields = typed_fields(document, ANSWER)
    return status, (fields["left_out"], [_entry(found) for found in fields["share_partitions"]])


def _foreign(url: str, problem: object) -> LiveRunsError:
    return LiveRunsError(
        f"{url}: no answer of {PATH}: {problem}; check that this is the metrics port of a "
        "sharegroup serve of the same version"
    )


def _entry(document: object) -> _Entry:
    """Return a share partition of an answer; ForeignDocument if its fields are not as expected."""
    fields = typed_fields(document, ENTRY)
    next_offset = fields.pop("next_offset")
    runs = tuple(ShareRun(**typed_fields(run, RUN)) for run in fields.pop("runs"))
    for run in runs:
        if run.state not in STATES or run.first_offset > run.last_offset:
            raise ForeignDocument(f"expected a range of offsets in one of {STATES}, found {run}")
    return _Entry(ShownSharePartition(**fields, runs=runs), next_offset)
