"""The topic for replies of an application, which the processes that ask handlers read.

It has one name, ``<app>.replies``, and a fixed number of partitions.  So a record that asks for a
reply names only a partition and an id, and no record can make a worker write to another topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from sharegroup.errors import InvalidConfig
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.declarations.topics import TopicDeclaration

PARTITIONS = 8
"""The number of partitions.  A process that asks reads one of them, with the replies to others in
it, so more processes than partitions read more than their own."""
RETENTION_MS = 60 * 60 * 1000
"""No reply is read later: a process that asks is connected when it is written."""
CONFIGS: Mapping[str, str] = MappingProxyType(
    {
        "cleanup.policy": "delete",
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": str(RETENTION_MS),
    }
)


def replies_topic(app_name: str) -> str:
    """The topic for replies to processes of this application."""
    return f"{app_name}.replies"


def topics_with_replies(
    topics: Sequence[TopicDeclaration], app_name: str, routes: Iterable[Route]
) -> tuple[TopicDeclaration, ...]:
    """Add the topic for replies if a handler replies."""
    if not any(route.replies for route in routes):
        return tuple(topics)
    return (*topics, TopicDeclaration(replies_topic(app_name), PARTITIONS, CONFIGS))


def check_no_reader(routes: Sequence[Route], app_name: str) -> None:
    """Raise InvalidConfig if a handler reads or writes the topic for replies."""
    name = replies_topic(app_name)
    for route in routes:
        if name in (*route.topics, route.to):
            raise InvalidConfig(
                f"{route.title}: topic {name!r} is the one for replies of App {app_name!r}; "
                f"name another one"
            )
