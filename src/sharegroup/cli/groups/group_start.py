"""Where a group starts, told before `sharegroup consume` and `perf consume` join it.

A new group starts at the end of a topic by default, so the records that are there look lost. A
group that was there before goes on where it was, also with ``--from-beginning``. And a topic that
does not exist, perhaps because its name is mistyped, would be waited for without end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import click

from sharegroup.cli.common.cluster_access import Access, similar_name
from sharegroup.cli.common.output import complain, plural
from sharegroup.cli.common.running import lacks_broker, telling_waits
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.start_position import START_CONFIG, topics_without_offsets
from sharegroup.client.admin.types import ConfigResource, ShareGroupDescription, TopicDescription
from sharegroup.client.fetch.offsets import ListedOffset, OffsetSpec
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.client_config import ClientConfig, options_of
from sharegroup.client.settings.option_values import StartFrom
from sharegroup.errors import GroupIdNotFound, KafkaError, UnknownTopicOrPartition
from sharegroup.protocol_enums import GroupType, ResourceType

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
    group_type: GroupType = GroupType.SHARE,
) -> None:
    """Tell on standard error of missing topics and of an unexpected start of the group.

    Raises GroupIdNotFound if the group has another type.

    ``client_options`` are those of the consumer. A missing topic is not an error: a group may
    wait until it is created.
    """
    async with (
        AdminClient(**options_of(ClientConfig, client_options)) as admin,
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
        group = _Group(client_options["group_id"], group_type, client_options)
        await _check_type(admin, group)
        await _tell_group(admin, group, present, from_beginning=from_beginning)


class _Group(NamedTuple):
    """The group that the consumer joins, with the options of the consumer."""

    group_id: str
    type: GroupType
    client_options: Mapping[str, Any]


async def _check_type(admin: AdminClient, group: _Group) -> None:
    """Raise GroupIdNotFound if the group exists with another type: all types share one id space."""
    described = (await admin.describe_share_and_consumer_groups([group.group_id]))[group.group_id]
    if isinstance(described, KafkaError):
        return  # The group is new, or the consumer has the same right and reports the error itself.
    is_share = isinstance(described, ShareGroupDescription)
    if is_share != (group.type is GroupType.SHARE):
        found, expected = ("share", "consumer") if is_share else ("consumer", "share")
        raise GroupIdNotFound(
            f"group {group.group_id!r} is a {found} group, not a {expected} group: name another "
            "group, or its type"
        )


async def _tell_group(
    admin: AdminClient,
    group: _Group,
    topics: Mapping[str, TopicDescription],
    *,
    from_beginning: bool,
) -> None:
    group_id = group.group_id
    try:
        new_topics = await _new_topics(admin, group, topics)
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
    if not new_topics or await _setting(admin, group) != StartFrom.LATEST:
        return
    count = await _record_count(admin, {topic: topics[topic] for topic in new_topics})
    if count:
        complain(
            f"group {group_id!r} is new and starts at the end of {', '.join(new_topics)}: it does "
            f"not get the {count:,} {plural(count, 'record')} already there (with --from-beginning "
            "it does)"
        )


async def _new_topics(admin: AdminClient, group: _Group, topics: Iterable[str]) -> Sequence[str]:
    """Return those of the topics in which the group has no offset yet."""
    group_id = group.group_id
    if group.type is GroupType.SHARE:
        offsets = (await admin.list_share_group_offsets({group_id: None}))[group_id]
        return topics_without_offsets(offsets, topics)
    committed = (await admin.list_consumer_group_offsets({group_id: None}))[group_id]
    if isinstance(committed, KafkaError):
        raise committed
    begun = {where.topic for where in committed}
    return [topic for topic in topics if topic not in begun]


async def _setting(admin: AdminClient, group: _Group) -> str | None:
    """Return the start position of the group; None if this user may not see it."""
    if group.type is not GroupType.SHARE:
        return str(group.client_options.get("auto_offset_reset", StartFrom.LATEST))
    resource = ConfigResource(ResourceType.GROUP, group.group_id)
    configs = (await admin.describe_configs([resource]))[resource]
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
