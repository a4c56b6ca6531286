"""What must hold of consumer groups of KIP-848, checked against what the broker has written.

M1  the epochs that a member is told go up
M2  a partition has one member: when another one was given it, no heartbeat of a member that still
    owns it is served
M3  only the member that a partition was given to last commits its offset
"""

from __future__ import annotations

from typing import Any

from tests.sim.check_shares import Report
from tests.sim.messages import Partition
from tests.sim.modern_members import GROUP
from tests.sim.wiretap import Exchange


class ModernGroupChecks:
    """Checks what the members of a consumer group of KIP-848 were told, for M1 to M3."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._epochs: dict[str, int] = {}
        self._given: dict[str, frozenset[Partition]] = {}
        """What each member was told last."""
        self._owners: dict[Partition, str] = {}
        """The member that each partition was given to last."""
        self._owners_then: dict[Exchange, dict[Partition, str]] = {}
        """The owners of the partitions of a request when it arrived."""

    def heartbeat_asked(self, exchange: Exchange) -> None:
        self._note_owners(exchange, _partitions(exchange.request.topic_partitions))

    def heartbeat_answered(self, exchange: Exchange) -> None:
        request, answer = exchange.request, exchange.answer
        owners = self._owners_then.pop(exchange)
        if int(answer.error_code) != 0 or request.member_epoch < 0:
            return
        member = str(request.member_id)
        told = self._epochs.get(member, 0)
        if answer.member_epoch < told:
            self._report(f"M1: {member} had epoch {told}, is told {answer.member_epoch}")
        self._epochs[member] = answer.member_epoch
        for partition, owner in owners.items():
            if owner != member:
                self._report(f"M2: {member} has {partition}, which was given to {owner}")
        if answer.assignment is None:
            return
        given = _partitions(answer.assignment.topic_partitions)
        known = frozenset() if request.member_epoch == 0 else self._given.get(member, frozenset())
        for partition in given - known:
            self._owners[partition] = member
        self._given[member] = given

    def commit_asked(self, exchange: Exchange) -> None:
        if exchange.request.group_id == GROUP:
            self._note_owners(exchange, _committed(exchange.request))

    def commit_answered(self, exchange: Exchange) -> None:
        if exchange.request.group_id != GROUP:
            return
        owners = self._owners_then.pop(exchange)
        member = str(exchange.request.member_id)
        for topic in exchange.answer.topics:
            for partition in topic.partitions:
                where = Partition(topic.topic_id, partition.partition_index)
                if int(partition.error_code) == 0 and owners[where] != member:
                    self._report(f"M3: {member} commits {where}, which {owners[where]} has")

    def unanswered(self, exchange: Exchange) -> None:
        self._owners_then.pop(exchange, None)

    def _note_owners(self, exchange: Exchange, partitions: frozenset[Partition]) -> None:
        self._owners_then[exchange] = {
            partition: self._owners.get(partition, "nobody") for partition in partitions
        }


def _partitions(topics: Any) -> frozenset[Partition]:
    return frozenset(
        Partition(topic.topic_id, index) for topic in topics or () for index in topic.partitions
    )


def _committed(request: Any) -> frozenset[Partition]:
    return frozenset(
        Partition(topic.topic_id, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    )
