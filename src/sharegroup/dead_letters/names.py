"""The topic of a group to which its dead letters are redriven, and the check of topic names."""

from __future__ import annotations

import re

TOPIC_CHARACTERS_MAX = 249
_TOPIC = re.compile(rf"[a-zA-Z0-9._-]{{1,{TOPIC_CHARACTERS_MAX}}}")


def is_topic_name(name: str) -> bool:
    """Whether Kafka allows this topic name."""
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def own_topic(group: str) -> str:
    """The group's own topic, which its workers read in addition to the application's topics."""
    return f"{group}.retry"
