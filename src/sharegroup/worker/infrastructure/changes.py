"""Compares what routes require with what a cluster has; the result is a list of changes.

The comparison does no I/O: `asking` queries the cluster, and `applying` carries the changes out.

Settings without a declaration are ignored.  Nothing is ever reduced: a topic with more partitions
than declared is only reported, because Kafka cannot remove partitions and nobody should delete a
topic for that.  Replicas of an existing topic are never changed, because that moves its data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from sharegroup.client.admin.types import AclBinding, ConfigEntry
from sharegroup.dead_letters.topics import MIN_INSYNC, own_topic
from sharegroup.errors import KafkaError
from sharegroup.protocol_enums import ConfigSource
from sharegroup.waiting.retry_topics import control_topic, is_tier_topic
from sharegroup.worker.declarations.checks import dead_topic
from sharegroup.worker.declarations.topics import min_insync_of, replicas_of
from sharegroup.worker.infrastructure.wanted import (
    RequiredGroup,
    RequiredInfrastructure,
    RequiredTopic,
)

PARTITIONS = "partitions"
REPLICATION_FACTOR = "replication_factor"


class ChangeKind(StrEnum):
    """The kind of a change, by what it means to the operator of the application."""

    MISSING = "missing"
    """Does not exist or is not set; the start of a worker creates it, too."""
    DRIFT = "drift"
    """Differs from the declaration; only `apply` changes it."""
    SURPLUS = "surplus"
    """Belongs to the application but is no longer declared; ``apply --prune`` deletes it."""
    REFUSED = "refused"
    """Cannot be made as declared; an operator has to decide."""
    WARNING = "warning"
    """Matches the declaration, but is less safe than this cluster allows."""
    UNKNOWN = "unknown"
    """Not visible to this user, so it is left alone."""


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between the declarations and the cluster."""

    kind: ChangeKind
    resource: str
    """``topic``, ``group`` or ``acl``."""
    name: str
    setting: str | None = None
    """``partitions``, ``replication_factor`` or a config; None for the whole resource."""
    now: str | None = None
    """The current value; None if it does not exist or is a default that is not visible."""
    wanted: str | None = None
    """The declared value; None for the broker's default or a deletion."""
    why: str = ""
    topic: RequiredTopic | None = None
    """The topic to create."""
    acl: AclBinding | None = None
    """The ACL to create."""

    @property
    def is_setting(self) -> bool:
        """Whether the change is about a config, which can be set."""
        others = (PARTITIONS, REPLICATION_FACTOR)
        return self.acl is None and self.setting is not None and self.setting not in others

    @property
    def is_impossible(self) -> bool:
        """Whether a missing topic cannot be created as declared."""
        return (
            self.kind is ChangeKind.REFUSED
            and self.setting == REPLICATION_FACTOR
            and self.now is None
        )

    def __str__(self) -> str:
        if self.acl is not None:
            return f"acl {self.kind}: {self.acl}"
        subject = f"{self.resource} {self.name}" + (f" {self.setting}" if self.setting else "")
        values = f" ({self.now}; declared: {self.wanted})" if self.setting else ""
        return f"{subject}: {self.kind}{values}" + (f", {self.why}" if self.why else "")


@dataclass(frozen=True, slots=True)
class ExistingTopic:
    """An existing topic; ``records`` is the number of its offsets, or None if not queried."""

    partitions: int
    configs: Mapping[str, ConfigEntry] | KafkaError
    """Its configs, or the error if this user may not see them."""
    records: int | None = None
    replicas: int = 1
    """The smallest number of replicas of its partitions."""


@dataclass(frozen=True, slots=True)
class ExistingInfrastructure:
    """The topics and groups of a cluster that the routes require or that have their names."""

    topics: Mapping[str, ExistingTopic]
    groups: Mapping[str, Mapping[str, ConfigEntry] | KafkaError]
    """The settings of each group, or the error if this user may not see them."""
    brokers: int = 1
    """The number of registered brokers, running or not."""


def changes(wanted: RequiredInfrastructure, found: ExistingInfrastructure) -> list[Change]:
    """Determine the changes, in the order in which they can be made."""
    differences = [
        *(change for topic in wanted.topics for change in _topic_changes(topic, found)),
        *(change for group in wanted.groups for change in _group_changes(group, found)),
        *_surplus(wanted, found),
    ]
    order = list(ChangeKind)
    return sorted(
        differences, key=lambda change: (change.resource == "group", order.index(change.kind))
    )


def owned_names(groups: Iterable[str], names: Iterable[str]) -> Iterator[str]:
    """The names that a worker gives to topics of these groups."""
    ours = tuple(groups)
    for name in names:
        for group in ours:
            if is_tier_topic(group, name) or name in (
                own_topic(group),
                control_topic(group),
                dead_topic(group),
            ):
                yield name
                break


