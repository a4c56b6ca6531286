"""A record that a test sent, and its outcome."""

from __future__ import annotations

from collections.abc import Mapping

from sharegroup.worker.ports import Header
from sharegroup.worker.testing.history import HandlerRun, History, Lineage, Outcome


class SentRecord:
    """A record that a test sent: its content, and its outcome in each group that reads its topic.

    If one group reads the topic, `outcome`, `runs` and `times` are those of that group.  With
    several groups, use `outcomes` and `runs_in`.
    """

    __slots__ = ("_history", "headers", "key", "lineage", "topic", "value")

    def __init__(self, lineage: Lineage, headers: tuple[Header, ...], history: History) -> None:
        self.lineage = lineage
        self.topic = lineage.origin.topic
        self.key = lineage.key
        self.value = lineage.value
        self.headers = headers
        self._history = history

    @property
    def outcomes(self) -> Mapping[str, Outcome]:
        """The outcome of the record, by group."""
        groups = self._history.groups_of(self.topic)
        return {group: self._history.outcome(group, self.lineage) for group in groups}

    @property
    def outcome(self) -> Outcome:
        """The outcome of the record in the only group that reads its topic."""
        return self._history.outcome(self._only_group(), self.lineage)

    @property
    def runs(self) -> tuple[HandlerRun, ...]:
        """The calls of its handler, in order."""
        return self.runs_in(self._only_group())

    @property
    def times(self) -> tuple[float, ...]:
        """The time of its handler's call, in seconds of virtual time since the test began."""
        return tuple(run.started_at for run in self.runs)

    @property
    def errors(self) -> tuple[BaseException | None, ...]:
        """The exception of each call; None if it returned or still runs."""
        return tuple(run.error for run in self.runs)

    @property
    def due_at(self) -> float | None:
        """The time at which a waiting record runs again; None if it does not wait for a retry."""
        return self._history.due_at(self._only_group(), self.lineage)

    def runs_in(self, group: str) -> tuple[HandlerRun, ...]:
        """The calls of this group's handler, in order."""
        return self._history.runs(group, self.lineage)

    def _only_group(self) -> str:
        groups = self._history.groups_of(self.topic)
        if len(groups) != 1:
            raise LookupError(
                f"topic {self.topic!r} is read by {len(groups)} groups ({', '.join(groups)}), "
                "expected one: use `outcomes` and `runs_in`"
            )
        return groups[0]

    def __repr__(self) -> str:
        topic, partition, offset, _ = self.lineage.origin
        return f"SentRecord({topic} {partition} {offset}, key={self.key!r}, {dict(self.outcomes)})"
