"""Answers ``GET /share-partitions?group=ID``: the runs of the group's share partitions in memory.

Parameters of the query:

    group          the share group; required
    topic          only share partitions of this topic
    partition      only this partition; needs the topic
    first_offset   only runs from this offset on; needs the partition

The answer is a JSON object. Its size is bounded: at most ``runs_max`` runs and ``partitions_max``
share partitions. A share partition whose runs were cut has the ``next_offset`` from which another
request continues, and ``left_out`` is the number of share partitions without an entry.

The runs of a share partition are collected at once, so each entry is consistent in itself. They are
encoded in slices, and other requests are served in between, so two entries may be from different
moments.

A share partition is in memory while members fetch from it. The durable state of the others is in
``__share_group_state``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

from sharegroup.broker.parts import Parts
from sharegroup.broker.share.live_share_partition import LiveSharePartition
from sharegroup.core.delivery.delivery import InFlightState, RecordState
from sharegroup.core.delivery.offset_runs import Run, first_runs
from sharegroup.errors import GroupIdNotFound
from sharegroup.http_endpoint import HttpResponse, Query
from sharegroup.ids import GroupId

PATH = "/share-partitions"

RUNS_MAX = 1_000
"""Maximum number of runs in an answer."""
RUNS_PER_SLICE = 200
"""Number of runs that are encoded before other requests are served; this takes about 2 ms."""
PARTITIONS_MAX = 200
SLICE = 256
"""Number of share partitions that are looked at before other requests are served."""

PARAMETERS = ("group", "topic", "partition", "first_offset")


class _BadQuery(ValueError):
    """The query is not one that the page answers."""


@dataclass(frozen=True, slots=True)
class _Selection:
    """The share partitions and runs that a query asks for; None: all of them."""

    group_id: GroupId
    topic: str | None
    partition: int | None
    first_offset: int

    def matches(self, live: LiveSharePartition) -> bool:
        return (
            live.key.group_id == self.group_id
            and self.topic in (None, live.topic_name)
            and self.partition in (None, live.key.partition)
        )


class SharePartitionPage:
    """The page of one broker."""

    __slots__ = ("_partitions_max", "_parts", "_runs_max")

    def __init__(
        self, parts: Parts, *, runs_max: int = RUNS_MAX, partitions_max: int = PARTITIONS_MAX
    ) -> None:
        self._parts = parts
        self._runs_max = runs_max
        self._partitions_max = partitions_max

    async def answer(self, query: Query) -> HttpResponse:
        """Return the runs that the query asks for, or a refusal with a reason."""
        try:
            selection = _selection(query)
        except _BadQuery as error:
            return HttpResponse.json(400, {"error": str(error)})
        share_partitions, left_out = await self._find(selection)
        # A group may exist without a share partition in memory.
        if not share_partitions:
            try:
                self._parts.share_group_coordinator.describe(selection.group_id)
            except GroupIdNotFound:
                return HttpResponse.json(
                    404, {"error": f"there is no share group {selection.group_id!r} on this broker"}
                )

        def pieces() -> AsyncGenerator[bytes, None]:
            return self._pieces(selection, share_partitions, left_out)

        return HttpResponse(200, pieces, "application/json")

    async def _find(self, selection: _Selection) -> tuple[list[LiveSharePartition], int]:
        """Return the first matching share partitions, and the number of the others."""
        share_partitions: list[LiveSharePartition] = []
        left_out = 0
        for number, live in enumerate(self._parts.share_partitions, start=1):
            if number % SLICE == 0:
                await asyncio.sleep(0)
            if not selection.matches(live):
                continue
            if len(share_partitions) < self._partitions_max:
                share_partitions.append(live)
            else:
                left_out += 1
        return sorted(
            share_partitions, key=lambda live: (live.topic_name, live.key.partition)
        ), left_out

    async def _pieces(
        self, selection: _Selection, share_partitions: list[LiveSharePartition], left_out: int
    ) -> AsyncGenerator[bytes, None]:
        yield f'{{"group": {json.dumps(selection.group_id)}, "left_out": {left_out}, '.encode()
        yield b'"share_partitions": ['
        runs_left = self._runs_max
        separator = b"\n"
        for live in share_partitions:
            if live.fenced:
                continue  # It was unloaded while other requests were served.
            now_ms = self._parts.clock.now_ms()
            runs, next_offset = first_runs(live.state.runs(selection.first_offset), runs_left)
            runs_left -= len(runs)
            entry = json.dumps(_entry(live, next_offset))
            yield separator + entry.removesuffix("}").encode() + b', "runs": ['
            for first in range(0, len(runs), RUNS_PER_SLICE):
                texts = [_run_text(run, now_ms) for run in runs[first : first + RUNS_PER_SLICE]]
                yield (",\n" if first else "\n").encode() + ",\n".join(texts).encode()
            yield b"]}"
            separator = b",\n"
        yield b"\n]}\n"


def _entry(live: LiveSharePartition, next_offset: int | None) -> Mapping[str, Any]:
    """Return what an entry has beside its runs."""
    counts = live.state.snapshot()
    return {
        "topic": live.topic_name,
        "partition": live.key.partition,
        "start_offset": counts.start_offset,
        "end_offset": counts.end_offset,
        "high_watermark": live.log.high_watermark,
        "run_count": counts.run_count,
        "next_offset": next_offset,
    }


def _run_text(run: Run[InFlightState], now_ms: int) -> str:
    """Return a run as JSON; member and lock are null unless it is acquired."""
    state = run.value
    is_acquired = state.state is RecordState.ACQUIRED
    facts = {
        "first_offset": run.first,
        "last_offset": run.end - 1,
        "state": state.state.name.lower(),
        "delivery_count": state.delivery_count,
        "member_id": state.member_id if is_acquired else None,
        "lock_ms_left": max(0, state.lock_deadline_ms - now_ms) if is_acquired else None,
    }
    return json.dumps(facts)


def _selection(query: Query) -> _Selection:
    unknown = sorted(query.keys() - set(PARAMETERS))
    if unknown or not query.get("group"):
        raise _BadQuery(
            f"expected {PATH}?group=ID, and optionally topic, partition and first_offset; found "
            f"{', '.join(unknown) if unknown else 'no group'}"
        )
    partition = _number(query, "partition", needs="topic")
    first_offset = _number(query, "first_offset", needs="partition")
    return _Selection(GroupId(query["group"]), query.get("topic"), partition, first_offset or 0)


def _number(query: Query, name: str, *, needs: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if needs not in query:
        raise _BadQuery(f"{name} needs {needs}")
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(2**63))):
        raise _BadQuery(f"expected a number of 0 or more for {name}, found {text!r}")
    return int(text)
