"""Where a share group is to start: which partitions are meant, and their offsets.

Whatever is asked for, the answer lies between the first offset of the log and its end: a group
that starts elsewhere would wait for records that are gone or not there yet.
"""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import click

from sharegroup.cli.asking import refuse_errors
from sharegroup.client.admin import AdminClient
from sharegroup.client.admin_types import (
    ListedOffset,
    OffsetSpec,
    SharePartitionOffset,
    TopicDescription,
)
from sharegroup.client.records import TopicPartition
from sharegroup.errors import KafkaError

Offsets = Mapping[TopicPartition, int]
Kind = Literal["earliest", "latest", "current", "offset", "time", "ago", "plan"]

DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


@dataclass(frozen=True, slots=True)
class Target:
    """One of Kafka's reset scenarios; ``value`` is an offset or milliseconds, as ``kind`` says."""

    kind: Kind
    value: int = 0
    plan: Offsets = field(default_factory=dict)


async def new_offsets(
    admin: AdminClient, group: str, partitions: Sequence[TopicPartition], target: Target
) -> Offsets:
    """The offset for each partition, within its log."""
    first = await _listed(admin, partitions, OffsetSpec.EARLIEST)
    end = await _listed(admin, partitions, OffsetSpec.LATEST)
    wanted = await _wanted(admin, group, partitions, target)
    return {
        where: min(max(wanted.get(where, end[where]), first[where]), end[where])
        for where in partitions
    }


async def _wanted(
    admin: AdminClient, group: str, partitions: Sequence[TopicPartition], target: Target
) -> Offsets:
    """What is asked for, in the log or not; the end is meant where nothing is said."""
    match target.kind:
        case "earliest":
            return dict.fromkeys(partitions, 0)
        case "latest":
            return {}
        case "offset":
            return dict.fromkeys(partitions, target.value)
        case "plan":
            return target.plan
        case "current":
            return {
                where: found.start_offset
                for where, found in (await _known(admin, group)).items()
                if found.start_offset is not None
            }
        case "time" | "ago":
            since = int(time.time() * 1000) - target.value if target.kind == "ago" else target.value
            # A negative time would mean something else: latest, earliest.
            found = await _listed(admin, partitions, max(since, 0))
            # -1: no record is as young as the time; then the group begins with the next one.
            return {where: offset for where, offset in found.items() if offset >= 0}


async def all_partitions(admin: AdminClient, group: str) -> list[TopicPartition]:
    """The partitions that the group has state of."""
    return list(await _known(admin, group))


async def named_partitions(admin: AdminClient, topics: Sequence[str]) -> list[TopicPartition]:
    """The partitions of ``TOPIC`` or ``TOPIC:0,1``, which must be there."""
    named = [(name, numbers) for name, _, numbers in (topic.partition(":") for topic in topics)]
    described = await admin.describe_topics(dict.fromkeys(name for name, _ in named))
    refuse_errors(described)
    counts = {
        name: topic.partition_count
        for name, topic in described.items()
        if isinstance(topic, TopicDescription)
    }
    meant = (
        TopicPartition(name, partition)
        for name, numbers in named
        for partition in _numbers(name, numbers, count=counts[name])
    )
    return list(dict.fromkeys(meant))


def read_plan(path: Path) -> Offsets:
    """Offsets by partition from lines of ``topic,partition,offset``."""
    plan: dict[TopicPartition, int] = {}
    for number, cells in enumerate(csv.reader(io.StringIO(path.read_text())), 1):
        if not cells:
            continue
        if len(cells) != 3 or not all(cell.strip().isdigit() for cell in cells[1:]):
            raise click.BadParameter(
                f"{path} line {number}: expected topic,partition,offset, got {','.join(cells)!r}",
                param_hint="--from-file",
            )
        where = TopicPartition(cells[0], int(cells[1]))
        if where in plan:
            raise click.BadParameter(
                f"{path} line {number}: topic {where.topic!r} partition {where.partition} is "
                "named twice",
                param_hint="--from-file",
            )
        plan[where] = int(cells[2])
    return plan


def csv_text(offsets: Offsets) -> str:
    """What `read_plan` reads."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        (topic, partition, offset) for (topic, partition), offset in sorted(offsets.items())
    )
    return text.getvalue()


def moment_ms(text: str) -> int:
    """A point in time as milliseconds; without a zone it is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--to-datetime") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def duration_ms(text: str) -> int:
    """A duration as milliseconds, in the form of ISO 8601 without months and years.

    >>> duration_ms("P1DT2H"), duration_ms("PT0.5S")
    (93600000, 500)
    """
    found = DURATION.fullmatch(text)
    parts = {name: part for name, part in found.groupdict().items() if part} if found else {}
    if not parts:
        raise click.BadParameter(
            f"{text!r}: expected PnDTnHnMnS, as PT2H or P1DT12H", param_hint="--by-duration"
        )
    return sum(int(float(part) * MS[name]) for name, part in parts.items())


def _numbers(topic: str, text: str, *, count: int) -> list[int]:
    if not text:
        return list(range(count))
    try:
        chosen = [int(number) for number in text.split(",")]
    except ValueError as error:
        raise click.BadParameter(f"{topic}:{text}: {error}", param_hint="--topic") from error
    unknown = [number for number in chosen if not 0 <= number < count]
    if unknown:
        raise click.ClickException(
            f"topic {topic!r} has partitions 0 to {count - 1}; asked for {unknown}"
        )
    return chosen


async def _known(admin: AdminClient, group: str) -> dict[TopicPartition, SharePartitionOffset]:
    results = await admin.list_share_group_offsets({group: None})
    refuse_errors(results)
    known = results[group]
    assert not isinstance(known, KafkaError)
    refuse_errors(known)
    return {
        where: found for where, found in known.items() if isinstance(found, SharePartitionOffset)
    }


async def _listed(admin: AdminClient, partitions: Sequence[TopicPartition], spec: int) -> Offsets:
    results = await admin.list_offsets(dict.fromkeys(partitions, spec))
    refuse_errors(results)
    return {
        where: found.offset for where, found in results.items() if isinstance(found, ListedOffset)
    }
