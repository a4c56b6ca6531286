"""Which topic takes a group's dead letters, and whether it may.

The group names the topic, the topic says that it takes dead letters, and the broker says which
names are allowed and whether such topics may be made: three people have to agree (KIP-1191).
Everything is looked up anew each time, so a change holds at once.

Not Kafka's: a topic is not the dead-letter topic of its own records.  Whoever rejects such a
record gets its copy, rejects that, and so on for ever.  Nor is a topic that is compacted.
"""

from __future__ import annotations

from sharegroup.broker.cluster.catalog import Topic
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.broker.share.group_settings import GroupSettings
from sharegroup.errors import InvalidConfig
from sharegroup.ids import SharePartitionKey, TopicName

MADE_WITH = {
    "errors.deadletterqueue.group.enable": "true",
    # The broker's default may be LogAppendTime; letters have the time of their writing anyway.
    "message.timestamp.type": "CreateTime",
}


class DeadLetterTopics:
    """See the module's text."""

    __slots__ = ("_config", "_settings", "_topics")

    def __init__(self, config: LiveConfig, settings: GroupSettings, topics: Topics) -> None:
        self._config = config
        self._settings = settings
        self._topics = topics

    async def of(self, key: SharePartitionKey) -> Topic | None:
        """The topic for letters of this share partition, made now if it may be.

        None when the group wants none; InvalidConfig when somebody does not agree.  Names that
        begin with '__', the broker's own, are refused when they are set.
        """
        name = self._settings.dead_letter_topic(key.group_id)
        if name is None:
            return None
        self._check_name(key, name)
        topic = self._topics.catalog.find(name)
        if topic is None:
            topic = await self._make(key, name)
        if not topic.config.dead_letters:
            raise InvalidConfig(
                f"group {key.group_id!r}: topic {name!r} takes no dead letters; set "
                "errors.deadletterqueue.group.enable=true on it"
            )
        if self._topics.settings(topic).compaction is not None:
            raise InvalidConfig(
                f"group {key.group_id!r}: topic {name!r} cannot take dead letters while it is "
                "compacted, which keeps one letter of each key; set cleanup.policy=delete on it"
            )
        if topic.topic_id == key.topic_id:
            raise InvalidConfig(
                f"group {key.group_id!r}: topic {name!r} cannot take the dead letters of its own "
                "records: the group would get them again for ever; name another "
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

    async def _make(self, key: SharePartitionKey, name: TopicName) -> Topic:
        if not self._config.share_group.dead_letter_auto_create:
            raise InvalidConfig(
                f"group {key.group_id!r}: its dead-letter topic {name!r} does not exist; create it "
                "with errors.deadletterqueue.group.enable=true, or set "
                "errors.deadletterqueue.auto.create.topics.enable=true on this broker"
            )
        return await self._topics.create(
            name, partitions=self._config.server.partitions_default, settings=MADE_WITH
        )
