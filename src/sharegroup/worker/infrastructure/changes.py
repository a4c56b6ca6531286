"""The difference between what routes need and what a cluster has, as a list of changes.

Pure: `found` asked the cluster, `applying` carries out.  What nobody declared is not looked at,
and what is declared is never taken away from: a topic with more partitions than declared is a
line that says so, because Kafka can't take partitions away and nobody should delete a topic for
the sake of a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from sharegroup.client.admin_types import ConfigEntry, ConfigSource
from sharegroup.worker.declared.names import dead_topic, is_tier_topic, own_topic
from sharegroup.worker.infrastructure.wanted import Wanted, WantedGroup, WantedTopic

PARTITIONS = "partitions"


class Kind(StrEnum):
    """What a change means to whoever runs the application."""

    MISSING = "missing"
    """Was never made: made at the start of a worker, too."""
    DRIFT = "drift"
    """Is not as declared: changed by `apply`, and by nobody else."""
    SURPLUS = "surplus"
    """Was the application's and is declared no longer: deleted by ``apply --prune``."""
    REFUSED = "refused"
    """Can't be made so; a person has to decide."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing to change."""

    kind: Kind
    resource: str
    """``topic`` or ``group``."""
    name: str
    setting: str | None = None
    """``partitions``, or the name of a config; None: the topic as a whole."""
    now: str | None = None
    """None: it is not there, or is the broker's default that nobody can see."""
    wanted: str | None = None
    """None: the broker's default, or that it is gone."""
    why: str = ""
    topic: WantedTopic | None = None
    """The topic to create."""

    @property
    def is_setting(self) -> bool:
        """Whether it is about a config, which can be set."""
        return self.setting is not None and self.setting != PARTITIONS

    def __str__(self) -> str:
        what = f"{self.resource} {self.name}" + (f" {self.setting}" if self.setting else "")
        values = f" ({self.now}; declared: {self.wanted})" if self.setting else ""
        return f"{what}: {self.kind}{values}" + (f", {self.why}" if self.why else "")


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic that is there; ``records`` counts what it holds, where that was asked for."""

    partitions: int
    configs: Mapping[str, ConfigEntry]
    records: int | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What a cluster has of what the routes need, and of what would be theirs by name."""

    topics: Mapping[str, FoundTopic]
    groups: Mapping[str, Mapping[str, ConfigEntry]]


def changes(wanted: Wanted, found: Found) -> list[Change]:
    """What is to be done, in the order in which it can be done."""
    every = [
        *(change for topic in wanted.topics for change in _topic_changes(topic, found)),
        *(change for group in wanted.groups for change in _group_changes(group, found)),
        *_surplus(wanted, found),
    ]
    order = list(Kind)
    return sorted(every, key=lambda one: (one.resource == "group", order.index(one.kind)))


def owned_names(groups: Iterable[str], names: Iterable[str]) -> Iterator[str]:
    """Those of the names that a worker of these groups would have given."""
    ours = tuple(groups)
    for name in names:
        for group in ours:
            if is_tier_topic(group, name) or name in (own_topic(group), dead_topic(group)):
                yield name
                break


def _topic_changes(topic: WantedTopic, found: Found) -> Iterator[Change]:
    there = found.topics.get(topic.name)
    if there is None:
        count = None if topic.partitions is None else str(topic.partitions)
        yield Change(
            Kind.MISSING, "topic", topic.name, wanted=count, why=topic.purpose, topic=topic
        )
        return
    declared = topic.partitions or there.partitions
    grows = there.partitions < declared
    if grows or (there.partitions > declared and not topic.more_is_fine):
        why = topic.purpose if grows else "partitions can't be taken away; declare as many"
        yield Change(
            Kind.DRIFT if grows else Kind.REFUSED,
            *("topic", topic.name, PARTITIONS),
            now=str(there.partitions),
            wanted=str(topic.partitions),
            why=why,
        )
    for name, value in sorted(topic.configs.items()):
        entry = there.configs.get(name)
        if entry is None:
            why = "the brokers of this cluster know no such setting of a topic"
            yield Change(Kind.REFUSED, "topic", topic.name, name, None, value, why)
        elif not same_value(entry.value, value):
            yield Change(Kind.DRIFT, "topic", topic.name, name, entry.value, value, topic.purpose)


def _group_changes(group: WantedGroup, found: Found) -> Iterator[Change]:
    there = found.groups[group.group]
    for name, value in sorted(group.configs.items()):
        entry = there.get(name)
        if entry is None:
            if name not in group.optional:
                why = "the brokers of this cluster know no such setting of a group"
                yield Change(Kind.REFUSED, "group", group.group, name, None, value, why)
        elif not same_value(entry.value, value):
            is_set = entry.source is ConfigSource.GROUP
            kind = Kind.DRIFT if is_set else Kind.MISSING
            why = "" if is_set else "not set for this group"
            yield Change(kind, "group", group.group, name, entry.value, value, why)


def _surplus(wanted: Wanted, found: Found) -> Iterator[Change]:
    declared = {topic.name for topic in wanted.topics}
    for name, topic in sorted(found.topics.items()):
        if name not in declared:
            holds = "" if topic.records is None else f"holds {topic.records:,} records"
            yield Change(Kind.SURPLUS, "topic", name, now=str(topic.partitions), why=holds)


def same_value(now: str | None, wanted: str) -> bool:
    """Whether a setting has this value."""
    if now is None:
        return False
    return now == wanted or now.lower() == wanted.lower() in ("true", "false")
