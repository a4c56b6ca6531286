"""The identity of a member in commits: member id, and generation or member epoch."""

from __future__ import annotations

from dataclasses import dataclass

NO_GENERATION = -1


@dataclass(slots=True)
class MemberIdentity:
    """The current identity of a consumer in its group; the membership keeps it up to date."""

    member_id: str = ""
    epoch: int = NO_GENERATION
    """The generation or member epoch; NO_GENERATION without membership."""
    instance_id: str | None = None
    is_subscribed: bool = False
    """Whether the partitions come from the group, so only a member may commit offsets."""
    has_member_epoch: bool = False
    """Whether the epoch is a member epoch (KIP-848), which OffsetFetch carries, too."""

    @property
    def may_commit(self) -> bool:
        """Whether this is a member of the group, or commits without a membership."""
        return not self.is_subscribed or self.epoch != NO_GENERATION

    @property
    def fetch_epoch(self) -> int | None:
        """The member epoch for OffsetFetch; None if the request carries none."""
        return self.epoch if self.has_member_epoch and self.epoch > 0 else None
