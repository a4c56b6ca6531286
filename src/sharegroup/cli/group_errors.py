"""What a broker refuses about a group, with what a person would ask next."""

from __future__ import annotations

from sharegroup.client.admin import AdminClient
from sharegroup.client.admin_types import ShareGroupDescription
from sharegroup.errors import GroupIdNotFound, KafkaError, NonEmptyGroup


async def refuse_unless_empty(admin: AdminClient, group_id: str) -> None:
    """Fail if the group has members or is of another type; it need not exist yet."""
    found = (await admin.describe_share_groups([group_id]))[group_id]
    if isinstance(found, GroupIdNotFound):
        if group_id in (types := await _types(admin)):
            raise _not_a_share_group(group_id, types[group_id])
    elif isinstance(found, KafkaError):
        raise found
    elif found.members:
        raise _with_members(found)


async def explained(admin: AdminClient, group_id: str, error: KafkaError) -> KafkaError:
    """The error with what a person asks next: who the members are, what type the group is."""
    if isinstance(error, NonEmptyGroup):
        group = (await admin.describe_share_groups([group_id]))[group_id]
        if isinstance(group, ShareGroupDescription):
            return _with_members(group)
    if isinstance(error, GroupIdNotFound):
        return _not_a_share_group(group_id, (await _types(admin)).get(group_id))
    return error


def _not_a_share_group(group_id: str, type_: str | None) -> GroupIdNotFound:
    """The error for a group of this type; None means that there is no such group at all."""
    if type_ is None:
        return GroupIdNotFound(f"there is no group {group_id!r}")
    return GroupIdNotFound(f"group {group_id!r} is a {type_} group, not a share group")


async def _types(admin: AdminClient) -> dict[str, str]:
    return {group.group_id: group.type for group in await admin.list_groups()}


def _with_members(group: ShareGroupDescription) -> NonEmptyGroup:
    members = ", ".join(f"{one.client_id}@{one.host}" for one in group.members)
    return NonEmptyGroup(f"group {group.group_id!r} has the members {members}")
