"""What core's decisions about groups of KIP-848 take: topics, the patterns they match, and limits.

A pattern is matched with all topic names when a member first subscribes to it, and again when
topics were created or deleted.  That is done in slices: each name takes at most a few milliseconds,
and a pattern that takes much more time than patterns should is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sharegroup.broker.access.permission import Permission
from sharegroup.broker.cluster.catalog import Catalog
from sharegroup.broker.configuration.config import GroupConfig
from sharegroup.broker.configuration.consumer_group_config import ASSIGNOR_CLASSES
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.core.groups.modern.advance import ModernGroupLimits
from sharegroup.core.groups.modern.sizes import ModernGroupSizeLimits
from sharegroup.core.groups.share.share_group import TopicMetadata
from sharegroup.core.patterns import matching
from sharegroup.ids import TopicName
from sharegroup.steps import Steps, paced

PATTERNS_KEPT_MAX = 100
"""Patterns in the cache; the one that was used least recently is dropped."""


class CatalogTopics(Mapping[TopicName, TopicMetadata]):
    """A view of the catalog's topics by name; nothing is copied."""

    __slots__ = ("_catalog",)

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def __getitem__(self, name: TopicName) -> TopicMetadata:
        topic = self._catalog.find(name)
        if topic is None:
            raise KeyError(name)
        return TopicMetadata(topic.name, topic.topic_id, topic.partition_count)

    def __iter__(self) -> Iterator[TopicName]:
        return iter(self._catalog.names)

    def __len__(self) -> int:
        return len(self._catalog.names)


class TopicPatterns:
    """The topics that match each pattern, for the current topics of the catalog; cached."""

    __slots__ = ("_catalog", "_matches")

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._matches: dict[str, tuple[int, frozenset[TopicName]]] = {}

    def known(
        self, pattern: str, describe: Permission | None = None
    ) -> frozenset[TopicName] | None:
        """Return the topics that match a pattern; None if it must be matched first.

        If ``describe`` is given, topics that it does not allow are left out.
        """
        entry = self._matches.pop(pattern, None)
        if entry is None or entry[0] != self._catalog.topics_version:
            return None
        self._matches[pattern] = entry  # At the end: it was used most recently.
        if describe is None or describe.is_unlimited:
            return entry[1]
        return frozenset(filter(describe.allows, entry[1]))

    def match(self, patterns: Iterable[str], describe: Permission) -> Steps[None]:
        """Match patterns with all topics, and ask which of these the sender may describe.

        Raises InvalidRegularExpression for an invalid pattern.
        """
        yield from self._match(patterns)
        for pattern in () if describe.is_unlimited else patterns:
            for name, pause in paced(self.known(pattern) or ()):
                # Asked here in steps; the permission keeps the answers for `known`, which asks for
                # all at once.
                describe.allows(name)
                if pause:
                    yield

    def _match(self, patterns: Iterable[str]) -> Steps[None]:
        for pattern in patterns:
            if self.known(pattern) is None:
                version = self._catalog.topics_version
                names = yield from matching(pattern, tuple(self._catalog.names))
                topic_names = frozenset(map(TopicName, names))
                if len(self._matches) >= PATTERNS_KEPT_MAX:
                    del self._matches[next(iter(self._matches))]
                # With the version of the beginning: if topics change during the steps, the result
                # is out of date.
                self._matches[pattern] = (version, topic_names)


def modern_group_limits(config: LiveConfig, own: GroupConfig) -> ModernGroupLimits:
    """Return the limits of a group: from its own settings, or else from the broker's."""
    broker = config.modern_group
    interval_ms = own.consumer_assignment_interval_ms
    policy = broker.migration_policy.lower()
    return ModernGroupLimits(
        session_timeout_ms=own.consumer_session_timeout_ms or broker.session_timeout_ms,
        heartbeat_interval_ms=own.consumer_heartbeat_interval_ms or broker.heartbeat_interval_ms,
        members_max=broker.members_max,
        assignment_interval_ms=(
            broker.assignment_interval_ms if interval_ms is None else interval_ms
        ),
        assignors=tuple(ASSIGNOR_CLASSES.get(name, name) for name in broker.assignors),
        upgrades=policy in ("bidirectional", "upgrade"),
        downgrades=policy in ("bidirectional", "downgrade"),
        classic_members_max=config.consumer_group.members_max,
        sizes=ModernGroupSizeLimits(broker.member_topics_max, broker.groups_bytes_max),
    )
