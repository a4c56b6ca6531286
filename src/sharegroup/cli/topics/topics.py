"""``sharegroup topics``: list, describe, create, grow and delete topics, and delete old records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import click

from sharegroup.cli.common.cluster_access import (
    Access,
    Form,
    ask,
    cluster_options,
    json_option,
    listing_options,
    pairs,
    refuse,
    refuse_errors,
    show,
)
from sharegroup.cli.common.log_positions import parse_partitions
from sharegroup.cli.common.name_arguments import (
    complete_topics,
    naming_many,
    naming_one,
)
from sharegroup.cli.common.options import PARTITION_MAX, REPLICAS_MAX
from sharegroup.cli.common.output import Listing, counted, done, print_listing
from sharegroup.cli.common.tables import leaves_out
from sharegroup.cli.common.verb_groups import VerbsAsOptions
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.types import BROKER_DEFAULT, NewTopic, TopicDescription
from sharegroup.client.fetch.offsets import ListedOffset, OffsetSpec
from sharegroup.client.records import TopicPartition
from sharegroup.errors import KafkaError, TopicAlreadyExists, UnknownTopicOrPartition
from sharegroup.ids import OFFSET_MAX, TopicId, topic_id_text
from sharegroup.json_documents import Fields, ForeignDocument, typed_fields

COLUMNS = ("topic", "partition", "leader", "replicas", "isr", "start_offset", "end_offset")
SPARE_OF_LIST = ("topic_id",)
SPARE = ("isr", "replicas", "start_offset")
ALL_RECORDS = -1
"""In place of an offset: all records that a partition has now."""

ENTRY: Fields = {"topic": str, "partition": int, "offset": int}

Offsets = Mapping[TopicPartition, ListedOffset | KafkaError]


@click.group("topics", cls=VerbsAsOptions)
def command() -> None:
    """List, describe, create, alter and delete topics.

    The syntax of Kafka's tools works as well:

    \b
        sharegroup topics --create --topic orders --partitions 3
    """


@command.command("list")
@click.option(
    "--internal/--exclude-internal", help="Include internal topics of Kafka and sharegroup."
)
@cluster_options
@listing_options
@leaves_out(SPARE_OF_LIST)
def list_(*, internal: bool, access: Access, form: Form) -> None:
    """List the name, number of partitions and id of every topic."""

    async def topics(admin: AdminClient) -> Listing:
        described = await admin.describe_topics()
        rows = [
            {
                "topic": name,
                "partitions": topic.partition_count,
                "topic_id": _id_text(topic),
                "internal": topic.is_hidden,
            }
            for name, topic in sorted(described.items())
            if isinstance(topic, TopicDescription) and (internal or not topic.is_hidden)
        ]
        columns = ("topic", "partitions", "topic_id")
        failures = _failures(described.values())
        return Listing(rows, columns, "There are no topics.", failures, spare=SPARE_OF_LIST)

    show(access, form, topics)


@command.command("describe")
@naming_many("topic", required=False)
@cluster_options
@listing_options
@leaves_out(SPARE)
def describe(*, topics: tuple[str, ...], access: Access, form: Form) -> None:
    """Show the leader, replicas and offsets of every partition.

    Without a name, all topics except internal ones are shown.
    """

    async def partitions(admin: AdminClient) -> Listing:
        names = topics or await admin.list_topics()
        described = await admin.describe_topics(names)
        places = [
            TopicPartition(name, description.partition)
            for name, result in described.items()
            if isinstance(result, TopicDescription)
            for description in result.partitions
        ]
        first = await admin.list_offsets(dict.fromkeys(places, OffsetSpec.EARLIEST))
        end = await admin.list_offsets(dict.fromkeys(places, OffsetSpec.LATEST))
        # Without names, a topic that another command deletes meanwhile is none of all topics.
        return partition_listing(described, first, end, are_named=bool(topics))

    show(access, form, partitions)


def partition_listing(
    described: Mapping[str, TopicDescription | KafkaError],
    first: Offsets,
    end: Offsets,
    *,
    are_named: bool,
) -> Listing:
    """Return a row for each partition, with the first and the end offset of its log.

    Topics that do not exist are failures if ``are_named``; without that they are left out.
    """
    rows = []
    failures = _failures(described.values(), are_named=are_named)
    for name, topic in sorted(described.items()):
        for description in topic.partitions if isinstance(topic, TopicDescription) else ():
            partition = TopicPartition(name, description.partition)
            # An error of the first offset is an error of the end, too, and is told once.
            errors = _failures((first[partition], end[partition]), are_named=True)[:1]
            failures += _failures(errors, are_named=are_named)
            if not are_named and any(map(_is_missing, errors)):
                continue
            rows.append(
                {
                    "topic": name,
                    "partition": description.partition,
                    "leader": description.leader,
                    "replicas": list(description.replicas),
                    "isr": list(description.in_sync_replicas),
                    "start_offset": _offset(first[partition]),
                    "end_offset": _offset(end[partition]),
                }
            )
    return Listing(rows, COLUMNS, "There are no partitions.", failures, spare=SPARE)


@command.command("create")
@naming_one("topic")
@click.option(
    "--partitions", type=click.IntRange(1, PARTITION_MAX), help="[default: set by the broker]"
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, REPLICAS_MAX),
    help="[default: set by the broker]",
)
@click.option(
    "--config", "configs", metavar="KEY=VALUE", multiple=True, help="Value of a topic setting."
)
@click.option("--if-not-exists", is_flag=True, help="Do not fail if the topic already exists.")
@cluster_options
@json_option
def create(  # One option each.
    *,
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    access: Access,
    as_json: bool,
) -> None:
    """Create a topic."""
    new = NewTopic(
        topic,
        num_partitions=partitions or BROKER_DEFAULT,
        replication_factor=replication_factor or BROKER_DEFAULT,
        configs=pairs(configs, "--config"),
    )
    results = ask(access, lambda admin: admin.create_topics([new]))
    created = results[topic] is None
    if not (if_not_exists and isinstance(results[topic], TopicAlreadyExists)):
        refuse_errors(results)
    text = f"created topic {topic}" if created else f"topic {topic} already exists"
    done(text, as_json=as_json, topic=topic, created=created)


@command.command("alter")
@naming_one("topic")
@click.option(
    "--partitions",
    type=click.IntRange(1, PARTITION_MAX),
    required=True,
    help="New number of partitions.",
)
@cluster_options
@json_option
def alter(*, topic: str, partitions: int, access: Access, as_json: bool) -> None:
    """Increase the number of partitions of a topic.

    To change the settings of a topic, use `sharegroup configs alter`.
    """
    refuse_errors(ask(access, lambda admin: admin.create_partitions({topic: partitions})))
    text = f"topic {topic} has {counted(partitions, 'partition')}"
    done(text, as_json=as_json, topic=topic, partitions=partitions)


@command.command("delete")
@naming_many("topic")
@click.option("--if-exists", is_flag=True, help="Do not fail if a topic does not exist.")
@cluster_options
@json_option
def delete(*, topics: Sequence[str], if_exists: bool, access: Access, as_json: bool) -> None:
    """Delete topics and all their records."""
    results = ask(access, lambda admin: admin.delete_topics(topics))
    deleted = [name for name, error in results.items() if error is None]
    failed = {
        name: error
        for name, error in results.items()
        if error is not None and not (if_exists and isinstance(error, UnknownTopicOrPartition))
    }
    if deleted or as_json:
        texts = {name: str(error) for name, error in failed.items()}
        text = f"deleted topic {', '.join(deleted)}"
        done(text, as_json=as_json, deleted=deleted, failed=texts)
    refuse_errors(failed)


def _failures(results: Iterable[object], *, are_named: bool = False) -> list[KafkaError]:
    """Return the errors; that a topic is missing is one only if the command line names it."""
    return [
        result
        for result in results
        if isinstance(result, KafkaError) and (are_named or not _is_missing(result))
    ]


def _is_missing(result: object) -> bool:
    return isinstance(result, UnknownTopicOrPartition)


def _id_text(topic: TopicDescription) -> str | None:
    return None if topic.topic_id is None else topic_id_text(TopicId(topic.topic_id))


def _offset(found: ListedOffset | KafkaError) -> int | None:
    return None if isinstance(found, KafkaError) else found.offset


@command.command("delete-records")
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
    type=click.IntRange(ALL_RECORDS, OFFSET_MAX),
    metavar="OFFSET",
    help=f"Delete the records below this offset; {ALL_RECORDS}: all records.",
)
@click.option(
    "--offset-json-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with partitions and offsets, as for kafka-delete-records.",
)
@cluster_options
@json_option
def delete_records(
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
        return _distinct([_entry(entry) for entry in document["partitions"]])
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


def _entry(entry: object) -> tuple[TopicPartition, int]:
    topic, partition, offset = typed_fields(entry, ENTRY).values()
    if not (0 <= partition <= PARTITION_MAX and ALL_RECORDS <= offset <= OFFSET_MAX):
        raise ForeignDocument(f"no partition and offset: {partition} and {offset}")
    return TopicPartition(topic, partition), offset
