"""Changes carried out, and what is made when a worker starts.

Many workers of one application start at one moment, so whatever is made here may have been made
by another one a millisecond ago: a topic that exists already is a topic that was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sharegroup.client.admin import AdminClient
from sharegroup.client.admin_types import (
    BROKER_DEFAULT,
    AlterConfig,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from sharegroup.errors import KafkaError, TopicAlreadyExists, UnknownTopicOrPartition
from sharegroup.worker.events import Event
from sharegroup.worker.infrastructure.asking import found, visible
from sharegroup.worker.infrastructure.changes import PARTITIONS, Change, Kind, changes
from sharegroup.worker.infrastructure.wanted import wanted

if TYPE_CHECKING:
    from sharegroup.worker.application import Application


SETTABLE = (Kind.MISSING, Kind.DRIFT)


class Applied(NamedTuple):
    """A change and what became of it; ``error`` None: done."""

    change: Change
    error: KafkaError | None


async def plan(app: Application, admin: AdminClient, *, former: Iterable[str] = ()) -> list[Change]:
    """What to change so that the cluster is as the application's routes declare.

    ``former``: groups that it does not have any more, whose topics are listed as surplus.
    """
    needed = wanted(app.route_list, app.topic_list)
    return changes(needed, await found(admin, needed, former=former))


async def apply(
    admin: AdminClient, some: Sequence[Change], *, prune: bool = False
) -> list[Applied]:
    """Carry out what can be; nothing is deleted without ``prune``."""
    done: list[Applied] = []
    created = [one for one in some if one.topic is not None]
    if created:
        done += await _create(admin, created)
        await visible(admin, [change for change, error in done if error is None])
    grown = [one for one in some if one.setting == PARTITIONS and one.kind is Kind.DRIFT]
    if grown:
        counts = {one.name: int(one.wanted or 0) for one in grown}
        results = await admin.create_partitions(counts)
        done += [Applied(one, results[one.name]) for one in grown]
    for resource in (ResourceType.TOPIC, ResourceType.GROUP):
        # Topics first: a group's dead-letter topic must allow it before the group names it.
        done += await _set(admin, resource, some)
    deleted = [one for one in some if one.kind is Kind.SURPLUS]
    if deleted and prune:
        gone = await admin.delete_topics([one.name for one in deleted])
        done += [Applied(one, _unless(gone[one.name], UnknownTopicOrPartition)) for one in deleted]
    await visible(admin, [change for change, error in done if error is None])
    return done


async def prepare(app: Application, admin: AdminClient) -> list[Change]:
    """Make what is missing, tell of what differs; what was made.

    Raises the error of a topic that can't be made, because its handler would wait for ever.
    A setting that can't be read or made is told of and left alone.
    """
    needed = wanted(app.route_list, app.topic_list)
    there = await found(admin, needed)
    every = [one for one in changes(needed, there) if one.kind is not Kind.SURPLUS]
    for one in every:
        if one.kind is not Kind.MISSING:
            _tell(app, "infrastructure.drift", one)
    made = []
    for change, error in await apply(admin, [one for one in every if one.kind is Kind.MISSING]):
        if error is None:
            made.append(change)
            _tell(app, "infrastructure.created", change)
        elif change.topic is not None:
            raise error
        else:
            _tell(app, "infrastructure.drift", change, error)
    return made


async def _create(admin: AdminClient, some: Sequence[Change]) -> list[Applied]:
    new = [
        NewTopic(
            topic.name,
            num_partitions=topic.partitions or BROKER_DEFAULT,
            configs=topic.configs,
        )
        for topic in (one.topic for one in some)
        if topic is not None
    ]
    results = await admin.create_topics(new)
    return [Applied(one, _unless(results[one.name], TopicAlreadyExists)) for one in some]


async def _set(admin: AdminClient, resource: ResourceType, some: Sequence[Change]) -> list[Applied]:
    """Set settings of topics or of groups, each for itself.

    A request sets all settings of one topic or none, and what is wrong with one must not keep
    the others from being set.
    """
    by_name: dict[str, list[Change]] = {}
    for one in some:
        if one.is_setting and one.kind in SETTABLE and one.resource == resource.name.lower():
            by_name.setdefault(one.name, []).append(one)
    done: list[Applied] = []
    for one, error in await _set_together(admin, resource, by_name) if by_name else ():
        if error is not None and len(by_name[one.name]) > 1:
            done += await _set_together(admin, resource, {one.name: [one]})
        else:
            done.append(Applied(one, error))
    return done


async def _set_together(
    admin: AdminClient, resource: ResourceType, by_name: Mapping[str, Sequence[Change]]
) -> list[Applied]:
    results = await admin.incremental_alter_configs(
        {
            ConfigResource(resource, name): [
                AlterConfig(one.setting or "", one.wanted) for one in ones
            ]
            for name, ones in by_name.items()
        }
    )
    return [
        Applied(one, results[ConfigResource(resource, name)])
        for name, ones in by_name.items()
        for one in ones
    ]


def _unless(error: KafkaError | None, fine: type[KafkaError]) -> KafkaError | None:
    return None if isinstance(error, fine) else error


def _tell(app: Application, name: str, change: Change, error: KafkaError | None = None) -> None:
    if app.events.wants(name):
        group = change.name if change.resource == "group" else ""
        topic = change.name if change.resource == "topic" else ""
        facts = {"setting": change.setting, "was": change.now, "declared": change.wanted}
        details = {fact: value for fact, value in facts.items() if value is not None}
        if change.why:
            details["why"] = change.why
        app.events.tell(Event(name, group=group, topic=topic, error=error, details=details))
