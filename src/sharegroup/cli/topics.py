"""``sharegroup topics``: list, describe, create, grow and delete topics."""

from __future__ import annotations

import click

from sharegroup.cli.asking import (
    ask,
    bootstrap_option,
    json_option,
    pairs,
    refuse_errors,
    timeout_option,
)
from sharegroup.cli.output import Row, done, listing
from sharegroup.client.admin import AdminClient
from sharegroup.client.admin_types import (
    BROKER_DEFAULT,
    ListedOffset,
    NewTopic,
    OffsetSpec,
    TopicDescription,
)
from sharegroup.client.records import TopicPartition
from sharegroup.errors import KafkaError, TopicAlreadyExists, UnknownTopicOrPartition
from sharegroup.ids import TopicId, topic_id_text


@click.group("topics")
def command() -> None:
    """List, describe, create, grow and delete topics."""


@command.command("list")
@click.option("--internal", is_flag=True, help="Kafka's internal topics as well.")
@bootstrap_option
@timeout_option
@json_option
def list_(*, internal: bool, bootstrap: str, timeout_ms: int, as_json: bool) -> None:
    """Name, number of partitions and id of every topic."""

    async def topics(admin: AdminClient) -> list[Row]:
        described = await admin.describe_topics()
        return [
            {"topic": name, "partitions": topic.partition_count, "topic_id": _id_text(topic)}
            for name, topic in sorted(described.items())
            if isinstance(topic, TopicDescription) and (internal or not topic.is_internal)
        ]

    rows = ask(bootstrap, timeout_ms, topics)
    columns = ("topic", "partitions", "topic_id")
    listing(rows, columns=columns, as_json=as_json, empty="There are no topics.")


@command.command("describe")
@click.argument("topic", nargs=-1, required=True)
@bootstrap_option
@timeout_option
@json_option
def describe(*, topic: tuple[str, ...], bootstrap: str, timeout_ms: int, as_json: bool) -> None:
    """Leader, first offset and end offset of every partition of TOPIC..."""

    async def partitions(admin: AdminClient) -> list[Row]:
        described = await admin.describe_topics(topic)
        refuse_errors(described)
        leaders = {
            TopicPartition(name, partition): leader
            for name, found in described.items()
            if isinstance(found, TopicDescription)
            for partition, leader in enumerate(found.leaders)
        }
        first = await admin.list_offsets(dict.fromkeys(leaders, OffsetSpec.EARLIEST))
        end = await admin.list_offsets(dict.fromkeys(leaders, OffsetSpec.LATEST))
        return [
            {
                "topic": where.topic,
                "partition": where.partition,
                "leader": leader,
                "start_offset": _offset(first[where]),
                "end_offset": _offset(end[where]),
            }
            for where, leader in sorted(leaders.items())
        ]

    rows = ask(bootstrap, timeout_ms, partitions)
    columns = ("topic", "partition", "leader", "start_offset", "end_offset")
    listing(rows, columns=columns, as_json=as_json, empty="There are no partitions.")


@command.command("create")
@click.argument("topic")
@click.option("--partitions", type=click.IntRange(1), help="[default: the broker's]")
@click.option("--replication-factor", type=click.IntRange(1), help="[default: the broker's]")
@click.option("--config", "configs", metavar="KEY=VALUE", multiple=True, help="A topic config.")
@click.option("--if-not-exists", is_flag=True, help="A topic that exists already is no failure.")
@bootstrap_option
@timeout_option
@json_option
def create(  # One option each.
    *,
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    bootstrap: str,
    timeout_ms: int,
    as_json: bool,
) -> None:
    """Create TOPIC."""
    new = NewTopic(
        topic,
        num_partitions=partitions or BROKER_DEFAULT,
        replication_factor=replication_factor or BROKER_DEFAULT,
        configs=pairs(configs, "--config"),
    )
    results = ask(bootstrap, timeout_ms, lambda admin: admin.create_topics([new]))
    created = results[topic] is None
    if not (if_not_exists and isinstance(results[topic], TopicAlreadyExists)):
        refuse_errors(results)
    text = f"created topic {topic}" if created else f"topic {topic} exists already"
    done(text, as_json=as_json, topic=topic, created=created)


@command.command("alter")
@click.argument("topic")
@click.option("--partitions", type=click.IntRange(1), required=True, help="The new number.")
@bootstrap_option
@timeout_option
@json_option
def alter(*, topic: str, partitions: int, bootstrap: str, timeout_ms: int, as_json: bool) -> None:
    """Give TOPIC more partitions; settings are changed with `sharegroup configs alter`."""
    counts = {topic: partitions}
    refuse_errors(ask(bootstrap, timeout_ms, lambda admin: admin.create_partitions(counts)))
    text = f"topic {topic} has {partitions} partitions"
    done(text, as_json=as_json, topic=topic, partitions=partitions)


@command.command("delete")
@click.argument("topic", nargs=-1, required=True)
@click.option("--if-exists", is_flag=True, help="A topic that does not exist is no failure.")
@bootstrap_option
@timeout_option
@json_option
def delete(
    *, topic: tuple[str, ...], if_exists: bool, bootstrap: str, timeout_ms: int, as_json: bool
) -> None:
    """Delete TOPIC..., with all records."""
    results = ask(bootstrap, timeout_ms, lambda admin: admin.delete_topics(topic))
    deleted = [name for name, error in results.items() if error is None]
    if deleted:
        done(f"deleted topic {', '.join(deleted)}", as_json=as_json, deleted=deleted)
    refuse_errors(
        {
            name: error
            for name, error in results.items()
            if not (if_exists and isinstance(error, UnknownTopicOrPartition))
        }
    )


def _id_text(topic: TopicDescription) -> str | None:
    return None if topic.topic_id is None else topic_id_text(TopicId(topic.topic_id))


def _offset(found: ListedOffset | KafkaError) -> int:
    if isinstance(found, KafkaError):
        raise found
    return found.offset
