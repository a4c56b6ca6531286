"""``sharegroup groups reset-offsets``: let a share group start elsewhere.

Two questions have no default, as in Kafka's own tool: where to, and whether to do it or only
to show it.  A reset that was meant as a look is not undone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import click

from sharegroup.cli.asking import (
    ask,
    bootstrap_option,
    json_option,
    naming_members,
    refuse_errors,
    timeout_option,
)
from sharegroup.cli.output import Row, listing
from sharegroup.client.admin import AdminClient
from sharegroup.client.admin_types import ListedOffset, OffsetSpec, TopicDescription
from sharegroup.client.records import TopicPartition
from sharegroup.errors import KafkaError

Offsets = Mapping[TopicPartition, int]


@click.command("reset-offsets")
@click.argument("group")
@click.option("--topic", "topics", metavar="TOPIC[:0,1,...]", multiple=True, help="What to reset.")
@click.option("--all-topics", is_flag=True, help="All that the group has offsets of.")
@click.option("--to-earliest", is_flag=True, help="The first record there is.")
@click.option("--to-latest", is_flag=True, help="Only what is produced from now on.")
@click.option("--to-offset", type=click.IntRange(0), help="This offset, or the nearest there is.")
@click.option("--to-datetime", metavar="YYYY-MM-DDThh:mm:ss[.sss][Z]", help="UTC if not said.")
@click.option("--dry-run", is_flag=True, help="Only show what would happen.")
@click.option("--execute", is_flag=True, help="Do it.")
@bootstrap_option
@timeout_option
@json_option
def command(  # One option each.
    *,
    group: str,
    topics: tuple[str, ...],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_datetime: str | None,
    dry_run: bool,
    execute: bool,
    bootstrap: str,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Move the start offsets of GROUP, which must have no members."""
    if bool(topics) == all_topics:
        raise click.UsageError("name topics with --topic, or give --all-topics")
    if dry_run == execute:
        raise click.UsageError("say one of --dry-run and --execute")
    target = _target(
        to_earliest=to_earliest, to_latest=to_latest, offset=to_offset, time=to_datetime
    )

    async def run(admin: AdminClient) -> list[Row]:
        partitions = await _partitions(admin, group, topics)
        offsets = await _new_offsets(admin, partitions, target)
        if execute and offsets:
            try:
                refuse_errors(await admin.alter_share_group_offsets(group, offsets))
            except KafkaError as error:
                raise await naming_members(admin, group, error) from error
        return [
            {"group": group, "topic": topic, "partition": partition, "new_offset": offset}
            for (topic, partition), offset in sorted(offsets.items())
        ]

    listing(
        ask(bootstrap, timeout_ms, run),
        columns=("group", "topic", "partition", "new_offset"),
        as_json=as_json,
        empty=f"Group {group} has no offsets to reset.",
    )


Target = tuple[str, int]
"""``("spec", OffsetSpec or a time in ms)`` or ``("offset", n)``."""


def _target(*, to_earliest: bool, to_latest: bool, offset: int | None, time: str | None) -> Target:
    targets: list[Target] = []
    if to_earliest:
        targets.append(("spec", OffsetSpec.EARLIEST))
    if to_latest:
        targets.append(("spec", OffsetSpec.LATEST))
    if offset is not None:
        targets.append(("offset", offset))
    if time is not None:
        targets.append(("spec", _milliseconds(time)))
    if len(targets) != 1:
        raise click.UsageError(
            "say one of --to-earliest, --to-latest, --to-offset and --to-datetime"
        )
    return targets[0]


def _milliseconds(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--to-datetime") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


async def _partitions(
    admin: AdminClient, group: str, topics: Sequence[str]
) -> list[TopicPartition]:
    """The partitions that are meant; without topics, those the group has offsets of."""
    if not topics:
        results = await admin.list_share_group_offsets({group: None})
        refuse_errors(results)
        known = results[group]
        assert not isinstance(known, KafkaError)
        return list(known)
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


async def _new_offsets(
    admin: AdminClient, partitions: Sequence[TopicPartition], target: Target
) -> Offsets:
    kind, value = target
    first = await _listed(admin, partitions, OffsetSpec.EARLIEST)
    end = await _listed(admin, partitions, OffsetSpec.LATEST)
    if kind == "offset":
        return {where: min(max(value, first[where]), end[where]) for where in partitions}
    found = await _listed(admin, partitions, value)
    # -1: no record is as young as the time; then the group begins with the next one.
    return {where: end[where] if found[where] < 0 else found[where] for where in partitions}


async def _listed(admin: AdminClient, partitions: Sequence[TopicPartition], spec: int) -> Offsets:
    results = await admin.list_offsets(dict.fromkeys(partitions, spec))
    refuse_errors(results)
    return {
        where: found.offset for where, found in results.items() if isinstance(found, ListedOffset)
    }
