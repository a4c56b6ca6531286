"""Checks at the start of a worker whether its user has the rights (ACL operations) that it needs.

Without the check, a missing right causes an error only with the first retry or dead letter, maybe
days after the start.  Brokers report the operations that a user may perform on each topic that it
may describe.  A user cannot use a topic that it may not describe.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Self

from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.types import AclBinding, AclBindingFilter, TopicDescription
from sharegroup.dead_letters.topics import own_topic
from sharegroup.errors import (
    AuthorizationException,
    GroupAuthorizationFailed,
    KafkaError,
    RequestTimedOut,
    SecurityDisabled,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from sharegroup.fleet.fleet_topics import commands_topic, workers_topic
from sharegroup.protocol_enums import AclOperation, AclPatternType, AclPermission, AclResourceType
from sharegroup.schedules.schedule import owners_group, schedules_topic
from sharegroup.waiting.retry_topics import scheduler_group
from sharegroup.worker.application import Application
from sharegroup.worker.dead_letters import letters_topic
from sharegroup.worker.declarations.replies import replies_topic
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.infrastructure.changes import Change, ChangeKind
from sharegroup.worker.retrying.postponer import retry_topics

log = logging.getLogger(__name__)


# The ACLs that the user of a worker needs, as docs/clusters.md lists them.
#
# Those that a cluster lacks are changes. ACLs that deny are not considered: they may be meant.


LITERAL, PREFIXED = AclPatternType.LITERAL, AclPatternType.PREFIXED
TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
IDS = AclResourceType.TRANSACTIONAL_ID


class RequiredAcl(NamedTuple):
    """An operation that the user of a worker must be allowed."""

    operation: AclOperation
    resource_type: AclResourceType
    name: str
    pattern: AclPatternType
    why: str


class SchedulesNeed(NamedTuple):
    """What the schedules of an application need."""

    app_name: str
    topics: tuple[str, ...]
    """The topics of their runs; empty without schedules."""

    @classmethod
    def of(cls, app: Application) -> Self:
        """Return what the schedules of this application need."""
        topics = sorted({schedule.topic for schedule in app.schedule_list})
        return cls(app.name, tuple(topics))


NO_SCHEDULES = SchedulesNeed("", ())


def required_acls(
    routes: Iterable[Route],
    schedules: SchedulesNeed = NO_SCHEDULES,
    announced: str | None = None,
) -> list[RequiredAcl]:
    """Return the ACLs for workers that prepare nothing, each once, in the order of the routes.

    The retry topics have one prefix, so tiers may change without new ACLs.  ``announced`` is the
    name of an application whose workers announce themselves.
    """
    routes = tuple(routes)
    of_routes = [acl for route in routes for acl in _of_route(route)]
    if any(route.replies for route in routes):
        of_routes += _of_replies(replies_topic(schedules.app_name))
    of_fleet = () if announced is None else (*_of_announcing(announced),)
    if announced is not None and divides_rates(routes):
        topic, why = workers_topic(announced), "to divide rate limits"
        of_fleet = (*of_fleet, RequiredAcl(AclOperation.READ, TOPIC, topic, LITERAL, why))
    return list(dict.fromkeys((*of_routes, *_of_schedules(schedules), *of_fleet)))


def divides_rates(routes: Iterable[Route]) -> bool:
    """Whether a rate limit of these routes is divided by the processes of the fleet."""
    limits = (route.rate_limit for route in routes)
    return any(limit is not None and limit.shared == "fleet" for limit in limits)


def acls_of(app: Application) -> list[RequiredAcl]:
    """Return the ACLs for workers of an application that prepare nothing."""
    announced = app.name if app.announce else None
    return required_acls(app.route_list, SchedulesNeed.of(app), announced)


async def acl_changes(
    required: Sequence[RequiredAcl], admin: AdminClient, principal: str
) -> list[Change]:
    """Return a change for each ACL that the user of the workers needs and does not have.

    They are unknown if the cluster has no ACLs, or if the user of ``admin`` may not see them.
    """
    try:
        existing = await admin.describe_acls(AclBindingFilter(permission=AclPermission.ALLOW))
    except (AuthorizationException, SecurityDisabled) as error:
        return [_change(ChangeKind.UNKNOWN, acl, principal, str(error)) for acl in required]
    theirs = [acl for acl in existing if acl.principal in (principal, "User:*") and acl.host == "*"]
    return [
        _change(ChangeKind.MISSING, acl, principal, acl.why)
        for acl in required
        if not any(_covers(found, acl) for found in theirs)
    ]


def _covers(found: AclBinding, wanted: RequiredAcl) -> bool:
    """Return whether an ACL allows all that another one would."""
    if found.resource_type is not wanted.resource_type:
        return False
    if found.operation not in (wanted.operation, AclOperation.ALL):
        return False
    if found.pattern_type is PREFIXED:
        return wanted.name.startswith(found.name)
    return found.name == "*" or (found.name == wanted.name and wanted.pattern is LITERAL)


def _change(kind: ChangeKind, acl: RequiredAcl, principal: str, why: str) -> Change:
    binding = AclBinding(
        acl.resource_type, acl.name, principal, acl.operation, pattern_type=acl.pattern
    )
    setting = f"{acl.operation.name} {acl.resource_type.name} {acl.pattern.name}"
    return Change(kind, "acl", acl.name, setting=setting, wanted=principal, why=why, acl=binding)


def _of_route(route: Route) -> Iterator[RequiredAcl]:
    for topic in route.topics:
        yield RequiredAcl(AclOperation.READ, TOPIC, topic, LITERAL, "records")
    if route.to is not None:
        yield RequiredAcl(AclOperation.WRITE, TOPIC, route.to, LITERAL, "what the handler returns")
    yield RequiredAcl(AclOperation.READ, GROUP, route.group, LITERAL, "to be a member")
    if route.retry is not None:
        retries = own_topic(route.group)
        for operation in (AclOperation.READ, AclOperation.WRITE):
            yield RequiredAcl(operation, TOPIC, retries, LITERAL, "due records")
            yield RequiredAcl(operation, TOPIC, f"{retries}.", PREFIXED, "waiting records")
        scheduler = scheduler_group(route.group)
        yield RequiredAcl(AclOperation.READ, GROUP, scheduler, LITERAL, "to move due records")
        if route.steering:
            ids = f"{scheduler}."
            yield RequiredAcl(AclOperation.WRITE, IDS, ids, PREFIXED, "to carry out commands")
    if route.exactly_once:
        ids = f"{route.group}."
        yield RequiredAcl(AclOperation.WRITE, IDS, ids, PREFIXED, "to commit in transactions")
    letters = letters_topic(route)
    if letters is not None:
        yield RequiredAcl(AclOperation.WRITE, TOPIC, letters, LITERAL, "dead letters")


def _of_replies(topic: str) -> Iterator[RequiredAcl]:
    yield RequiredAcl(AclOperation.WRITE, TOPIC, topic, LITERAL, "replies")
    yield RequiredAcl(AclOperation.READ, TOPIC, topic, LITERAL, "to ask")


def _of_announcing(app: str) -> Iterator[RequiredAcl]:
    write, read = AclOperation.WRITE, AclOperation.READ
    yield RequiredAcl(write, TOPIC, workers_topic(app), LITERAL, "to announce the process")
    yield RequiredAcl(read, TOPIC, commands_topic(app), LITERAL, "to be quieted and stopped")


def _of_schedules(need: SchedulesNeed) -> Iterator[RequiredAcl]:
    app_name, topics = need
    if not topics:
        return
    own = schedules_topic(app_name)
    for operation in (AclOperation.READ, AclOperation.WRITE):
        yield RequiredAcl(operation, TOPIC, own, LITERAL, "schedules")
    for topic in topics:
        yield RequiredAcl(AclOperation.WRITE, TOPIC, topic, LITERAL, "runs of schedules")
    yield RequiredAcl(AclOperation.READ, GROUP, owners_group(app_name), LITERAL, "to make runs")
    yield RequiredAcl(
        AclOperation.WRITE,
        *(AclResourceType.TRANSACTIONAL_ID, f"{own}.", PREFIXED),
        "to make each run once",
    )


ANSWER_SECONDS_MAX = 10.0
READ, WRITE = AclOperation.READ, AclOperation.WRITE
Rights = Mapping[str, frozenset[AclOperation]]
"""Topic: the operations that are required or missing on it."""


def needed(routes: Iterable[Route], schedules: SchedulesNeed = NO_SCHEDULES) -> Rights:
    """Return the operations that these routes and schedules need on each topic.

    Without retries, a group's own topic is not required: it has only redriven records.
    """
    rights: dict[str, frozenset[AclOperation]] = {}

    def need(topic: str, *operations: AclOperation) -> None:
        rights[topic] = rights.get(topic, frozenset()) | {*operations}

    for route in routes:
        for topic in route.topics:
            need(topic, READ)
        if route.to is not None:
            need(route.to, WRITE)
        if route.replies:  # READ is for processes that ask; a worker need not.
            need(replies_topic(schedules.app_name), WRITE)
        for retry in retry_topics(route) if route.retry is not None else ():
            need(retry.name, READ, WRITE)
        letters = letters_topic(route)
        if letters is not None:
            need(letters, WRITE)
    for topic in schedules.topics:
        need(topic, WRITE)
        need(schedules_topic(schedules.app_name), READ, WRITE)
    return rights


async def announcing_refusal(app: str, admin: AdminClient) -> str:
    """Return why a process of this application cannot announce itself; an empty text if it can.

    A broker that does not answer is no reason: heartbeats are written when it does.
    """
    rights: Rights = {acl.name: frozenset({acl.operation}) for acl in _of_announcing(app)}
    try:
        described = await admin.describe_topics(rights, include_authorized_operations=True)
    except KafkaError as error:
        log.debug("event=announce.unknown app=%s error=%r", app, error)
        return ""
    for name, topic in described.items():
        if isinstance(topic, UnknownTopicOrPartition):
            return f"topic {name!r} does not exist"
    missing = {name: _missing(rights[name], described[name]) for name in rights}
    return refusal(missing, admin.principal) if any(missing.values()) else ""


async def check_rights(
    routes: Iterable[Route], admin: AdminClient, schedules: SchedulesNeed = NO_SCHEDULES
) -> None:
    """Check the rights of the user; raises an AuthorizationException.

    The error names all missing rights.  Rights that a broker does not report count as given.  If no
    broker answers, nothing is raised, because the members wait for one.  Rights on a share group
    are checked by the broker when its members join.
    """
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            await _check(tuple(routes), admin, schedules)
    except (TimeoutError, RequestTimedOut, UnsupportedVersion) as error:
        log.warning(
            "event=rights.unknown error=%r reason='no broker reported the permissions'", error
        )


async def _check(routes: Sequence[Route], admin: AdminClient, schedules: SchedulesNeed) -> None:
    rights = needed(routes, schedules)
    described = await admin.describe_topics(rights, include_authorized_operations=True)
    missing = {name: _missing(rights[name], described[name]) for name in rights}
    if any(missing.values()):
        raise TopicAuthorizationFailed(refusal(missing, admin.principal))
    # Listing the committed offsets of a group requires DESCRIBE, which READ includes.
    groups = {route.group for route in routes}
    groups |= {scheduler_group(route.group) for route in routes if route.retry is not None}
    groups |= {owners_group(schedules.app_name)} if schedules.topics else set()
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
    await _check_transactional_ids(routes, admin, schedules)


async def _check_transactional_ids(
    routes: Sequence[Route], admin: AdminClient, schedules: SchedulesNeed
) -> None:
    # Describing a transactional id requires DESCRIBE, which WRITE includes.  None has this name.
    names = {
        f"{acl.name}rights": acl.name
        for acl in required_acls(routes, schedules)
        if acl.resource_type is IDS
    }
    answers = await admin.describe_transactions(sorted(names)) if names else {}
    closed = [
        repr(names[name])
        for name, answer in answers.items()
        if isinstance(answer, TransactionalIdAuthorizationFailed)
    ]
    if closed:
        raise TransactionalIdAuthorizationFailed(
            f"this user is not authorized for a transactional id ({admin.principal or 'the user'} "
            f"needs WRITE on transactional ids that begin with {', '.join(closed)})"
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
