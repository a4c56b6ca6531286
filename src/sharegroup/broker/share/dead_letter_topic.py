"""Finds or creates the topic for a group's dead letters, and checks that it may take them.

Three configurations have to agree (KIP-1191).  The group names the topic, and the topic allows dead
letters.  The broker says which names are allowed and whether such topics may be created.
Everything is looked up each time, so a change takes effect at once.

Two rules are not Kafka's.  A topic may not be the dead-letter topic of its own records, because a
member that rejects such a record would get its copy, and so on forever.  A compacted topic takes
no dead letters.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from sharegroup.broker.access import checks as required
from sharegroup.broker.access.audit import AuditLog
from sharegroup.broker.access.authorizer import Authorizer
from sharegroup.broker.access.checks import Check, denied
from sharegroup.broker.access.peer import Peer
from sharegroup.broker.access.permission import is_allowed_on_cluster
from sharegroup.broker.access.quotas import Quotas
from sharegroup.broker.access.rights import Rights
from sharegroup.broker.clock import Clock
from sharegroup.broker.cluster.catalog import Catalog, Topic
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.broker.share.group_settings import GroupSettings
from sharegroup.core.security.principal import Principal
from sharegroup.errors import AuthorizationException, InvalidConfig
from sharegroup.ids import GroupId, SharePartitionKey, TopicName

log = logging.getLogger(__name__)


# The users on whose behalf the broker writes dead letters (ADR 0037).
#
# A dead letter has no request: a lock expires, and the broker writes. What it writes counts as the
# user who set the group's dead-letter topic. The catalog keeps this user with the setting:
#
#     when the topic is set     WRITE on it, and CREATE if the broker would create it
#     when it is used           the same again, and READ on the record's topic to copy the record
#     produce quota             a letter that exceeds it waits, and so do the next ones of this user
#
# Without an authorizer no group has such a user. A setting without a user, from an earlier version
# or from a time without an authorizer, counts as the broker's own: it has no limits.


THROTTLE_MS_MAX = 600_000
"""The longest wait after a batch; 1 MiB needs more only with a quota below 1,750 bytes a second."""


@dataclass(frozen=True, slots=True)
class DeadLetterAuthor:
    """The user of one group's dead letters, as rights and quotas see it."""

    peer: Peer
    rights: Rights
    quotas: Quotas
    client_id: str = ""
    """The quotas of client ids do not apply, because the letters come from none."""

    @property
    def limited_user(self) -> Principal | None:
        """The user who may hold a part of what all users share; None for a super user."""
        return None if self.rights.is_unlimited else self.peer.principal

    def allows(self, check: Check, name: str) -> bool:
        """Return whether the user may perform the operation on a resource."""
        return self.rights.may_see(check.operation, check.resource_type, name)

    def creates(self, partitions: int) -> None:
        """Count a topic for the user's quota; raise ThrottlingQuotaExceeded if it is used up."""
        self.quotas.mutations(self, is_strict=True).record(partitions)


class DeadLetterAuthors:
    """Finds the users of the groups' dead letters, and reports what they may not write."""

    __slots__ = ("_audit", "_authorizer", "_catalog", "_clock", "_quotas", "_until_ms")

    def __init__(
        self,
        catalog: Catalog,
        authorizer: Authorizer,
        quotas: Quotas,
        audit: AuditLog,
        clock: Clock,
    ) -> None:
        self._catalog = catalog
        self._authorizer = authorizer
        self._quotas = quotas
        self._audit = audit
        self._clock = clock
        self._until_ms: dict[Principal, int] = {}
        """The users over their quota, and until when: at most those who set a group's topic."""
        unknown = catalog.groups_without_dead_letter_author()
        if unknown:
            log.warning(
                "event=dead_letter_topics_without_user groups=%d first=%r effect='their letters "
                "count as the broker itself: no ACL and no quota applies' action='set "
                "errors.deadletterqueue.topic.name of these groups again'",
                len(unknown),
                unknown[0],
            )

    def of(self, group_id: GroupId) -> DeadLetterAuthor | None:
        """Return the user of a group's dead letters; None for the broker itself."""
        author = self._catalog.dead_letter_author(group_id)
        if author is None:
            return None
        # The rights are those of now: one that was taken away ends the letters at once (ADR 0037).
        peer = Peer(author.host, principal=author.principal)
        return DeadLetterAuthor(peer, self._authorizer.rights_of(peer), self._quotas)

    def throttle_ms(self, author: DeadLetterAuthor) -> int:
        """Return the time for which letters must wait, because of the user's produce quota."""
        until_ms = self._until_ms.get(author.peer.principal)
        if until_ms is None:
            return 0
        if (left_ms := until_ms - self._clock.now_ms()) <= 0 or not self._quotas.is_on:
            del self._until_ms[author.peer.principal]
            return 0
        return left_ms

    def wrote(self, author: DeadLetterAuthor, size: int) -> None:
        """Count the bytes of a batch for the user's produce quota, as those of a request."""
        if not self._quotas.is_on:
            return
        throttle_ms = min(self._quotas.produced(author, size), THROTTLE_MS_MAX)
        if throttle_ms:
            self._until_ms[author.peer.principal] = self._clock.now_ms() + throttle_ms

    def report(self, group_id: GroupId, error: AuthorizationException, records: int) -> None:
        """Log that records were archived without letters, with a rate for each user."""
        author = self._catalog.dead_letter_author(group_id)
        if author is not None:
            self._audit.dead_letters_refused(author, group_id, str(error), records)


def check_write(rights: Rights, group_id: GroupId, name: TopicName, *, creates: bool) -> None:
    """Raise the error if a user may not have dead letters written to a topic.

    ``creates`` says whether the broker would create the topic.
    """
    error: AuthorizationException | None = None
    for check in (required.WRITE_TOPICS, required.CREATE_TOPICS)[: 1 + creates]:
        if rights.may_see(check.operation, check.resource_type, name):
            continue
        # As in Kafka, CREATE on the cluster is CREATE on every topic.
        if check is required.CREATE_TOPICS and is_allowed_on_cluster(
            rights, required.CREATE_IN_CLUSTER, is_audited=False
        ):
            continue
        error = denied(check.operation, check.resource_type, name)
        break
    if error is not None:
        raise type(error)(
            f"group {group_id!r}: dead letters are written with the rights of the user who sets "
            f"errors.deadletterqueue.topic.name: {error}"
        )


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
