"""Adds the likely cause to a broker's errors about groups."""

from __future__ import annotations

from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.types import ShareGroupDescription
from sharegroup.errors import GroupIdNotFound, KafkaError, NonEmptyGroup


async def explained(admin: AdminClient, group_id: str, error: KafkaError) -> KafkaError:
    """Return the error with its cause: the members of the group, or the type of the group."""
    if isinstance(error, NonEmptyGroup):
        group = (await admin.describe_share_groups([group_id]))[group_id]
        if isinstance(group, ShareGroupDescription):
            members = ", ".join(f"{member.client_id}@{member.host}" for member in group.members)
            return NonEmptyGroup(f"group {group_id!r} has the members {members}")
    if isinstance(error, GroupIdNotFound):
        for listed in await admin.list_groups():
            if listed.group_id == group_id:
                return GroupIdNotFound(
                    f"group {group_id!r} is a {listed.type} group, not a share group"
                )
        return GroupIdNotFound(f"there is no group {group_id!r}")
    return error
