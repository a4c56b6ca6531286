"""What a reset of offsets is told: partitions, moments, durations, and plans from files."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from sharegroup.client.records import TopicPartition

DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)


def parse_partitions(texts: Iterable[str]) -> list[str | TopicPartition]:
    """Topics as they are, and the partitions of ``TOPIC:0,1``.

    >>> parse_partitions(["orders", "refunds:0,2"])
    ['orders', TopicPartition(topic='refunds', partition=0), \
TopicPartition(topic='refunds', partition=2)]
    """
    meant: list[str | TopicPartition] = []
    for text in texts:
        topic, _, numbers = text.partition(":")
        if not numbers:
            meant.append(topic)
        elif all(number.isdecimal() for number in numbers.split(",")):
            meant += [TopicPartition(topic, int(number)) for number in numbers.split(",")]
        else:
            raise click.BadParameter(
                f"{text!r}: expected TOPIC or TOPIC:0,1,...", param_hint="--topic"
            )
    return meant


def parse_moment(text: str) -> datetime:
    """A point in time; without a zone it is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r}: expected YYYY-MM-DDThh:mm:ss[.sss][Z] ({error})",
            param_hint="--to-datetime",
        ) from error
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def parse_duration(text: str) -> timedelta:
    """A duration in the form of ISO 8601, without months and years.

    >>> parse_duration("P1DT2H"), parse_duration("PT0.5S")
    (datetime.timedelta(days=1, seconds=7200), datetime.timedelta(microseconds=500000))
    """
    found = DURATION.fullmatch(text)
    parts = {name: float(part) for name, part in found.groupdict().items() if part} if found else {}
    try:
        if parts:
            return timedelta(**parts)
    except OverflowError as error:
        raise click.BadParameter(f"{text!r}: {error}", param_hint="--by-duration") from error
    raise click.BadParameter(
        f"{text!r}: expected PnDTnHnMnS, as PT2H or P1DT12H", param_hint="--by-duration"
    )


def read_plan(path: Path) -> dict[TopicPartition, int]:
    """Offsets by partition from lines of ``topic,partition,offset``."""
    try:
        lines = list(csv.reader(io.StringIO(path.read_text())))
    except (UnicodeDecodeError, csv.Error) as error:
        raise click.BadParameter(f"{path}: {error}", param_hint="--from-file") from error
    plan: dict[TopicPartition, int] = {}
    for number, cells in enumerate(lines, 1):
        if not cells:
            continue
        if len(cells) != 3 or not all(cell.strip().isdecimal() for cell in cells[1:]):
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


def csv_text(offsets: Mapping[TopicPartition, int]) -> str:
    """What `read_plan` reads."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        (topic, partition, offset) for (topic, partition), offset in sorted(offsets.items())
    )
    return text.getvalue()
