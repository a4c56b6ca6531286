"""What must hold of ordinary consumer groups, checked against what the broker has written.

C1  generations go up; a member that is not in the newest one cannot commit
C2  in a generation each member has what its leader gave it
C3  a committed offset that was confirmed is told from then on, until another one is committed
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.sim.check_shares import Report
from tests.sim.messages import IN_DOUBT
from tests.sim.wiretap import Exchange

NONE = ""
"""The metadata where nothing is committed."""

Where = tuple[str, str, int]
"""Group, topic name (or its id, in requests that have that), partition."""


@dataclass(slots=True, eq=False)
class Commit:
    """One offset that somebody wanted to commit; its metadata say which."""

    metadata: str
    arrived: int
    """When, in the order of all requests."""
    is_confirmed: bool = False
    is_refused: bool = False


@dataclass(slots=True)
class ConsumerGroupView:
    """A group as far as anybody was told of it."""

    generation: int = 0
    given: dict[tuple[int, str], set[bytes]] = field(default_factory=dict)
    """What leaders of a generation gave each member: after a crash there may be another one of
    the same number."""


def _key_of(topic: Any) -> str:
    return str(topic.topic_id if hasattr(topic, "topic_id") else topic.name)


class ConsumerChecks:
    """See the module's text."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._groups: dict[str, ConsumerGroupView] = {}
        self._commits: dict[Where, list[Commit]] = {}
        self._in_doubt: set[str] = set()
        self._forgotten_us: dict[str, int] = {}
        self._by_exchange: dict[Exchange, dict[Where, Commit]] = {}
        self._generation_then: dict[Exchange, int] = {}

    def forget_topic(self, name: str, now_us: int | None) -> None:
        """Its offsets go with it, and with them what is being committed; None: who knows when."""
        if now_us is None:
            self._in_doubt.add(name)
        else:
            self._forgotten_us[name] = now_us
        for where in [where for where in self._commits if where[1] == name]:
            for commit in self._commits[where]:
                commit.is_confirmed = False
            self._commits[where].append(Commit(NONE, 0))

    def _group(self, name: str) -> ConsumerGroupView:
        return self._groups.setdefault(name, ConsumerGroupView())

    def joined(self, exchange: Exchange) -> None:
        group, answer = self._group(exchange.request.group_id), exchange.answer
        if int(answer.error_code) != 0:
            return
        if answer.generation_id < group.generation:
            self._report(f"C1: generation {answer.generation_id} comes after {group.generation}")

    def sync_asked(self, exchange: Exchange) -> None:
        request = exchange.request
        for assignment in request.assignments:
            key = (request.generation_id, str(assignment.member_id))
            given = self._group(request.group_id).given.setdefault(key, set())
            given.add(bytes(assignment.assignment))

    def synced(self, exchange: Exchange) -> None:
        request, answer = exchange.request, exchange.answer
        if int(answer.error_code) != 0:
            return
        group = self._group(request.group_id)
        group.generation = max(group.generation, request.generation_id)
        given = group.given
        wanted = given.get((request.generation_id, str(request.member_id)), set())
        if bytes(answer.assignment) not in wanted | {b""}:
            self._report(
                f"C2: {request.member_id} in generation {request.generation_id} is told "
                f"{answer.assignment!r}, its leader said {sorted(wanted)}"
            )

    def commit_asked(self, exchange: Exchange) -> None:
        request = exchange.request
        self._generation_then[exchange] = self._group(request.group_id).generation
        commits = self._by_exchange[exchange] = {}
        for topic in request.topics:
            for partition in topic.partitions:
                where = (str(request.group_id), _key_of(topic), partition.partition_index)
                commits[where] = Commit(str(partition.committed_metadata), exchange.order)
                self._commits.setdefault(where, []).append(commits[where])

    def committed(self, exchange: Exchange) -> None:
        request = exchange.request
        commits = self._by_exchange.pop(exchange)
        newest = self._generation_then.pop(exchange)
        for topic in exchange.answer.topics:
            for partition in topic.partitions:
                commit = commits[str(request.group_id), _key_of(topic), partition.partition_index]
                code = int(partition.error_code)
                forgotten_us = self._forgotten_us.get(_key_of(topic), -1)
                commit.is_confirmed = code == 0 and forgotten_us < exchange.arrived_us
                commit.is_refused = code not in (0, *IN_DOUBT)
                if code == 0 and request.generation_id_or_member_epoch < newest:
                    self._report(
                        f"C1: a commit of generation {request.generation_id_or_member_epoch} was "
                        f"taken in generation {newest}"
                    )

    def told(self, exchange: Exchange) -> None:
        """The answer to OffsetFetch."""
        for group in exchange.answer.groups:
            for topic in group.topics if int(group.error_code) == 0 else ():
                for partition in topic.partitions:
                    if int(partition.error_code) == 0 and _key_of(topic) not in self._in_doubt:
                        where = (str(group.group_id), _key_of(topic), partition.partition_index)
                        self._check_told(where, partition, exchange)

    def _check_told(self, where: Where, partition: Any, exchange: Exchange) -> None:
        commits = self._commits.get(where, [])
        confirmed = max((commit.arrived for commit in commits if commit.is_confirmed), default=-1)
        expected = {
            commit.metadata
            for commit in commits
            if commit.arrived >= confirmed and not commit.is_refused
        }
        if confirmed < 0:
            expected.add(NONE)
        if str(partition.metadata) not in expected:
            self._report(
                f"C3: {where} is told as {partition.metadata!r}, expected {sorted(expected)}"
            )
