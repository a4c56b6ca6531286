"""Where a share group starts, told before `sharegroup consume` and `perf consume` join it.

A new group starts at the end of a topic by default, so the records that are there look lost. A
group that was there before goes on where it was, also with ``--from-beginning``. And a topic that
does not exist, perhaps because its name is mistyped, would be waited for without end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import click

from sharegroup.cli.common.cluster_access import Access, similar_name
from sharegroup.cli.common.output import complain, plural
from sharegroup.cli.common.running import lacks_broker, telling_waits
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.start_position import START_CONFIG, topics_without_offsets
from sharegroup.client.admin.types import ConfigResource, TopicDescription
from sharegroup.client.fetch.offsets import ListedOffset, OffsetSpec
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.client.settings.option_values import StartFrom
from sharegroup.errors import KafkaError, UnknownTopicOrPartition
from sharegroup.protocol_enums import ResourceType

from_beginning_option = click.option(
    "--from-beginning",
    is_flag=True,
    help="Start a new group at the first record of a topic instead of the end.",
)


def start_options(*, from_beginning: bool) -> dict[str, Any]:
    """Return the option of a ShareConsumer for ``--from-beginning``."""
    return {"start_from": StartFrom.EARLIEST} if from_beginning else {}


async def tell_start(
    access: Access,
    topics: Sequence[str],
    client_options: Mapping[str, Any],
    *,
    from_beginning: bool,
) -> None:
    """Tell on standard error of missing topics and of an unexpected start of the group.

    ``client_options`` are those of the consumer. A missing topic is not an error: a group may
    wait until it is created.
    """
    common_names = {field.name for field in fields(ClientConfig)}
    common_options = {name: value for name, value in client_options.items() if name in common_names}
    async with (
        AdminClient(**common_options) as admin,
        telling_waits(access.bootstrap_servers, lambda: lacks_broker(admin.metrics())),
    ):
        described = await admin.describe_topics(topics)
        for topic, description in described.items():
            if isinstance(description, UnknownTopicOrPartition):
                advice = similar_name(description) or (
                    " (list the topics with: sharegroup topics list)"
                )
                complain(f"topic {topic!r} does not exist yet{advice}")
        present = {
            topic: description
            for topic, description in described.items()
            if isinstance(description, TopicDescription)
        }
        await _tell_group(admin, client_options["group_id"], present, from_beginning=from_beginning)


async def _tell_group(
    admin: AdminClient,
    group_id: str,
    topics: Mapping[str, TopicDescription],
    *,
    from_beginning: bool,
) -> None:
    offsets = (await admin.list_share_group_offsets({group_id: None}))[group_id]
    try:
        new_topics = topics_without_offsets(offsets, topics)
    except KafkaError:
        return  # The consumer has the same right and reports the error itself.
    if from_beginning:
        begun = [topic for topic in topics if topic not in new_topics]
        if begun:
            reset = " ".join(f"--topic {topic}" for topic in begun)
            complain(
                f"group {group_id!r} is not new to {', '.join(begun)}: it continues at its "
                "offsets, --from-beginning has no effect; to start again: sharegroup groups "
                f"reset-offsets {group_id} {reset} --to-earliest --execute"
            )
        return
    if not new_topics or await _setting(admin, group_id) != StartFrom.LATEST:
        return
    count = await _record_count(admin, {topic: topics[topic] for topic in new_topics})
    if count:
        complain(
            f"group {group_id!r} is new and starts at the end of {', '.join(new_topics)}: it does "
            f"not get the {count:,} {plural(count, 'record')} already there (with --from-beginning "
            "it does)"
        )


async def _setting(admin: AdminClient, group_id: str) -> str | None:
    """Return the start position of the group; None if this user may not see it."""
    group = ConfigResource(ResourceType.GROUP, group_id)
    configs = (await admin.describe_configs([group]))[group]
    if isinstance(configs, KafkaError) or START_CONFIG not in configs:
        return None
    return configs[START_CONFIG].value


async def _record_count(admin: AdminClient, topics: Mapping[str, TopicDescription]) -> int:
    """Return the number of offsets in these topics; partitions that do not answer count 0."""
    partitions = [
        TopicPartition(name, partition.partition)
        for name, topic in topics.items()
        for partition in topic.partitions
    ]
    firsts = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    count = 0
    for partition in partitions:
        first, end = firsts[partition], ends[partition]
        if isinstance(first, ListedOffset) and isinstance(end, ListedOffset):
            count += max(0, end.offset - first.offset)
    return count
