"""Applies changes to a cluster, and prepares it when a worker starts.

Workers of one application often start at the same time, so another worker may create a topic first.
A topic that exists already therefore counts as created.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.types import BROKER_DEFAULT, AlterConfig, ConfigResource, NewTopic
from sharegroup.errors import (
    InvalidReplicationFactor,
    KafkaError,
    TopicAlreadyExists,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from sharegroup.protocol_enums import AclOperation, ResourceType
from sharegroup.schedules.schedule import REVISION_MAX
from sharegroup.schedules.schedule_client import ScheduleNotFound
from sharegroup.worker.events import Event
from sharegroup.worker.infrastructure.asking import found, visible
from sharegroup.worker.infrastructure.changes import PARTITIONS, Change, ChangeKind, changes
from sharegroup.worker.infrastructure.rights import (
    SchedulesNeed,
    acl_changes,
    acls_of,
    needed as needed_rights,
    refusal,
)
from sharegroup.worker.infrastructure.schedule_changes import SCHEDULE, schedule_changes
from sharegroup.worker.infrastructure.wanted import ANNOUNCING, wanted_by

if TYPE_CHECKING:
    from sharegroup.schedules.schedule_client import Schedules
    from sharegroup.worker.application import Application


log = logging.getLogger(__name__)

SETTABLE = (ChangeKind.MISSING, ChangeKind.DRIFT)


class Applied(NamedTuple):
    """A change and its result; ``error`` is None if it was made."""

    change: Change
    error: KafkaError | None


async def plan(
    app: Application,
    admin: AdminClient,
    *,
    former: Iterable[str] = (),
    acls_for: str | None = None,
    schedules: Schedules | None = None,
) -> list[Change]:
    """Determine the changes that make the cluster match the application's declarations.

    ``former`` has groups that are no longer declared, whose topics are listed as surplus.  If
    ``acls_for`` names the user of the workers, the ACLs that it needs are declarations, too.
    ``schedules`` are those of the application that are stored; None compares no schedules.
    """
    needed = wanted_by(app)
    planned = changes(needed, await found(admin, needed, former=former))
    if acls_for is not None:
        planned += await acl_changes(acls_of(app), admin, acls_for)
    if schedules is not None:
        stored = (await schedules.list()).schedules
        # In a thread, because a payload of a schema registry is encoded for the comparison.
        planned += await asyncio.to_thread(schedule_changes, app.schedule_list, stored)
    return planned


async def apply(
    admin: AdminClient,
    planned: Sequence[Change],
    *,
    prune: bool = False,
    schedules: Schedules | None = None,
) -> list[Applied]:
    """Make the changes that are possible; deletes topics and schedules only with ``prune``."""
    done: list[Applied] = []
    created = [difference for difference in planned if difference.topic is not None]
    if created:
        done += await _create(admin, created)
        await visible(admin, [change for change, error in done if error is None])
    grown = [
        difference
        for difference in planned
        if difference.setting == PARTITIONS and difference.kind is ChangeKind.DRIFT
    ]
    if grown:
        counts = {difference.name: int(difference.wanted or 0) for difference in grown}
        results = await admin.create_partitions(counts)
        done += [Applied(difference, results[difference.name]) for difference in grown]
    for resource in (ResourceType.TOPIC, ResourceType.GROUP):
        # Topics first: a group's dead-letter topic must allow it before the group names it.
        done += await _set(admin, resource, planned)
    done += await _create_acls(admin, planned)
    surplus = [difference for difference in planned if difference.kind is ChangeKind.SURPLUS]
    if prune and schedules is not None:
        removed = [difference for difference in surplus if difference.resource == SCHEDULE]
        done += [await _remove(schedules, difference) for difference in removed]
    deleted = [difference for difference in surplus if difference.resource != SCHEDULE]
    if deleted and prune:
        # Last, so a failure before has deleted nothing.
        deletions = await admin.delete_topics([difference.name for difference in deleted])
        done += [
            Applied(difference, _unless(deletions[difference.name], UnknownTopicOrPartition))
            for difference in deleted
        ]
    made = [
        change
        for change, error in done
        if error is None and change.acl is None and change.resource != SCHEDULE
    ]
    await visible(admin, made)
    return done


async def prepare(
    app: Application, admin: AdminClient, *, only_sends: bool = False
) -> list[Change]:
    """Create missing topics and settings, report differences, and return the changes made.

    Raises the error of a topic that cannot be created, because its handler would wait forever.
    A setting that cannot be read or set is reported and left alone, and a process that cannot
    announce itself says so.  So are topics that this user
    may neither see nor create, if the application ``only_sends``.
    """
    needed = wanted_by(app, announced=not only_sends)
    existing = await found(admin, needed)
    differences = [
        difference
        for difference in changes(needed, existing)
        if difference.kind is not ChangeKind.SURPLUS
    ]
    for change in differences:
        if change.is_impossible:
            raise InvalidReplicationFactor(str(change))
        if change.kind not in (ChangeKind.MISSING, ChangeKind.UNKNOWN):
            _tell(app, "infrastructure.drift", change)
    _tell_unknown(app, [change for change in differences if change.kind is ChangeKind.UNKNOWN])
    made = []
    unseen: list[Change] = []
    for change, error in await apply(
        admin, [difference for difference in differences if difference.kind is ChangeKind.MISSING]
    ):
        if error is None:
            made.append(change)
            _tell(app, "infrastructure.created", change)
        elif change.topic is not None and change.topic.purpose == ANNOUNCING:
            pass  # The worker runs without it, and `announcer` says so.
        elif isinstance(error, TopicAuthorizationFailed) and change.topic is not None:
            unseen.append(replace(change, kind=ChangeKind.UNKNOWN, why=str(error)))
        elif change.topic is not None:
            raise error
        else:
            _tell(app, "infrastructure.drift", change, error)
    if made:
        # One line: an application of ten groups creates a hundred topics.
        log.info(
            "event=infrastructure.prepared app=%s topics_created=%d settings_made=%d",
            app.name,
            sum(change.topic is not None for change in made),
            sum(change.is_setting for change in made),
        )
    if only_sends:
        _tell_unknown(app, unseen)
    elif unseen:
        raise await _not_created(app, admin, unseen)
    return made


async def _remove(schedules: Schedules, surplus: Change) -> Applied:
    """Remove a schedule that is no longer declared."""
    try:
        await schedules.remove(surplus.name, revision=int(surplus.now or REVISION_MAX))
    except ScheduleNotFound:
        return Applied(surplus, None)  # Another one has removed it.
    except KafkaError as error:
        return Applied(surplus, error)
    return Applied(surplus, None)


async def _not_created(
    app: Application, admin: AdminClient, planned: Sequence[Change]
) -> KafkaError:
    """The error for topics that this user may not create: missing, or not visible."""
    described = await admin.describe_topics([change.name for change in planned])
    for change in planned:
        if isinstance(described[change.name], UnknownTopicOrPartition):
            return TopicAuthorizationFailed(change.why)
    rights = needed_rights(app.route_list, SchedulesNeed.of(app))
    missing = {
        refused.name: rights.get(refused.name, frozenset({AclOperation.READ}))
        for refused in planned
    }
    return TopicAuthorizationFailed(refusal(missing, admin.principal, or_create=True))


async def _create(admin: AdminClient, planned: Sequence[Change]) -> list[Applied]:
    new = [
        NewTopic(
            topic.name,
            num_partitions=topic.partitions or BROKER_DEFAULT,
            replication_factor=topic.replication.replication_factor or BROKER_DEFAULT,
            configs=topic.configs,
        )
        for topic in (change.topic for change in planned)
        if topic is not None
    ]
    results = await admin.create_topics(new)
    return [
        # Another worker that starts at the same time may have created it.
        Applied(change, _unless(results[change.name], TopicAlreadyExists))
        for change in planned
    ]


async def _create_acls(admin: AdminClient, planned: Sequence[Change]) -> list[Applied]:
    missing = {
        change.acl: change
        for change in planned
        if change.acl is not None and change.kind is ChangeKind.MISSING
    }
    results = await admin.create_acls(missing) if missing else {}
    return [Applied(missing[acl], error) for acl, error in results.items()]


async def _set(
    admin: AdminClient, resource: ResourceType, planned: Sequence[Change]
) -> list[Applied]:
    """Set configs of topics or of groups, one by one where necessary.

    A request sets all configs of a resource or none.  An invalid config must not prevent the others
    from being set, so after an error they are set in separate requests.
    """
    by_name: dict[str, list[Change]] = {}
    for change in planned:
        if (
            change.is_setting
            and change.kind in SETTABLE
            and change.resource == resource.name.lower()
        ):
            by_name.setdefault(change.name, []).append(change)
    done: list[Applied] = []
    for change, error in await _set_together(admin, resource, by_name) if by_name else ():
        if error is not None and len(by_name[change.name]) > 1:
            done += await _set_together(admin, resource, {change.name: [change]})
        else:
            done.append(Applied(change, error))
    return done


async def _set_together(
    admin: AdminClient, resource: ResourceType, by_name: Mapping[str, Sequence[Change]]
) -> list[Applied]:
    results = await admin.incremental_alter_configs(
        {
            ConfigResource(resource, name): [
                AlterConfig(change.setting or "", change.wanted) for change in settings
            ]
            for name, settings in by_name.items()
        }
    )
    return [
        Applied(change, results[ConfigResource(resource, name)])
        for name, settings in by_name.items()
        for change in settings
    ]


def _unless(error: KafkaError | None, fine: type[KafkaError]) -> KafkaError | None:
    return None if isinstance(error, fine) else error


def _tell_unknown(app: Application, planned: Sequence[Change]) -> None:
    """Report unknown resources in one event, because limited rights are not a problem."""
    if planned and app.events.wants("infrastructure.unknown"):
        names = ", ".join(f"{change.resource} {change.name}" for change in planned)
        details = {"of": names, "why": planned[0].why}
        app.events.tell(Event("infrastructure.unknown", details=details))


def _tell(app: Application, name: str, change: Change, error: KafkaError | None = None) -> None:
    if app.events.wants(name):
        group = change.name if change.resource == "group" else ""
        topic = change.name if change.resource == "topic" else ""
        facts = {"setting": change.setting, "was": change.now, "declared": change.wanted}
        details = {fact: value for fact, value in facts.items() if value is not None}
        if change.why:
            details["why"] = change.why
        app.events.tell(Event(name, group=group, topic=topic, error=error, details=details))
