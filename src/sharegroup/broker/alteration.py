"""Settings of a topic, a group or the broker become others: checked, durable, and in effect.

A change is made of what holds when it is its turn to be written; before that, another request
may have changed the same thing.  So what comes in is not the new settings but a function that
tells the changes to those which are there by then.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

from sharegroup.broker.cluster.catalog import Event
from sharegroup.broker.configuration.live_config import check_dynamic
from sharegroup.broker.configuration.setting_changes import (
    Change,
    changed_broker,
    changed_group,
    changed_topic,
)
from sharegroup.broker.configuration.settings import BROKER, GROUP, TOPIC, check_is_this_broker
from sharegroup.broker.parts import Parts
from sharegroup.errors import InvalidRequest, InvalidTopic, KafkaError
from sharegroup.ids import GroupId, TopicName

log = logging.getLogger(__name__)

ChangesOf = Callable[[Mapping[str, str]], tuple[Change, ...]]


class Resource(Protocol):
    """What either request says whose settings it is about."""

    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...


R = TypeVar("R", bound=Resource)


async def alter_each(
    parts: Parts,
    resources: Sequence[R],
    changes_of: Callable[[R, Mapping[str, str]], tuple[Change, ...]],
    *,
    validate_only: bool,
) -> list[tuple[R, KafkaError | None]]:
    """Change the settings of each resource by itself; why one was refused, or None.

    What is named twice is refused: nobody can tell which settings were meant.
    """
    times = Counter((one.resource_type, one.resource_name) for one in resources)
    outcomes: list[tuple[R, KafkaError | None]] = []
    for one in resources:
        kind, name = one.resource_type, one.resource_name
        try:
            if times[kind, name] > 1:
                raise InvalidRequest(
                    f"{name!r}, a resource of type {kind}, is named {times[kind, name]} times in "
                    "one request; expected once"
                )
            await _alter(parts, kind, name, partial(changes_of, one), validate_only=validate_only)
        except KafkaError as error:
            outcomes.append((one, error))
        else:
            outcomes.append((one, None))
    return outcomes


async def _alter(
    parts: Parts, resource_type: int, name: str, changes_of: ChangesOf, *, validate_only: bool
) -> None:
    """Change the settings of one resource; in effect when this returns."""
    if resource_type == TOPIC:
        event, in_effect = _of_topic(parts, TopicName(name), changes_of)
    elif resource_type == GROUP:
        event, in_effect = _of_group(parts, GroupId(name), changes_of)
    elif resource_type == BROKER:
        event, in_effect = _of_broker(parts, name, changes_of)
    else:
        raise InvalidRequest(f"configurations of type {resource_type} are not served")
    if validate_only:
        event()
    else:
        await parts.topics.alter(event)
        in_effect()


Steps = tuple[Callable[[], Event], Callable[[], None]]
"""What happens, told when it is its turn; and what lets it hold afterwards."""


def _of_topic(parts: Parts, name: TopicName, changes_of: ChangesOf) -> Steps:
    def event() -> Event:
        topic = parts.topics.catalog.topic(name)
        if topic.is_internal:
            raise InvalidTopic(f"{name!r} is internal: its settings are the broker's")
        outcome = changed_topic(parts.config, topic.settings, changes_of(topic.settings))
        return {"event": "topic_settings", "name": name, "settings": outcome}

    def in_effect() -> None:
        topic = parts.topics.catalog.find(name)
        if topic is not None:
            parts.topics.apply_settings(topic)
            log.info("event=topic_settings topic=%s settings=%s", name, topic.settings)

    return event, in_effect


def _of_group(parts: Parts, group_id: GroupId, changes_of: ChangesOf) -> Steps:
    if not group_id:
        raise InvalidRequest("a group's configuration needs the group's id, not an empty one")

    def event() -> Event:
        own = parts.topics.catalog.group_settings(group_id)
        outcome = changed_group(parts.config, own, changes_of(own))
        return {"event": "group_settings", "group": group_id, "settings": outcome}

    def in_effect() -> None:
        parts.share_group_coordinator.settings_changed(group_id)
        parts.share_partitions.settings_changed(group_id)
        own = parts.topics.catalog.group_settings(group_id)
        log.info("event=group_settings group=%r settings=%s", group_id, own)

    return event, in_effect


def _of_broker(parts: Parts, name: str, changes_of: ChangesOf) -> Steps:
    """Of this broker, or (an empty name) of all that have nothing of their own."""
    check_is_this_broker(name, node_id=parts.node.node_id)
    catalog, default = parts.topics.catalog, not name

    def event() -> Event:
        own, of_all = parts.config.tenable(*catalog.broker_settings())
        before = of_all if default else own
        changes = changes_of(before)
        check_dynamic(change.name for change in changes)
        outcome = changed_broker(parts.config, before, changes)
        parts.config.check(*((own, outcome) if default else (outcome, of_all)))
        return {"event": "broker_settings", "settings": outcome, "default": default}

    def in_effect() -> None:
        parts.config.apply(*parts.config.tenable(*catalog.broker_settings()))
        parts.group_settings.all_changed()
        parts.share_partitions.settings_changed(None)
        for topic in catalog.topics():
            parts.topics.apply_settings(topic)
        log.info("event=broker_settings own=%s of_all=%s", *catalog.broker_settings())

    return event, in_effect
