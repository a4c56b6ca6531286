"""The topics through which the processes of an application announce themselves and are commanded.

orders-service.workers      heartbeats: the last one of each process is kept, for an hour
orders-service.control      commands: WRITE on it is the right to quiet, resume and stop workers
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

PARTITION = 0
"""The only one: a process reads all commands in their order."""
REMEMBERED_MS = 60 * 60 * 1000
"""How long a process that ended without a word is still listed."""
SEGMENT_MS = 10 * 60 * 1000
_WORKERS = ".workers"
_CONTROL = ".control"
APP_NAME = re.compile(r"[a-zA-Z0-9._-]{1,100}")
OF_A_GROUP = ".retry"
"""The end of an application's name that would give it the control topic of a group."""

HEARTBEAT_CONFIGS: Mapping[str, str] = MappingProxyType(
    {
        "cleanup.policy": "compact,delete",
        # The broker's time: what a process says of its own clock decides nothing.
        "message.timestamp.type": "LogAppendTime",
        "min.cleanable.dirty.ratio": "0.1",
        "retention.ms": str(REMEMBERED_MS),
        "segment.ms": str(SEGMENT_MS),
    }
)
COMMAND_CONFIGS: Mapping[str, str] = MappingProxyType(
    {
        "cleanup.policy": "delete",
        "message.timestamp.type": "LogAppendTime",
        # Commands expire within an hour; a week of them shows who stopped what.
        "retention.ms": str(7 * 24 * 60 * 60 * 1000),
    }
)


def workers_topic(app: str) -> str:
    """The topic of the heartbeats of this application's processes."""
    return app + _WORKERS


def commands_topic(app: str) -> str:
    """The topic of commands for this application's processes."""
    return app + _CONTROL


def apps_of(topics: Iterable[str]) -> list[str]:
    """Return the applications whose processes may announce themselves in these topics."""
    names = {*topics}
    return sorted(
        app
        for topic in names
        if topic.endswith(_WORKERS)
        and APP_NAME.fullmatch(app := topic.removesuffix(_WORKERS))
        and commands_topic(app) in names
    )