def _topic_changes(topic: RequiredTopic, found: ExistingInfrastructure) -> Iterator[Change]:
    existing = found.topics.get(topic.name)
    if existing is None:
        yield _missing(topic, found.brokers)
        return
    declared = topic.partitions or existing.partitions
    grows = existing.partitions < declared
    if grows or (existing.partitions > declared and not topic.more_is_fine):
        why = (
            topic.purpose if grows else "partitions cannot be removed; declare the existing number"
        )
        yield Change(
            ChangeKind.DRIFT if grows else ChangeKind.REFUSED,
            *("topic", topic.name, PARTITIONS),
            now=str(existing.partitions),
            wanted=str(topic.partitions),
            why=why,
        )
    if isinstance(existing.configs, KafkaError):
        if topic.is_ours:
            yield from _replica_changes(topic, existing, {}, found.brokers)
            yield Change(ChangeKind.UNKNOWN, "topic", topic.name, why=str(existing.configs))
        return
    if topic.is_ours:
        yield from _replica_changes(topic, existing, existing.configs, found.brokers)
    for name, value in sorted(topic.configs.items()):
        entry = existing.configs.get(name)
        if entry is None:
            why = "the brokers of this cluster have no such topic setting"
            yield Change(ChangeKind.REFUSED, "topic", topic.name, name, None, value, why)
        elif not same_value(entry.value, value):
            yield Change(
                ChangeKind.DRIFT, "topic", topic.name, name, entry.value, value, topic.purpose
            )


def _missing(topic: RequiredTopic, brokers: int) -> Change:
    """The change that creates a topic; refused if the cluster has too few brokers."""
    replicas = replicas_of(topic.replication, brokers)
    if replicas > brokers:
        return Change(
            ChangeKind.REFUSED,
            *("topic", topic.name, REPLICATION_FACTOR),
            wanted=str(replicas),
            why=f"{_brokers(brokers)}; declare a replication_factor of {brokers} or less, or none",
        )
    insync = str(min_insync_of(topic.replication, replicas))
    configs = {MIN_INSYNC: insync, **topic.configs}
    return Change(
        ChangeKind.MISSING,
        *("topic", topic.name),
        wanted=None if topic.partitions is None else str(topic.partitions),
        why=f"{topic.purpose}; replicas: {replicas}, {MIN_INSYNC}: {configs[MIN_INSYNC]}",
        topic=replace(
            topic,
            configs=configs,
            replication=topic.replication._replace(replication_factor=replicas),
        ),
    )


def _replica_changes(
    topic: RequiredTopic, there: ExistingTopic, configs: Mapping[str, ConfigEntry], brokers: int
) -> Iterator[Change]:
    """Replication that is less safe than declared, or than possible if it is not declared."""
    declared = topic.replication
    replicas = replicas_of(declared, brokers)
    if there.replicas < replicas:
        yield Change(
            ChangeKind.WARNING if declared.replication_factor is None else ChangeKind.REFUSED,
            *("topic", topic.name, REPLICATION_FACTOR),
            now=str(there.replicas),
            wanted=str(replicas),
            why=f"{_brokers(brokers)}; kafka-reassign-partitions adds replicas",
        )
    entry = configs.get(MIN_INSYNC)
    if MIN_INSYNC in topic.configs or entry is None or not (entry.value or "").isdecimal():
        return
    insync = min_insync_of(declared, there.replicas)
    # A leader asks for no more than there are replicas (`Partition.effectiveMinIsr`).
    if min(int(entry.value or 0), there.replicas) < insync:
        is_declared = declared.min_insync_replicas is not None
        yield Change(
            ChangeKind.DRIFT if is_declared else ChangeKind.WARNING,
            *("topic", topic.name, MIN_INSYNC),
            now=entry.value,
            wanted=str(insync),
            why=topic.purpose
            if is_declared
            else "records that only one replica confirmed can be lost with its broker",
        )


def _brokers(count: int) -> str:
    return "the cluster has one broker" if count == 1 else f"the cluster has {count} brokers"


def _group_changes(group: RequiredGroup, found: ExistingInfrastructure) -> Iterator[Change]:
    existing = found.groups[group.group]
    if isinstance(existing, KafkaError):
        yield Change(ChangeKind.UNKNOWN, "group", group.group, why=str(existing))
        return
    for name, value in sorted(group.configs.items()):
        entry = existing.get(name)
        if entry is None:
            if name not in group.optional:
                why = "the brokers of this cluster have no such group setting"
                yield Change(ChangeKind.REFUSED, "group", group.group, name, None, value, why)
        elif not same_value(entry.value, value):
            is_set = entry.source is ConfigSource.GROUP
            kind = ChangeKind.DRIFT if is_set else ChangeKind.MISSING
            why = "" if is_set else "not set for this group"
            yield Change(kind, "group", group.group, name, entry.value, value, why)


def _surplus(wanted: RequiredInfrastructure, found: ExistingInfrastructure) -> Iterator[Change]:
    declared = {topic.name for topic in wanted.topics}
    for name, topic in sorted(found.topics.items()):
        if name not in declared:
            holds = "" if topic.records is None else f"holds {topic.records:,} records"
            yield Change(ChangeKind.SURPLUS, "topic", name, now=str(topic.partitions), why=holds)


def same_value(now: str | None, wanted: str) -> bool:
    """Whether a setting has this value; the case of ``true`` and ``false`` does not matter."""
    if now is None:
        return False
    return now == wanted or now.lower() == wanted.lower() in ("true", "false")
