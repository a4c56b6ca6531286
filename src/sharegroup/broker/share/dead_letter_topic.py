"""Finds or creates the topic for a group's dead letters, and checks that it may take them.

Three configurations have to agree (KIP-1191).  The group names the topic, and the topic allows dead
letters.  The broker says which names are allowed and whether such topics may be created.
Everything is looked up each time, so a change takes effect at once.

Two rules are not Kafka's.  A topic may not be the dead-letter topic of its own records, because a
member that rejects such a record would get its copy, and so on forever.  A compacted topic takes
no dead letters.
"""

from __future__ import annotations

from sharegroup.broker.cluster.catalog import Topic
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.broker.share.dead_letter_authors import DeadLetterAuthor, check_write
from sharegroup.broker.share.group_settings import GroupSettings
from sharegroup.errors import InvalidConfig
from sharegroup.ids import SharePartitionKey, TopicName

MADE_WITH = {
    "errors.deadletterqueue.group.enable": "true",
    # The broker's default may be LogAppendTime; letters have the time of their writing anyway.
    "message.timestamp.type": "CreateTime",
}


class DeadLetterTopics:
    """Finds or creates the dead-letter topics of groups."""

    __slots__ = ("_config", "_settings", "_topics")

    def __init__(self, config: LiveConfig, settings: GroupSettings, topics: Topics) -> None:
        self._config = config
        self._settings = settings
        self._topics = topics

    async def of(self, key: SharePartitionKey, author: DeadLetterAuthor | None) -> Topic | None:
        """Return the topic for the dead letters of this share partition; create it if allowed.

        None if the group has no dead-letter topic; InvalidConfig if a configuration does not agree;
        AuthorizationException if ``author``, the user of the letters, may not write them.
        Names that begin with '__', the broker's own, are refused when they are set.
        """
        name = self._settings.dead_letter_topic(key.group_id)
        if name is None:
            return None
        self._check_name(key, name)
        topic = self._topics.catalog.find(name)
        if author is not None:
            creates = topic is None and self._config.share_group.dead_letter_auto_create
            check_write(author.rights, key.group_id, name, creates=creates)
        if topic is None:
            topic = await self._make(key, name, author)
        if not topic.config.dead_letters:
            raise InvalidConfig(
                f"group {key.group_id!r}: topic {name!r} does not accept dead letters; set "
                "errors.deadletterqueue.group.enable=true on it"
            )
        if self._topics.settings(topic).compaction is not None:
            raise InvalidConfig(
                f"group {key.group_id!r}: topic {name!r} cannot accept dead letters while it is "
                "compacted, because compaction keeps only one dead letter of each key; set "
                "cleanup.policy=delete on it"
            )
        if topic.topic_id == key.topic_id:
            raise InvalidConfig(
                f"group {key.group_id!r}: topic {name!r} cannot accept the dead letters of its own "
                "records: the group would receive them again forever; set another "
                "errors.deadletterqueue.topic.name"
            )
        return topic

    def _check_name(self, key: SharePartitionKey, name: TopicName) -> None:
        prefix = self._config.share_group.dead_letter_prefix
        if not name.startswith(prefix):
            raise InvalidConfig(
                f"group {key.group_id!r}: the name of its dead-letter topic, {name!r}, must begin "
                f"with {prefix!r} (errors.deadletterqueue.topic.name.prefix of this broker)"
            )

    async def _make(
        self, key: SharePartitionKey, name: TopicName, author: DeadLetterAuthor | None
    ) -> Topic:
        if not self._config.share_group.dead_letter_auto_create:
            raise InvalidConfig(
                f"group {key.group_id!r}: its dead-letter topic {name!r} does not exist; create it "
                "with errors.deadletterqueue.group.enable=true, or set "
                "errors.deadletterqueue.auto.create.topics.enable=true on this broker"
            )
        partitions = self._config.server.partitions_default
        user = None if author is None else author.limited_user
        if author is not None:
            # The checks that may refuse come first, because the last line counts for the quota of
            # the user.
            self._topics.check_automatic(name, partitions, user)
            self._topics.check_new(name, partitions=partitions, settings=MADE_WITH, user=user)
            author.creates(partitions)
        return await self._topics.create(name, partitions=partitions, settings=MADE_WITH, user=user)
