"""``sharegroup topics``: list, describe, create, grow and delete topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import click

from sharegroup.cli.common.cluster_access import (
    Access,
    Form,
    ask,
    cluster_options,
    json_option,
    listing_options,
    pairs,
    refuse_errors,
    show,
)
from sharegroup.cli.common.name_arguments import VerbsAsOptions, naming_many, naming_one
from sharegroup.cli.common.options import PARTITION_MAX, REPLICAS_MAX
from sharegroup.cli.common.output import Listing, done
from sharegroup.cli.topics import delete_records
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.types import BROKER_DEFAULT, NewTopic, TopicDescription
from sharegroup.client.fetch.offsets import ListedOffset, OffsetSpec
from sharegroup.client.records import TopicPartition
from sharegroup.errors import KafkaError, TopicAlreadyExists, UnknownTopicOrPartition
from sharegroup.ids import TopicId, topic_id_text

COLUMNS = ("topic", "partition", "leader", "replicas", "isr", "start_offset", "end_offset")
Offsets = Mapping[TopicPartition, ListedOffset | KafkaError]


@click.group("topics", cls=VerbsAsOptions)
def command() -> None:
    """List, describe, create, alter and delete topics.

    The syntax of Kafka's tools works as well:

    \b
        sharegroup topics --create --topic orders --partitions 3
    """


command.add_command(delete_records.command)


@command.command("list")
@click.option("--internal/--exclude-internal", help="Include Kafka's internal topics.")
@cluster_options
@listing_options
def list_(*, internal: bool, access: Access, form: Form) -> None:
    """List the name, number of partitions and id of every topic."""

    async def topics(admin: AdminClient) -> Listing:
        described = await admin.describe_topics()
        rows = [
            {
                "topic": name,
                "partitions": topic.partition_count,
                "topic_id": _id_text(topic),
                "internal": topic.is_internal,
            }
            for name, topic in sorted(described.items())
            if isinstance(topic, TopicDescription) and (internal or not topic.is_internal)
        ]
        columns = ("topic", "partitions", "topic_id")
        return Listing(rows, columns, "There are no topics.", _failures(described.values()))

    show(access, form, topics)


@command.command("describe")
@naming_many("topic", required=False)
@cluster_options
@listing_options
def describe(*, topics: tuple[str, ...], access: Access, form: Form) -> None:
    """Show the leader, replicas and offsets of every partition.

    Without a name, all topics except Kafka's internal topics are shown.
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
    return Listing(rows, COLUMNS, "There are no partitions.", failures)


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
    text = f"topic {topic} has {partitions} partitions"
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
