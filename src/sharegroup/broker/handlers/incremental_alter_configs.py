"""IncrementalAlterConfigs (44): settings of topics, groups and the broker.

A change is made of what holds when it is its turn to be written; before that, another request
may have changed the same thing.
"""

from __future__ import annotations

import logging

from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1.request import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

from sharegroup.broker import setting_changes
from sharegroup.broker.catalog import Event
from sharegroup.broker.dispatch import Context, error_code
from sharegroup.broker.handlers import NO_THROTTLE
from sharegroup.broker.handlers.describe_configs import (
    BROKER,
    GROUP,
    TOPIC,
    check_is_this_broker,
)
from sharegroup.broker.live_config import check_dynamic
from sharegroup.broker.parts import Parts
from sharegroup.errors import InvalidRequest, InvalidTopic, KafkaError
from sharegroup.ids import GroupId, TopicName

log = logging.getLogger(__name__)


async def handle(
    parts: Parts, context: Context, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    responses = []
    for resource in request.resources:
        try:
            await _alter(parts, resource, validate_only=request.validate_only)
            responses.append(_response(resource, ErrorCode.none, None))
        except KafkaError as error:
            responses.append(_response(resource, error_code(error), str(error)))
    return IncrementalAlterConfigsResponse(throttle_time=NO_THROTTLE, responses=tuple(responses))


def refuse(
    request: IncrementalAlterConfigsRequest, error: KafkaError
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        throttle_time=NO_THROTTLE,
        responses=tuple(_response(one, error_code(error), str(error)) for one in request.resources),
    )


async def _alter(parts: Parts, resource: AlterConfigsResource, *, validate_only: bool) -> None:
    changes = tuple(
        setting_changes.Change(one.name, one.config_operation, one.value)
        for one in resource.configs
    )
    if resource.resource_type == TOPIC:
        await _alter_topic(parts, TopicName(resource.resource_name), changes, validate_only)
    elif resource.resource_type == GROUP:
        await _alter_group(parts, GroupId(resource.resource_name), changes, validate_only)
    elif resource.resource_type == BROKER:
        await _alter_broker(parts, resource.resource_name, changes, validate_only)
    else:
        raise InvalidRequest(f"configurations of type {resource.resource_type} are not served")


async def _alter_topic(
    parts: Parts, name: TopicName, changes: tuple[setting_changes.Change, ...], validate_only: bool
) -> None:
    def event() -> Event:
        topic = parts.topics.catalog.topic(name)
        if topic.is_internal:
            raise InvalidTopic(f"{name!r} is internal: its settings are the broker's")
        outcome = setting_changes.changed_topic(parts.config, topic.settings, changes)
        return {"event": "topic_settings", "name": name, "settings": outcome}

    if validate_only:
        event()
    else:
        await parts.topics.alter(event)
        topic = parts.topics.catalog.topic(name)
        parts.topics.apply_settings(topic)
        log.info("event=topic_settings topic=%s settings=%s", name, topic.settings)


async def _alter_group(
    parts: Parts,
    group_id: GroupId,
    changes: tuple[setting_changes.Change, ...],
    validate_only: bool,
) -> None:
    if not group_id:
        raise InvalidRequest("a group's configuration needs the group's id, not an empty one")

    def event() -> Event:
        own = parts.topics.catalog.group_settings(group_id)
        outcome = setting_changes.changed_group(parts.config, own, changes)
        return {"event": "group_settings", "group": group_id, "settings": outcome}

    if validate_only:
        event()
    else:
        await parts.topics.alter(event)
        parts.share_group_coordinator.settings_changed(group_id)


async def _alter_broker(
    parts: Parts, name: str, changes: tuple[setting_changes.Change, ...], validate_only: bool
) -> None:
    """Of this broker, or (an empty name) of all that have nothing of their own."""
    check_is_this_broker(parts, name)
    catalog, default = parts.topics.catalog, not name

    def event() -> Event:
        check_dynamic(change.name for change in changes)
        own, of_all = parts.config.tenable(*catalog.broker_settings())
        outcome = setting_changes.changed_broker(parts.config, of_all if default else own, changes)
        parts.config.check(*((own, outcome) if default else (outcome, of_all)))
        return {"event": "broker_settings", "settings": outcome, "default": default}

    if validate_only:
        event()
    else:
        await parts.topics.alter(event)
        parts.config.apply(*parts.config.tenable(*catalog.broker_settings()))
        parts.group_settings.all_changed()
        for topic in parts.topics.catalog.topics():
            parts.topics.apply_settings(topic)


def _response(
    resource: AlterConfigsResource, code: ErrorCode, message: str | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
