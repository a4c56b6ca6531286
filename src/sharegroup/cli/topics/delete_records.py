"""``sharegroup topics delete-records``: delete the oldest records of partitions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from sharegroup.cli.common.cluster_access import (
    Access,
    ask,
    cluster_options,
    json_option,
    refuse,
    refuse_errors,
)
from sharegroup.cli.common.json_documents import Fields, ForeignDocument, typed_fields
from sharegroup.cli.common.log_positions import parse_partitions
from sharegroup.cli.common.name_arguments import complete_topics
from sharegroup.cli.common.options import PARTITION_MAX
from sharegroup.cli.common.output import Listing, print_listing
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.types import TopicDescription
from sharegroup.client.records import TopicPartition
from sharegroup.errors import KafkaError
from sharegroup.ids import OFFSET_MAX

ALL = -1
"""In place of an offset: all records that a partition has now."""

OFFSET: Fields = {"topic": str, "partition": int, "offset": int}


@click.command("delete-records")
@click.option(
    "--topic",
    "topics",
    metavar="TOPIC[:0,1,...]",
    multiple=True,
    shell_complete=complete_topics,
    help="Topic and partitions.  [default: all partitions of the topic]",
)
@click.option(
    "--before",
    type=click.IntRange(ALL, OFFSET_MAX),
    metavar="OFFSET",
    help=f"Delete the records below this offset; {ALL}: all records.",
)
@click.option(
    "--offset-json-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with partitions and offsets, as for kafka-delete-records.",
)
@cluster_options
@json_option
def command(
    *,
    topics: tuple[str, ...],
    before: int | None,
    offset_json_file: Path | None,
    access: Access,
    as_json: bool,
) -> None:
    """Delete the records below an offset.

    The records are deleted for every group.  The file contains the partitions and offsets:

    \b
        {"version": 1, "partitions": [{"topic": "t", "partition": 0, "offset": 5}]}
    """
    by_name = bool(topics) and before is not None
    if by_name == (offset_json_file is not None) or bool(topics) != (before is not None):
        raise click.UsageError("give --topic and --before, or --offset-json-file")
    plan = None if offset_json_file is None else read_offsets(offset_json_file)

    async def run(admin: AdminClient) -> Mapping[TopicPartition, int | KafkaError]:
        offsets = plan
        if offsets is None:
            assert before is not None, "checked above"
            offsets = dict.fromkeys(await _partitions(admin, topics), before)
        return await admin.delete_records(offsets)

    results = ask(access, run)
    rows = [
        {"topic": topic, "partition": partition, "low_watermark": result}
        for (topic, partition), result in sorted(results.items(), key=lambda item: item[0])
        if not isinstance(result, KafkaError)
    ]
    failures = [error for error in results.values() if isinstance(error, KafkaError)]
    columns = ("topic", "partition", "low_watermark")
    listing = Listing(rows, columns, "There are no partitions to delete records from.", failures)
    print_listing(listing, as_json=as_json)
    refuse(failures)


async def _partitions(admin: AdminClient, texts: Iterable[str]) -> list[TopicPartition]:
    """Return the named partitions; a topic without numbers stands for all its partitions."""
    meant = parse_partitions(texts)
    described = await admin.describe_topics([target for target in meant if isinstance(target, str)])
    refuse_errors(described)
    all_of_topic = {
        name: [TopicPartition(name, number) for number in range(topic.partition_count)]
        for name, topic in described.items()
        if isinstance(topic, TopicDescription)
    }
    return [
        partition
        for target in meant
        for partition in (all_of_topic[target] if isinstance(target, str) else [target])
    ]


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """Read offsets by partition from a file in the format of kafka-delete-records."""
    try:
        document = typed_fields(json.loads(path.read_text()), {"partitions": list})
        return _distinct([_offset(entry) for entry in document["partitions"]])
    except (RecursionError, ValueError) as error:
        raise click.BadParameter(
            f"{path}: expected the JSON format that --help shows ({type(error).__name__}: {error})",
            param_hint="--offset-json-file",
        ) from error


def _distinct(entries: list[tuple[TopicPartition, int]]) -> dict[TopicPartition, int]:
    offsets = dict(entries)
    if len(offsets) < len(entries):
        # As in Kafka's tool (`DeleteRecordsCommand.java`): which of the offsets is meant is
        # unknown, and deleted records do not come back.
        raise ForeignDocument("a partition is named twice")
    return offsets


def _offset(entry: object) -> tuple[TopicPartition, int]:
    topic, partition, offset = typed_fields(entry, OFFSET).values()
    if not (0 <= partition <= PARTITION_MAX and ALL <= offset <= OFFSET_MAX):
        raise ForeignDocument(f"no partition and offset: {partition} and {offset}")
    return TopicPartition(topic, partition), offset
