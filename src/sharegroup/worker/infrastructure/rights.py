"""Checks at the start of a worker whether its user has the rights (ACL operations) that it needs.

Without the check, a missing right causes an error only with the first retry or dead letter, maybe
days after the start.  Brokers report the operations that a user may perform on each topic that it
may describe.  A user cannot use a topic that it may not describe.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence

from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.types import TopicDescription
from sharegroup.errors import (
    GroupAuthorizationFailed,
    KafkaError,
    RequestTimedOut,
    TopicAuthorizationFailed,
    UnsupportedVersion,
)
from sharegroup.protocol_enums import AclOperation
from sharegroup.worker.dead_letters.topics import letters_topic
from sharegroup.worker.declarations.names import scheduler_group
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.retrying.topics import topics_of as retry_topics_of

log = logging.getLogger(__name__)

ANSWER_SECONDS_MAX = 10.0
READ, WRITE = AclOperation.READ, AclOperation.WRITE
Rights = Mapping[str, frozenset[AclOperation]]
"""Topic: the operations that are required or missing on it."""


def needed(routes: Iterable[Route]) -> Rights:
    """Return the operations that these routes need on each topic.

    Without retries, a group's own topic is not required: it has only redriven records.
    """
    rights: dict[str, frozenset[AclOperation]] = {}

    def need(topic: str, *operations: AclOperation) -> None:
        rights[topic] = rights.get(topic, frozenset()) | {*operations}

    for route in routes:
        for topic in route.topics:
            need(topic, READ)
        for retry in retry_topics_of(route) if route.retry is not None else ():
            need(retry.name, READ, WRITE)
        letters = letters_topic(route)
        if letters is not None:
            need(letters, WRITE)
    return rights


async def check_rights(routes: Iterable[Route], admin: AdminClient) -> None:
    """Check the rights of the user; raises TopicAuthorizationFailed or GroupAuthorizationFailed.

    The error names all missing rights.  Rights that a broker does not report count as given.  If no
    broker answers, nothing is raised, because the members wait for one.  Rights on a share group
    are checked by the broker when its members join.
    """
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            await _check(tuple(routes), admin)
    except (TimeoutError, RequestTimedOut, UnsupportedVersion) as error:
        log.warning(
            "event=rights.unknown error=%r reason='no broker reported the permissions'", error
        )


async def _check(routes: Sequence[Route], admin: AdminClient) -> None:
    rights = needed(routes)
    described = await admin.describe_topics(rights, include_authorized_operations=True)
    missing = {name: _missing(rights[name], described[name]) for name in rights}
    if any(missing.values()):
        raise TopicAuthorizationFailed(refusal(missing, admin.principal))
    # Listing the committed offsets of a group requires DESCRIBE, which READ includes.
    groups = {route.group for route in routes}
    groups |= {scheduler_group(route.group) for route in routes if route.retry is not None}
    answers = await admin.list_consumer_group_offsets(dict.fromkeys(sorted(groups), ()))
    closed = [
        repr(group)
        for group, answer in answers.items()
        if isinstance(answer, GroupAuthorizationFailed)
    ]
    if closed:
        user = admin.principal or "the user"
        raise GroupAuthorizationFailed(
            f"this user is not authorized for a group ({user} needs READ on group "
            f"{', '.join(closed)})"
        )


def refusal(missing: Rights, principal: str | None, *, or_create: bool = False) -> str:
    """The text that says which rights to grant, by operation.

    ``or_create`` adds CREATE as an alternative, if it is not known whether the topics exist.
    """
    by_operations: dict[str, list[str]] = {}
    for name, operations in sorted(missing.items()):
        if operations:
            words = " and ".join(operation.name for operation in sorted(operations))
            by_operations.setdefault(words, []).append(repr(name))
    rights = "; ".join(
        f"{words} on topic {', '.join(names)}" for words, names in by_operations.items()
    )
    instead = "; or CREATE where it does not exist" if or_create else ""
    return (
        f"this user is not authorized for a topic ({principal or 'the user'} needs "
        f"{rights}{instead})"
    )


def _missing(
    wanted: frozenset[AclOperation], described: TopicDescription | KafkaError
) -> frozenset[AclOperation]:
    if isinstance(described, TopicAuthorizationFailed):
        return wanted
    if isinstance(described, KafkaError) or described.authorized_operations is None:
        return frozenset()
    return wanted - described.authorized_operations
