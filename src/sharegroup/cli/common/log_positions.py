"""Parses positions in logs from arguments and options: offsets, moments, partitions and plans."""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from sharegroup.cli.common.options import PARTITION_MAX, is_number
from sharegroup.client.records import TopicPartition
from sharegroup.durations import seconds
from sharegroup.ids import OFFSET_MAX

DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)


def parse_offsets(text: str | None) -> tuple[int, int]:
    """Parse ``FIRST:END``, each of which can be omitted, or one offset; None means all offsets.

    >>> parse_offsets("5:8"), parse_offsets("5:")[0], parse_offsets("5")
    ((5, 8), 5, (5, 6))
    """
    if text is None:
        return 0, OFFSET_MAX
    first, colon, end = text.partition(":")
    if not all(_is_offset(part) or not part for part in (first, end)) or not (first or colon):
        raise click.BadParameter(f"{text!r}: expected FIRST:END", param_hint="--offsets")
    start = int(first or 0)
    if not colon:
        return start, start + 1
    return start, int(end) if end else OFFSET_MAX


def _is_offset(text: str) -> bool:
    return text.isdecimal() and len(text) <= len(str(OFFSET_MAX)) and int(text) <= OFFSET_MAX


def moment_ms(text: str | None, option: str) -> int | None:
    """Return the milliseconds since 1970 of a date, or of a time before now such as ``2h``."""
    if text is None:
        return None
    try:
        return time.time_ns() // 1_000_000 - round(seconds(text) * 1000)
    except ValueError:
        pass  # The text is not a duration, so it has to be a date.
    try:
        return round(parse_moment(text).timestamp() * 1000)
    except click.BadParameter as error:
        raise click.BadParameter(
            f"{text!r}: expected YYYY-MM-DDThh:mm:ss[.sss][Z], or a time before now, such as '2h'",
            param_hint=option,
        ) from error


def parse_partitions(texts: Iterable[str]) -> list[str | TopicPartition]:
    """Parse topic names, returned as they are, and partitions of the form ``TOPIC:0,1``.

    >>> parse_partitions(["orders", "refunds:0,2"])
    ['orders', TopicPartition(topic='refunds', partition=0), \
TopicPartition(topic='refunds', partition=2)]
    """
    targets: list[str | TopicPartition] = []
    for text in texts:
        topic, _, numbers = text.partition(":")
        if not numbers:
            targets.append(topic)
        elif all(is_number(number, PARTITION_MAX) for number in numbers.split(",")):
            targets += [TopicPartition(topic, int(number)) for number in numbers.split(",")]
        else:
            raise click.BadParameter(
                f"{text!r}: expected TOPIC or TOPIC:0,1,...", param_hint="--topic"
            )
    return targets


def parse_moment(text: str) -> datetime:
    """Parse a point in time in ISO 8601 format; a time without a zone is UTC."""
    try:
        moment = datetime.fromisoformat(_not_a_number(text))
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r}: expected YYYY-MM-DDThh:mm:ss[.sss][Z] ({error})",
            param_hint="--to-datetime",
        ) from error
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _not_a_number(text: str) -> str:
    """Return the text of a date; some numbers of milliseconds would be read as other dates."""
    if text.isdecimal() and len(text) != len("YYYYMMDD"):
        raise ValueError("a number of seconds or milliseconds since 1970 is not a date")
    return text


def parse_duration(text: str) -> timedelta:
    """Parse a duration in ISO 8601 format, without months and years.

    >>> parse_duration("P1DT2H"), parse_duration("PT0.5S")
    (datetime.timedelta(days=1, seconds=7200), datetime.timedelta(microseconds=500000))
    """
    match = DURATION.fullmatch(text)
    parts = {name: float(part) for name, part in match.groupdict().items() if part} if match else {}
    try:
        if parts:
            return timedelta(**parts)
    except OverflowError as error:
        raise click.BadParameter(f"{text!r}: {error}", param_hint="--by-duration") from error
    raise click.BadParameter(
        f"{text!r}: expected PnDTnHnMnS, for example PT2H or P1DT12H", param_hint="--by-duration"
    )


def read_plan(path: Path) -> dict[TopicPartition, int]:
    """Read offsets by partition from a file with lines of ``topic,partition,offset``."""
    try:
        lines = list(csv.reader(io.StringIO(path.read_text())))
    except (UnicodeDecodeError, csv.Error) as error:
        raise click.BadParameter(f"{path}: {error}", param_hint="--from-file") from error
    plan: dict[TopicPartition, int] = {}
    for number, cells in enumerate(lines, 1):
        if not cells:
            continue
        limits = (PARTITION_MAX, OFFSET_MAX)
        if len(cells) != 3 or not all(map(is_number, cells[1:], limits)):
            raise click.BadParameter(
                f"{path} line {number}: expected topic,partition,offset, got {','.join(cells)!r}",
                param_hint="--from-file",
            )
        partition = TopicPartition(cells[0], int(cells[1]))
        if partition in plan:
            raise click.BadParameter(
                f"{path} line {number}: topic {partition.topic!r} partition "
                f"{partition.partition} is named twice",
                param_hint="--from-file",
            )
        plan[partition] = int(cells[2])
    return plan


def csv_text(offsets: Mapping[TopicPartition, int]) -> str:
    """Return offsets as lines of ``topic,partition,offset``, as `read_plan` reads them."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        (topic, partition, offset) for (topic, partition), offset in sorted(offsets.items())
    )
    return text.getvalue()
