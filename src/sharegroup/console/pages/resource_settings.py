"""The settings of a group, topic or broker with the place that set them."""

from __future__ import annotations

from typing import Any

from sharegroup.client.admin.types import ConfigResource
from sharegroup.console.pages.page import Visit
from sharegroup.errors import KafkaError
from sharegroup.protocol_enums import ResourceType


async def settings_of(visit: Visit, kind: ResourceType, name: str) -> list[dict[str, Any]] | str:
    """Return the settings, those that somebody set first; or why they cannot be shown.

    They are in no live part, so an open page does not read them again.
    """
    if visit.is_live:
        return []
    resource = ConfigResource(kind, name)
    try:
        found = (await visit.admin.describe_configs([resource]))[resource]
    except KafkaError as error:
        return str(error)
    if isinstance(found, KafkaError):
        return str(found)
    return [
        {
            "name": entry.name,
            "value": entry.value,
            "is_default": entry.is_default,
            "origin": entry.source.name.lower().replace("_", " "),
        }
        for entry in sorted(found.values(), key=lambda entry: (entry.is_default, entry.name))
    ]
