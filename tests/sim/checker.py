"""Reads every exchange off the wiretap and hands it to the checks of logs and of share groups.

It follows what a client cannot know: which sessions and settings the broker has by now, and what
an unanswered request may have done.  A promise that does not hold is a line in ``problems``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

from tests.sim.admins import PARTITIONS_MAX, PAUSED
from tests.sim.check_consumers import ConsumerChecks
from tests.sim.check_letters import Letter, check_letters
from tests.sim.check_logs import LogChecks, Told
from tests.sim.check_modern_groups import ModernGroupChecks
from tests.sim.check_requests import ShareRequests
from tests.sim.check_shares import GroupView, ShareChecks
from tests.sim.messages import GROUP_RESOURCE, IN_DOUBT, Partition
from tests.sim.network import Connection
from tests.sim.swarm import Plan
from tests.sim.wiretap import Exchange

OPEN_EPOCH = 0
CLOSE_EPOCH = -1
EPOCH_MAX = 2**31 - 1
REFUSED = -1
DEAD_LETTERS = "dlq."
"""What the names of dead-letter topics begin with."""


class Checker:
    """See the module's text."""

    def __init__(
        self,
        plan: Plan,
        *,
        incarnation: Callable[[str, Partition], object],
        soon: Callable[[Callable[[], None]], None],
    ) -> None:
        self.problems: list[str] = []
        self.logs = LogChecks(self.problems.append)
        self.shares = ShareChecks(
            self.problems.append, incarnation, from_earliest=plan.offset_reset == "earliest"
        )
        self.consumers = ConsumerChecks(self.problems.append)
        self.modern_groups = ModernGroupChecks(self.problems.append)
        self.groups: dict[str, GroupView] = {}
        self._plan = plan
        self._requests = ShareRequests(
            self.shares,
            self.logs,
            group=self.group,
            incarnation=incarnation,
            soon=soon,
            reads_committed=plan.reads_committed,
            by_key=plan.by_key and plan.offset_reset == "earliest",
            report=self.problems.append,
        )
        self._retained: set[str] = set()
        self._topic_ids: dict[str, list[Any]] = {}
        self._ends: dict[Exchange, dict[Partition, int]] = {}
        self._told: dict[Exchange, dict[Partition, Told]] = {}
        self._life = 0

    def group(self, name: str) -> GroupView:
        plan = self._plan
        return self.groups.setdefault(
            name,
            GroupView(
                (plan.lock_ms, plan.lock_ms),
                (plan.delivery_count_max, plan.delivery_count_max),
                plan.locks_max + plan.completion_max,
            ),
        )

    # From the wiretap

    def asked(self, exchange: Exchange) -> None:
        if exchange.life != self._life:
            self._new_life(exchange.life)
        self._tell(exchange, "asked")

    def answered(self, exchange: Exchange) -> None:
        self._tell(exchange, "answered")

    def disconnected(self, connection: Connection, unanswered: list[Exchange]) -> None:
        for exchange in unanswered:
            self._tell(exchange, "unanswered")
        for name, group in self.groups.items():
            for member_id, session in list(group.sessions.items()):
                if session.connection is connection:
                    self.shares.released(name, member_id, session.partitions)
                    del group.sessions[member_id]

    def _tell(self, exchange: Exchange, what: str) -> None:
        """Call the method that is named after the API and what happened, if there is one."""
        for part in (self, self._requests):
            method = getattr(part, f"_{exchange.name}_{what}", None)
            if method is not None:
                method(exchange)

    def _new_life(self, life: int) -> None:
        """Another broker: sessions are gone, and locks with them."""
        self._life = life
        for group in self.groups.values():
            group.sessions.clear()

    # Logs

    def _produced(self, message: Any) -> Iterator[tuple[Partition, Any]]:
        """The partitions of a request; before version 13 it has the names of topics."""
        for topic in message.topic_data:
            for partition in topic.partition_data:
                yield Partition(self._id_of(topic), partition.index), partition

    def _id_of(self, topic: Any) -> Any:
        return topic.topic_id if hasattr(topic, "topic_id") else self._ids_of(str(topic.name))[-1]

    def _Produce_asked(self, exchange: Exchange) -> None:  # noqa: N802  Named after the API.
        for partition, produced in self._produced(exchange.request):
            self.logs.produce_asked(partition, produced.records)

    def _Produce_answered(self, exchange: Exchange) -> None:  # noqa: N802
        records = {where: produced.records for where, produced in self._produced(exchange.request)}
        for topic in exchange.answer.responses:
            for response in topic.partition_responses:
                if int(response.error_code) == 0:
                    where = Partition(self._id_of(topic), response.index)
                    self.logs.produce_confirmed(where, records[where], response.base_offset)

    def _Fetch_asked(self, exchange: Exchange) -> None:  # noqa: N802
        self._told[exchange] = {
            where: self.logs.view(where).told for where in _fetch_offsets(exchange.request)
        }

    def _Fetch_unanswered(self, exchange: Exchange) -> None:  # noqa: N802
        del self._told[exchange]

    def _Fetch_answered(self, exchange: Exchange) -> None:  # noqa: N802
        offsets, told = _fetch_offsets(exchange.request), self._told.pop(exchange)
        for topic in exchange.answer.responses:
            for partition in topic.partitions:
                where = Partition(topic.topic_id, partition.partition_index)
                self.logs.fetched(where, partition, offsets[where], told[where])

    def _DeleteRecords_asked(self, exchange: Exchange) -> None:  # noqa: N802
        for topic in exchange.request.topics:
            for topic_id in self._ids_of(topic.name):
                for partition in topic.partitions:
                    self.logs.delete_asked(
                        Partition(topic_id, partition.partition_index), partition.offset
                    )

    def _Metadata_answered(self, exchange: Exchange) -> None:  # noqa: N802
        self._learn(exchange.answer.topics)

    def _CreateTopics_answered(self, exchange: Exchange) -> None:  # noqa: N802
        self._learn(exchange.answer.topics)

    def _learn(self, topics: Iterable[Any]) -> None:
        for topic in topics:
            if int(topic.error_code) == 0 and topic.topic_id not in self._ids_of(str(topic.name)):
                self._topic_ids.setdefault(str(topic.name), []).append(topic.topic_id)
                if topic.name in self._retained:
                    self._expect_retention(str(topic.name))
                if topic.name.startswith(DEAD_LETTERS):
                    self.logs.not_ours.add(topic.topic_id)

    def _expect_retention(self, name: str) -> None:
        """Records of topics with this name may go at any time."""
        for topic_id in self._ids_of(name):
            for index in range(PARTITIONS_MAX):
                self.logs.delete_asked(Partition(topic_id, index), -1)

    def _ids_of(self, name: str) -> list[Any]:
        return self._topic_ids.get(name, [])

    # Settings and offsets of groups

    def _IncrementalAlterConfigs_asked(self, exchange: Exchange) -> None:  # noqa: N802
        """From now on either value may be in effect."""
        for resource in exchange.request.resources:
            if any(config.name.startswith("retention.") for config in resource.configs):
                self._retained.add(resource.resource_name)
                self._expect_retention(resource.resource_name)
            if resource.resource_type != GROUP_RESOURCE:
                continue
            group = self.group(resource.resource_name)
            for config in resource.configs:
                match config.name:
                    case "share.record.lock.duration.ms":
                        group.lock_ms = _extended(group.lock_ms, int(config.value))
                    case "share.delivery.count.limit":
                        group.deliveries = _extended(group.deliveries, int(config.value))
                    case "share.partition.max.record.locks":
                        locks_max = int(config.value) + self._plan.completion_max
                        group.locks_max = max(group.locks_max, locks_max)
                    case _ if config.name == PAUSED:
                        group.paused_us = None

    def _IncrementalAlterConfigs_answered(self, exchange: Exchange) -> None:  # noqa: N802
        for resource, answer in zip(
            exchange.request.resources, exchange.answer.responses, strict=True
        ):
            is_group = resource.resource_type == GROUP_RESOURCE and int(answer.error_code) == 0
            if is_group and any((c.name, c.value) == (PAUSED, "true") for c in resource.configs):
                self.group(resource.resource_name).paused_us = exchange.answered_us

    def _AlterShareGroupOffsets_asked(self, exchange: Exchange) -> None:  # noqa: N802
        for view in self._reset_views(exchange):
            self.shares.views[view].is_unsure += 1

    def _AlterShareGroupOffsets_answered(self, exchange: Exchange) -> None:  # noqa: N802
        codes = {
            Partition(topic.topic_id, partition.partition_index): int(partition.error_code)
            for topic in exchange.answer.responses
            for partition in topic.partitions
        }
        self._offsets_reset(exchange, lambda partition: codes.get(partition, REFUSED))

    _DeleteShareGroupOffsets_asked = _AlterShareGroupOffsets_asked

    def _DeleteShareGroupOffsets_answered(self, exchange: Exchange) -> None:  # noqa: N802
        codes = {topic.topic_id: int(topic.error_code) for topic in exchange.answer.responses}
        self._offsets_reset(exchange, lambda partition: codes.get(partition.topic_id, REFUSED))

    def _offsets_reset(self, exchange: Exchange, code_of: Callable[[Partition], int]) -> None:
        for view in self._reset_views(exchange):
            self._reset(view, int(exchange.answer.error_code) or code_of(view[1]))

    def _reset(self, view: tuple[str, Partition], code: int) -> None:
        """An answer to whoever wanted to reset this; after some nobody knows what happened."""
        if code in IN_DOUBT:
            return
        self.shares.views[view].is_unsure -= 1
        if code == 0:
            self.shares.forget(*view)

    def _DeleteGroups_asked(self, exchange: Exchange) -> None:  # noqa: N802
        for view in self._views_of(exchange.request.groups_names):
            self.shares.views[view].is_unsure += 1

    def _DeleteGroups_answered(self, exchange: Exchange) -> None:  # noqa: N802
        for result in exchange.answer.results:
            for view in self._views_of([result.group_id]):
                self._reset(view, int(result.error_code))
            if int(result.error_code) in (0, *IN_DOUBT):
                self.group(result.group_id).member_epochs.clear()

    def _DeleteGroups_unanswered(self, exchange: Exchange) -> None:  # noqa: N802
        for name in exchange.request.groups_names:
            self.group(name).member_epochs.clear()

    def _reset_views(self, exchange: Exchange) -> list[tuple[str, Partition]]:
        """The share partitions whose offsets a request alters or deletes."""
        ids = {
            topic_id
            for topic in exchange.request.topics
            for topic_id in self._ids_of(topic.topic_name)
        }
        group = exchange.request.group_id
        return [view for view in self._views_of([group]) if view[1].topic_id in ids]

    def _views_of(self, groups: Iterable[str]) -> list[tuple[str, Partition]]:
        names = set(groups)
        return [view for view in self.shares.views if view[0] in names]

    def _DescribeShareGroupOffsets_asked(self, exchange: Exchange) -> None:  # noqa: N802
        self._ends[exchange] = {
            partition: view.high_watermark for partition, view in self.logs.views.items()
        }

    def _DescribeShareGroupOffsets_answered(self, exchange: Exchange) -> None:  # noqa: N802
        ends = self._ends.pop(exchange)
        for group in exchange.answer.groups:
            for topic in group.topics:
                for partition in topic.partitions if topic.topic_id is not None else ():
                    where = Partition(topic.topic_id, partition.partition_index)
                    self._described(group.group_id, where, partition, ends.get(where, 0))
                    self.shares.listed(group.group_id, where, partition.runs, exchange.arrived_us)

    def _described(self, group: str, partition: Partition, described: Any, log_end: int) -> None:
        log = self.logs.view(partition)
        self.shares.described(
            group,
            partition,
            self.group(group),
            start_offset=described.start_offset,
            lag=described.lag,
            log_start=log.deletable_to,
            log_end=log_end,
            confirmed=log.confirmed,
        )

    def letters(self, group: str, letters: Iterable[Letter], topic_ids: Mapping[str, UUID]) -> None:
        """All of a group's dead letters, at the end."""
        check_letters(
            group,
            letters,
            topic_ids=topic_ids,
            ever=self._topic_ids,
            shares=self.shares,
            logs=self.logs,
            report=self.problems.append,
        )

    # What our own clients tell their users

    def told_durable(self, group: str, name: str, index: int, offsets: Iterable[int]) -> None:
        """K1: an application was told that its accepts of these are durable."""
        ids = self._ids_of(name)
        if len(ids) != 1:
            return  # Of which topic with this name nobody can tell.
        partition = Partition(ids[0], index)
        view = self.shares.view(group, partition)
        if view.is_unsure or view.was_reset:
            return
        for offset in offsets:
            deleted = self.logs.view(partition).may_be_deleted(offset)
            if offset not in view.settled and not deleted:
                self.problems.append(f"K1: {group} {partition}-{offset} is told to be accepted")

    def told_delivered(self, name: str, index: int, offset: int, value: bytes) -> None:
        """K2: an application was told that its record is in the log."""
        logs = [self.logs.view(Partition(topic_id, index)) for topic_id in self._ids_of(name)]
        if not any(log.confirmed.get(offset) == value for log in logs):
            self.problems.append(f"K2: {name}-{index}-{offset} is told to be {value[:20]!r}")

    # Ordinary consumer groups

    def _JoinGroup_answered(self, exchange: Exchange) -> None:  # noqa: N802
        self.consumers.joined(exchange)

    def _SyncGroup_asked(self, exchange: Exchange) -> None:  # noqa: N802
        self.consumers.sync_asked(exchange)

    def _SyncGroup_answered(self, exchange: Exchange) -> None:  # noqa: N802
        self.consumers.synced(exchange)

    def _OffsetCommit_asked(self, exchange: Exchange) -> None:  # noqa: N802
        self.consumers.commit_asked(exchange)
        self.modern_groups.commit_asked(exchange)

    def _OffsetCommit_answered(self, exchange: Exchange) -> None:  # noqa: N802
        self.consumers.committed(exchange)
        self.modern_groups.commit_answered(exchange)

    def _OffsetCommit_unanswered(self, exchange: Exchange) -> None:  # noqa: N802
        self.modern_groups.unanswered(exchange)

    def _OffsetFetch_answered(self, exchange: Exchange) -> None:  # noqa: N802
        self.consumers.told(exchange)

    def _DeleteTopics_answered(self, exchange: Exchange) -> None:  # noqa: N802
        for topic in exchange.request.topics:
            self.consumers.forget_topic(str(topic.name), exchange.answered_us)

    def _DeleteTopics_unanswered(self, exchange: Exchange) -> None:  # noqa: N802
        for topic in exchange.request.topics:
            self.consumers.forget_topic(str(topic.name), None)

    # Consumer groups of KIP-848

    def _ConsumerGroupHeartbeat_asked(self, exchange: Exchange) -> None:  # noqa: N802
        self.modern_groups.heartbeat_asked(exchange)

    def _ConsumerGroupHeartbeat_answered(self, exchange: Exchange) -> None:  # noqa: N802
        self.modern_groups.heartbeat_answered(exchange)

    def _ConsumerGroupHeartbeat_unanswered(self, exchange: Exchange) -> None:  # noqa: N802
        self.modern_groups.unanswered(exchange)

    # Members

    def _ShareGroupHeartbeat_answered(self, exchange: Exchange) -> None:  # noqa: N802
        request, answer = exchange.request, exchange.answer
        if int(answer.error_code) != 0 or request.member_epoch < 0:
            return
        epochs = self.group(request.group_id).member_epochs
        told = epochs.get(request.member_id, 0)
        named = f"{request.group_id} {request.member_id}"
        if answer.member_epoch < told:
            self.problems.append(f"S9: {named} had epoch {told}, is told {answer.member_epoch}")
        if request.member_epoch > max(told, answer.member_epoch):
            self.problems.append(
                f"S9: {named} came with epoch {request.member_epoch} and was served"
            )
        epochs[request.member_id] = max(told, answer.member_epoch)


def _fetch_offsets(request: Any) -> dict[Partition, int]:
    return {
        Partition(topic.topic_id, partition.partition): partition.fetch_offset
        for topic in request.topics
        for partition in topic.partitions
    }


def _extended(limits: tuple[int, int], value: int) -> tuple[int, int]:
    return min(limits[0], value), max(limits[1], value)
