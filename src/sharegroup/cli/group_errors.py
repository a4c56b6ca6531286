"""What a broker refuses about a group, with what a person would ask next."""

from __future__ import annotations

from sharegroup.client.admin import AdminClient
from sharegroup.client.admin_types import ShareGroupDescription
from sharegroup.errors import GroupIdNotFound, KafkaError, NonEmptyGroup


async def explained(admin: AdminClient, group_id: str, error: KafkaError) -> KafkaError:
    """The error with what a person asks next: who the members are, what type the group is."""
    if isinstance(error, NonEmptyGroup):
        group = (await admin.describe_share_groups([group_id]))[group_id]
        if isinstance(group, ShareGroupDescription):
            members = ", ".join(f"{one.client_id}@{one.host}" for one in group.members)
            return NonEmptyGroup(f"group {group_id!r} has the members {members}")
    if isinstance(error, GroupIdNotFound):
        for listed in await admin.list_groups():
            if listed.group_id == group_id:
                return GroupIdNotFound(
                    f"group {group_id!r} is a {listed.type} group, not a share group"
                )
        return GroupIdNotFound(f"there is no group {group_id!r}")
    return error
