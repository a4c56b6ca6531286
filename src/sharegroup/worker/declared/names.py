"""Which names topics and groups may have.

A group's own topics are named after it, so a group of a worker is named as topics are.
"""

from __future__ import annotations

import re

from sharegroup.errors import InvalidConfig

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_GROUP = re.compile(r"[a-zA-Z0-9._-]{1,220}")


def checked_topic(name: object, whose: str) -> str:
    """The name, if Kafka allows it."""
    if isinstance(name, str) and _TOPIC.fullmatch(name) and name not in (".", ".."):
        return name
    raise InvalidConfig(
        f"{whose}: topic {name!r}; expected 1 to 249 of the characters a-z A-Z 0-9 . _ -"
    )


def checked_group(name: object) -> str:
    """The name, if topics of the group's own can be named after it."""
    if isinstance(name, str) and _GROUP.fullmatch(name):
        return name
    if callable(name):
        raise InvalidConfig(
            f"share_group: expected a group's name, got {name!r}; "
            f"write @app.share_group('group', topics='topic') above the handler"
        )
    raise InvalidConfig(
        f"share group {name!r}: expected 1 to 220 of the characters a-z A-Z 0-9 . _ -, "
        f"because its own topics are named <group>.retry and so on"
    )
