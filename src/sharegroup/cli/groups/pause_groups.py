"""``sharegroup groups pause`` and ``resume``: stop and start delivery to a share group.

The state is the group's setting `PAUSED`, so it is durable and needs the right ALTER_CONFIGS on the
group.  Apache Kafka has no such setting (KIP-1249 wishes for one).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

import click

from sharegroup.cli.common.cluster_access import (
    Access,
    ask,
    cluster_options,
    json_option,
    refuse_errors,
)
from sharegroup.cli.common.name_arguments import naming_many
from sharegroup.cli.common.output import complain, done
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.types import (
    AlterConfig,
    ConfigEntry,
    ConfigResource,
    ConsumerGroupDescription,
)
from sharegroup.errors import GroupIdNotFound, InvalidConfig, InvalidGroupId, KafkaError
from sharegroup.protocol_enums import ResourceType

PAUSED = "sharegroup.paused"
TELL_PAUSED_SECONDS = 1.0
"""A verb that only mentions the pause waits no longer for it."""

Outcome = dict[str, KafkaError | None]


@click.command("pause")
@naming_many("group")
@cluster_options
@json_option
def pause(*, groups: tuple[str, ...], access: Access, as_json: bool) -> None:
    """Deliver no more records to share groups until they are resumed.

    Members stay in the group and wait.  What they hold already they can still acknowledge, release
    and renew, and locks still expire.  The group stays paused when the broker restarts.

    Apache Kafka cannot pause a share group; there, stop its members instead.
    """
    _switch(groups, access, paused=True, as_json=as_json)


@click.command("resume")
@naming_many("group")
@cluster_options
@json_option
def resume(*, groups: tuple[str, ...], access: Access, as_json: bool) -> None:
    """Deliver records to paused share groups again.

    Waiting members receive records at once.
    """
    _switch(groups, access, paused=False, as_json=as_json)


async def tell_paused(admin: AdminClient, names: Iterable[str]) -> None:
    """Say on standard error which of these share groups are paused, if the user may know it.

    Otherwise nobody would look for a forgotten pause behind a group that receives nothing.
    """
    resources = [ConfigResource(ResourceType.GROUP, name) for name in names]
    found: Mapping[ConfigResource, Mapping[str, ConfigEntry] | KafkaError] = {}
    # What was asked for is shown in any case, and soon.
    with suppress(KafkaError):
        if resources:
            found = await admin.describe_configs(
                resources, names=[PAUSED], timeout=TELL_PAUSED_SECONDS
            )
    for resource, entries in found.items():
        if isinstance(entries, KafkaError):
            continue  # Without DESCRIBE_CONFIGS. Apache Kafka has no such entry.
        if PAUSED in entries and entries[PAUSED].value == "true":
            complain(
                f"group {resource.name!r} is paused and delivers no records; "
                f"sharegroup groups resume {resource.name} ends that"
            )


def _switch(groups: tuple[str, ...], access: Access, *, paused: bool, as_json: bool) -> None:
    results, missing = ask(access, lambda admin: _alter(admin, groups, paused=paused))
    changed = [name for name, error in results.items() if error is None]
    if changed or as_json:
        verb = "paused" if paused else "resumed"
        failed = {name: str(error) for name, error in results.items() if error is not None}
        text = f"{verb} group {', '.join(changed)}"
        done(text, as_json=as_json, **{verb: changed, "failed": failed})
    for name in missing:
        complain(f"group {name!r} does not exist yet; the setting is kept for it")
    refuse_errors(results)


async def _alter(
    admin: AdminClient, names: Iterable[str], *, paused: bool
) -> tuple[Outcome, list[str]]:
    """Set the setting of groups; return the results, and the changed groups that do not exist."""
    described = await admin.describe_share_and_consumer_groups(names)
    results: Outcome = {}
    for name, found in described.items():
        if isinstance(found, ConsumerGroupDescription):
            results[name] = InvalidGroupId(
                f"group {name!r} is a consumer group; only share groups can be paused by the broker"
            )
        elif isinstance(found, KafkaError) and not isinstance(found, GroupIdNotFound):
            results[name] = found
    resources = {
        name: ConfigResource(ResourceType.GROUP, name) for name in described if name not in results
    }
    change = [AlterConfig(PAUSED, "true" if paused else "false")]
    altered = await admin.incremental_alter_configs(dict.fromkeys(resources.values(), change))
    results |= {name: _explained(name, altered[key]) for name, key in resources.items()}
    missing = [
        name
        for name, found in described.items()
        if isinstance(found, GroupIdNotFound) and results[name] is None
    ]
    return results, missing


def _explained(name: str, error: KafkaError | None) -> KafkaError | None:
    """Say what the refusal of the setting's name means."""
    if isinstance(error, InvalidConfig):
        return InvalidConfig(
            f"group {name!r}: this broker has no setting {PAUSED} ({error}). Apache Kafka cannot "
            "pause a share group: stop its members instead"
        )
    return error
