"""What the coordinator of classic groups needs to know about groups of KIP-848.

It keeps the committed offsets of groups of both protocols.  Their members are known to the other
coordinator alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from sharegroup.ids import GroupId, TopicIdPartition

if TYPE_CHECKING:
    # Not imported at run time, because a broker without groups of KIP-848 starts faster without it.
    from sharegroup.core.groups.classic.classic_groups import Committer
    from sharegroup.core.groups.modern.group import ModernGroup


class ModernGroupView(Protocol):
    """The groups of KIP-848 (`on_demand.ModernGroups`)."""

    def has(self, group_id: GroupId) -> bool:
        """Whether a group of KIP-848 with this id exists."""

    def find(self, group_id: GroupId) -> ModernGroup | None:
        """Return the group with this id; None if there is none."""

    def check_commit(
        self,
        committer: Committer,
        partitions: Iterable[TopicIdPartition],
        *,
        api_version: int,
        is_transactional: bool = False,
    ) -> None:
        """Raise if a member may not commit offsets of these partitions."""
