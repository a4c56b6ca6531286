"""The rule for names of topics."""

from __future__ import annotations

import re

from sharegroup.errors import InvalidTopic

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def check_topic_name(name: str) -> None:
    """Raise InvalidTopic for a name that is not allowed."""
    if not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
        raise InvalidTopic(
            f"topic name {name!r} is not allowed: 1 to 249 of the characters a-z A-Z 0-9 . _ - "
            "and neither '.' nor '..'"
        )
