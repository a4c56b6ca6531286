"""The subscription of a plain consumer, and the watch over its topics.

The watch keeps the metadata of the topics up to date.  It asks for topics that are new, outdated
after an error, or older than ``metadata_max_age_ms``.  A topic that does not exist yet, and one
with a leaderless partition, is asked for again after a pause.  For a pattern it lists all topics of
the cluster.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sharegroup.client.net.cluster import NO_LEADER, Cluster, Topic
from sharegroup.client.net.refusals import may_pass
from sharegroup.client.settings.plain_consumer_config import ConsumerConfig
from sharegroup.client.together import event_within
from sharegroup.errors import KafkaError, UnknownTopicOrPartition

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TopicSubscription:
    """Names of topics or a pattern; without any of them this is no subscription."""

    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    """A pattern that this client applies to the names of all topics."""
    broker_pattern: str | None = None
    """A pattern in RE2 syntax that the group coordinator applies (KIP-848)."""

    def __bool__(self) -> bool:
        return bool(self.topics or self.pattern is not None or self.broker_pattern is not None)

    def matching(self, names: Iterable[str]) -> frozenset[str]:
        """Return those of these topics that the subscription has."""
        if self.pattern is not None:
            # As Java's `Matcher.matches`, by which a pattern has to fit the whole name.
            matches = self.pattern.fullmatch
            return frozenset(name for name in names if matches(name))
        return self.topics.intersection(names)


class TopicWatch:
    """The topics that a consumer subscribes to, is assigned, or assigns as the group's leader."""

    def __init__(
        self, cluster: Cluster, config: ConsumerConfig, *, changed: Callable[[], None]
    ) -> None:
        self._cluster = cluster
        self._creates = config.allow_auto_create_topics
        self._changed = changed
        self._subscription = TopicSubscription()
        self._assigned: frozenset[str] = frozenset()
        self._of_group: frozenset[str] = frozenset()
        self._matching: frozenset[str] = frozenset()
        self._listed_at: float | None = None
        self._wake = asyncio.Event()
        self.failure: KafkaError | None = None
        """An error to report to the application once."""

    @property
    def subscribed(self) -> frozenset[str]:
        """The topics of the subscription; for a pattern those that exist and match it."""
        if self._subscription.pattern is None:
            return self._subscription.topics
        return self._matching

    @property
    def is_listed(self) -> bool:
        """Whether the topics of the subscription are known; for a pattern this takes a request."""
        return self._subscription.pattern is None or self._listed_at is not None

    def subscribe(self, subscription: TopicSubscription) -> None:
        """Watch the topics of this subscription instead of those of the last one."""
        self._subscription = subscription
        self._listed_at, self._matching = None, frozenset()
        self._wake.set()

    def assign(self, topics: Iterable[str]) -> None:
        """Watch these topics, because their partitions are assigned."""
        self._assigned = frozenset(topics)
        self._wake.set()

    def watch_group(self, topics: Iterable[str]) -> None:
        """Watch the topics of all members, because this member assigns them."""
        self._of_group = frozenset(topics)
        self._wake.set()

    def counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the number of partitions of those topics that exist, as last known."""
        return {
            name: len(topic.leaders)
            for name in topics
            if (topic := self._cluster.last_known_topic(name)) is not None
        }

    async def refresh(self, topics: Iterable[str]) -> dict[str, Topic | KafkaError]:
        """Ask for the metadata of these topics now; a topic that does not exist may be created."""
        return await self._cluster.refresh(topics, create=self._creates)

    def wake(self) -> None:
        """Look at once for metadata that is missing or outdated."""
        self._wake.set()

    async def run(self) -> None:
        """Ask for metadata as it is needed; retry after errors."""
        backoff = self._cluster.backoff()
        while True:
            # Before the look, so that a subscription that changes during it is looked at again.
            self._wake.clear()
            try:
                is_complete = await self._look()
            except KafkaError as error:
                log.info("event=metadata.failed error=%s", error)
                is_complete = False
                if not may_pass(error):
                    self._report(error)
            if is_complete:
                backoff.reset()
                await event_within(self._wake, self._cluster.config.metadata_max_age_ms / 1000)
            else:
                await asyncio.sleep(backoff.next_ms() / 1000)

    async def _look(self) -> bool:
        """Ask once for what is missing; return whether everything is known."""
        before = self._snapshot()
        if self._subscription.pattern is not None and self._is_listing_due():
            listed = await self._cluster.refresh(None)
            self._listed_at = time.monotonic()
            self._matching = self._subscription.matching(
                name
                for name, topic in listed.items()
                # As Java's consumer by default (`exclude.internal.topics`).
                if isinstance(topic, Topic) and not topic.is_internal
            )
        names = self.subscribed | self._assigned | self._of_group
        missing = {name for name in names if self._is_due(name)}
        answered = await self.refresh(missing) if missing else {}
        for name, topic in answered.items():
            # A subscription may name a topic before it is created.
            if isinstance(topic, KafkaError) and not isinstance(topic, UnknownTopicOrPartition):
                log.info("event=metadata.failed topic=%s error=%s", name, topic)
                if not may_pass(topic):
                    self._report(topic)
        if missing or self._snapshot() != before:
            self._changed()
        return not any(self._is_due(name) for name in names)

    def _is_due(self, name: str) -> bool:
        topic = self._cluster.known_topic(name)
        return topic is None or NO_LEADER in topic.leaders

    def _is_listing_due(self) -> bool:
        if self._listed_at is None:
            return True
        age_seconds = time.monotonic() - self._listed_at
        return age_seconds * 1000 >= self._cluster.config.metadata_max_age_ms

    def _snapshot(self) -> tuple[bool, dict[str, int]]:
        return self.is_listed, self.counts(self.subscribed | self._assigned | self._of_group)

    def _report(self, error: KafkaError) -> None:
        self.failure = error
        self._changed()
