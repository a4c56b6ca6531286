"""What the application under kills runs, and who can be killed of it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum

TOPIC, GROUP = "orders", "billing"
COPY, COPY_GROUP = "orders.copy", "copying"


class Victim(StrEnum):
    """Who can be killed."""

    DRIVER = "driver"
    """The user's Python, where `foreachBatch` runs."""
    JVM = "jvm"
    """Spark's driver.  Executors that are processes of their own end with it."""
    EXECUTOR = "executor"
    """One of the executors that are processes of their own."""
    READER = "reader"
    """The process of the source, a member of the share group."""
    WORKER = "worker"
    """One of those that read the records for an executor, while it works."""
    BROKER = "broker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The queries of the application, and where their tasks run."""

    executors: int = 0
    """Executors that are processes of their own; 0: the tasks run in the driver's JVM."""
    kept_bytes_max: int | None = None
    """The source's option ``keptBytesMax``; None: its default."""
    is_copied: bool = False
    """Whether a second query copies the topic with the streaming sink, at least once."""

    @property
    def victims(self) -> tuple[Victim, ...]:
        """Who can be killed of it."""
        return tuple(kind for kind in Victim if self.executors or kind is not Victim.EXECUTOR)

    @property
    def groups(self) -> tuple[str, ...]:
        """The share groups of its queries."""
        return (GROUP, COPY_GROUP) if self.is_copied else (GROUP,)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that its queries read and write."""
        return (TOPIC, COPY) if self.is_copied else (TOPIC,)

    def to_json(self) -> str:
        """Return it as an argument of a command."""
        return json.dumps(asdict(self))

    @staticmethod
    def of_json(text: str) -> Pipeline:
        """Return what `to_json` was called for."""
        return Pipeline(**json.loads(text))
