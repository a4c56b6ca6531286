"""Applies configuration changes: validates them, writes them to the catalog, then activates them.

The settings of a topic, a group or the broker may be changed by another request before this one is
written.  So the changes are given as a function: it is called with the settings as they are when
the change is written, and returns the changes to them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

from sharegroup.broker import loggers
from sharegroup.broker.access.config_permissions import ALTER_CONFIGS, ConfigPermissions
from sharegroup.broker.cluster.catalog import (
    DEAD_LETTER_TOPIC,
    group_settings_event,
    settings_bytes,
)
from sharegroup.broker.cluster.catalog_part import Event
from sharegroup.broker.configuration.client_metrics_config import (
    NAME_CHARACTERS_MAX,
    SUBSCRIPTIONS_MAX,
    parse_client_metrics,
)
from sharegroup.broker.configuration.live_config import check_dynamic, without_secrets
from sharegroup.broker.configuration.setting_changes import (
    SettingChange,
    changed_broker,
    changed_client_metrics,
    changed_group,
    changed_topic,
)
from sharegroup.broker.configuration.settings import check_is_this_broker
from sharegroup.broker.handler_contract import RequestContext
from sharegroup.broker.handlers.parts import (
    HasAuthorizer,
    HasClientTelemetry,
    HasConfig,
    HasGroupSettings,
    HasNode,
    HasShareGroups,
    HasSharePartitions,
    HasSlices,
    HasTopics,
)
from sharegroup.broker.share.dead_letter_topic import check_write
from sharegroup.core.groups.share.sizes import check_new_group
from sharegroup.core.security.principal import Author, Principal
from sharegroup.errors import InvalidRequest, InvalidTopic, KafkaError, PolicyViolation
from sharegroup.ids import GroupId, TopicName
from sharegroup.protocol_enums import ResourceType
from sharegroup.steps import counted

log = logging.getLogger(__name__)

ChangesOf = Callable[[Mapping[str, str]], tuple[SettingChange, ...]]


class ConfigChangesParts(
    HasAuthorizer,
    HasClientTelemetry,
    HasConfig,
    HasGroupSettings,
    HasNode,
    HasShareGroups,
    HasSharePartitions,
    HasSlices,
    HasTopics,
    Protocol,
):
    """What these requests touch of the broker."""


class Resource(Protocol):
    """The resource that an element of either alter request names."""

    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...


R = TypeVar("R", bound=Resource)


async def alter_each(
    parts: ConfigChangesParts,
    context: RequestContext,
    resources: Sequence[R],
    changes_of: Callable[[R, Mapping[str, str]], tuple[SettingChange, ...]],
    *,
    validate_only: bool,
) -> list[tuple[R, KafkaError | None]]:
    """Change the settings of each resource on its own; return each with its error, if it failed.

    A resource that is named twice is refused, because it is unclear which settings were meant.
    """
    permissions = ConfigPermissions(context.rights, ALTER_CONFIGS)
    named = ((resource.resource_type, resource.resource_name) for resource in resources)
    counts = await parts.slices.finish(counted(named))
    outcomes: list[tuple[R, KafkaError | None]] = []
    for resource in resources:
        kind, name = resource.resource_type, resource.resource_name
        await parts.slices.turn()
        try:
            if counts[kind, name] > 1:
                raise InvalidRequest(
                    f"{name!r}, a resource of type {kind}, is named {counts[kind, name]} times in "
                    "one request; expected once"
                )
            if (denial := permissions.denial(kind, name)) is not None:
                raise denial
            changes = partial(changes_of, resource)
            await _alter(parts, kind, name, changes, context, validate_only=validate_only)
        except KafkaError as error:
            outcomes.append((resource, error.with_traceback(None)))
        else:
            outcomes.append((resource, None))
    return outcomes


async def _alter(
    parts: ConfigChangesParts,
    resource_type: int,
    name: str,
    changes_of: ChangesOf,
    context: RequestContext,
    *,
    validate_only: bool,
) -> None:
    """Change the settings of one resource; they are in effect when this returns."""
    if resource_type == ResourceType.BROKER_LOGGER:
        if not name:
            raise InvalidRequest("the loggers of a broker need its node id, not an empty name")
        check_is_this_broker(name, node_id=parts.node.node_id)
        loggers.alter_levels(changes_of({}), validate_only=validate_only)
        return
    if resource_type == ResourceType.TOPIC:
        event, in_effect = _of_topic(parts, TopicName(name), changes_of)
    elif resource_type == ResourceType.GROUP:
        event, in_effect = _of_group(parts, GroupId(name), changes_of, context)
    elif resource_type == ResourceType.CLIENT_METRICS:
        event, in_effect = _of_client_metrics(parts, name, changes_of)
    elif resource_type == ResourceType.BROKER:
        event, in_effect = _of_broker(parts, name, changes_of)
    else:
        raise InvalidRequest(f"configurations of type {resource_type} are not served")
    if validate_only:
        # Making the event runs all checks and changes nothing.
        event()
    else:
        await parts.topics.alter(event)
        in_effect()


Steps = tuple[Callable[[], Event], Callable[[], None]]
"""Two functions: the first makes the catalog event when it is written, the second activates it."""


def _of_topic(parts: ConfigChangesParts, name: TopicName, changes_of: ChangesOf) -> Steps:
    """Return the steps that change the settings of a topic."""

    def event() -> Event:
        topic = parts.topics.catalog.topic(name)
        if topic.is_internal:
            raise InvalidTopic(f"{name!r} is internal: its settings cannot be changed")
        outcome = changed_topic(parts.config, topic.settings, changes_of(topic.settings))
        return {"event": "topic_settings", "name": name, "settings": outcome}

    def in_effect() -> None:
        topic = parts.topics.catalog.find(name)
        if topic is not None:
            parts.topics.apply_settings(topic)
            log.info("event=topic_settings topic=%s settings=%s", name, topic.settings)

    return event, in_effect


def _of_group(
    parts: ConfigChangesParts, group_id: GroupId, changes_of: ChangesOf, context: RequestContext
) -> Steps:
    """Return the steps that change the settings of a group."""
    user = context.limited_user
    if not group_id:
        raise InvalidRequest("a group's configuration needs the group's id, not an empty one")

    def event() -> Event:
        own_settings = parts.topics.catalog.group_settings(group_id)
        changes = changes_of(own_settings)
        outcome = changed_group(parts.config, own_settings, changes)
        _check_room(parts, group_id, own_settings, outcome, user)
        author = _dead_letter_author(parts, group_id, changes, outcome, context)
        return group_settings_event(group_id, outcome, author)

    def in_effect() -> None:
        parts.share_group_coordinator.settings_changed(group_id)
        # After the cached settings are dropped, because it wakes fetches, which must see the new
        # ones.
        parts.share_partitions.settings_changed(group_id)
        own_settings = parts.topics.catalog.group_settings(group_id)
        size_bytes = settings_bytes(group_id, own_settings)
        parts.topics.catalog.group_settings_memory.claim(group_id, user, size_bytes)
        log.info("event=group_settings group=%r settings=%s", group_id, own_settings)

    return event, in_effect


def _dead_letter_author(
    parts: ConfigChangesParts,
    group_id: GroupId,
    changes: Sequence[SettingChange],
    outcome: Mapping[str, str],
    context: RequestContext,
) -> Author | None:
    """Return the user on whose behalf the group's dead letters are written (ADR 0037).

    It is the one who set the topic last, even to the same name.  Raises AuthorizationException if
    this user may not write to the topic, or not create it.
    """
    name = outcome.get(DEAD_LETTER_TOPIC)
    if not name:
        return None
    # Another setting was changed: the letters stay those of the user who named the topic.
    if all(change.name != DEAD_LETTER_TOPIC for change in changes):
        return parts.topics.catalog.dead_letter_author(group_id)
    if parts.authorizer is None:
        return None
    is_missing = parts.topics.catalog.find(TopicName(name)) is None
    creates = is_missing and parts.config.share_group.dead_letter_auto_create
    check_write(context.rights, group_id, TopicName(name), creates=creates)
    return Author(context.peer.principal, context.peer.host)


def _check_room(
    parts: ConfigChangesParts,
    group_id: GroupId,
    before: Mapping[str, str],
    after: Mapping[str, str],
    user: Principal | None,
) -> None:
    """Refuse settings beyond the limit for all groups, and a group that may not be created."""
    # Only for a first setting: a group that has settings already may still change them.
    if not before:
        check_new_group(group_id)
    growth_bytes = settings_bytes(group_id, after) - settings_bytes(group_id, before)
    total = parts.topics.catalog.group_settings_bytes + growth_bytes
    bytes_max = parts.config.server.group_settings_bytes_max
    # Above the limit settings can still be removed and shortened.
    if growth_bytes > 0 and total > bytes_max:
        raise PolicyViolation(
            f"group {group_id!r}: the settings of all groups would take {total} bytes, at most "
            f"{bytes_max} are allowed; delete the settings of groups that no longer exist"
        )
    parts.topics.catalog.group_settings_memory.check(group_id, user, growth_bytes, limit=bytes_max)


def _of_client_metrics(parts: ConfigChangesParts, name: str, changes_of: ChangesOf) -> Steps:
    """Return the steps that change a client metrics resource (KIP-714)."""
    if not name or len(name) > NAME_CHARACTERS_MAX:
        raise InvalidRequest(
            f"a client metrics resource needs a name of 1 to {NAME_CHARACTERS_MAX} characters, "
            f"not {len(name)}"
        )
    resources = parts.topics.catalog.client_metrics.all

    def event() -> Event:
        own_settings = resources().get(name, {})
        outcome = changed_client_metrics(own_settings, changes_of(own_settings))
        parse_client_metrics(name, outcome)
        if outcome and not own_settings and len(resources()) >= SUBSCRIPTIONS_MAX:
            raise PolicyViolation(
                f"{name!r}: there are {SUBSCRIPTIONS_MAX} client metrics resources, which is the "
                "limit; delete one of them"
            )
        return {"event": "client_metrics", "name": name, "settings": outcome}

    def in_effect() -> None:
        parts.client_telemetry.settings_changed()
        log.info("event=client_metrics name=%r settings=%s", name, resources().get(name, {}))

    return event, in_effect


def _of_broker(parts: ConfigChangesParts, name: str, changes_of: ChangesOf) -> Steps:
    """Return the steps for this broker's settings; for the cluster's if ``name`` is empty."""
    check_is_this_broker(name, node_id=parts.node.node_id)
    catalog, default = parts.topics.catalog, not name

    def event() -> Event:
        # A stored value that contradicts the start configuration must not make every change fail.
        own_settings, defaults = parts.config.tenable(*catalog.broker_settings())
        before = defaults if default else own_settings
        changes = changes_of(before)
        names = [change.name for change in changes]
        check_dynamic(names, of_all_brokers=default)
        outcome = changed_broker(parts.config, before, changes)
        own, of_all = (own_settings, outcome) if default else (outcome, defaults)
        parts.config.offer(own, of_all, names)
        return {"event": "broker_settings", "settings": outcome, "default": default}

    def in_effect() -> None:
        parts.config.apply(*parts.config.tenable(*catalog.broker_settings()))
        parts.group_settings.all_changed()
        parts.share_partitions.settings_changed(None)
        # Topics without a value of their own inherit the broker's.
        for topic in catalog.topics():
            parts.topics.apply_settings(topic)
        log.info(
            "event=broker_settings own=%s of_all=%s",
            *map(without_secrets, catalog.broker_settings()),
        )

    return event, in_effect
