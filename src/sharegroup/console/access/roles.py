"""Roles per pattern of groups and topics, and what a user may see and change by them.

    viewer      sees the groups and topics that a grant names; values only with a right of its own
    operator    also redrives, produces, aborts and resumes jobs, steers workers and
                waiting records
    admin       also purges, resets and deletes

Patterns are those of a shell: ``*`` is any text.  All grants of a user count, but no two of them
add up to a third: a change that concerns a group and a topic needs one grant that has both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase

from sharegroup.console.access.masks import NO_MASKS, Masks


class Role(StrEnum):
    """What a user may do with the groups and topics of a grant; each includes the one before."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


class Change(StrEnum):
    """A kind of change."""

    REDRIVE = "redrive"
    PRODUCE = "produce"
    ABORT = "abort"
    RESUME = "resume"
    STEER = "steer"
    PURGE = "purge"
    RESET = "reset"
    DELETE = "delete"


NEEDED: Mapping[Change, Role] = {
    Change.REDRIVE: Role.OPERATOR,
    Change.PRODUCE: Role.OPERATOR,
    Change.ABORT: Role.OPERATOR,
    Change.RESUME: Role.OPERATOR,
    Change.STEER: Role.OPERATOR,
    Change.PURGE: Role.ADMIN,
    Change.RESET: Role.ADMIN,
    Change.DELETE: Role.ADMIN,
}
"""The least role for each kind of change."""
RANK = tuple(Role)
EVERYTHING = ("*",)


def matches(patterns: Iterable[str], name: str) -> bool:
    """Whether one of the patterns matches the whole name."""
    return any(pattern == "*" or fnmatchcase(name, pattern) for pattern in patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A role for some groups and topics."""

    role: Role = Role.VIEWER
    groups: tuple[str, ...] = EVERYTHING
    topics: tuple[str, ...] = EVERYTHING
    values: bool = False
    """Whether keys, values and headers of records of these topics are shown."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "role", Role(self.role))

    def has(self, group: str | None, topic: str | None) -> bool:
        """Whether it is about this group and this topic; None: the subject has none."""
        return (group is None or matches(self.groups, group)) and (
            topic is None or matches(self.topics, topic)
        )

    @property
    def has_every_name(self) -> bool:
        """Whether it is about all groups and all topics."""
        return "*" in self.groups and "*" in self.topics


ALL_RIGHTS = (Grant(role=Role.ADMIN, values=True),)
ONLY_LOOKS = (Grant(),)
"""The grants of users of a mounted console for whom nothing else is said: no values."""


@dataclass(frozen=True, slots=True)
class Visible:
    """The names that a user's own connection lists; all others are hidden."""

    groups: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()


NOTHING = Visible()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What one user may see and change at the moment."""

    grants: tuple[Grant, ...]
    masks: Masks = field(default=NO_MASKS)
    visible: Visible | None = None
    """None: the user has no connection of their own, so the console's is theirs."""
    allow_changes: bool = False
    show_values: bool = True

    @property
    def sees_every_name(self) -> bool:
        """Whether no group and no topic is hidden."""
        return self.visible is None and any(grant.has_every_name for grant in self.grants)

    @property
    def may_see_cluster(self) -> bool:
        """Whether ACLs, users and quotas are shown, as far as the user's connection may see them.

        The console's own connection would tell others the names that are hidden from them.
        """
        return self.visible is not None or self.sees_every_name

    def may_see_group(self, group_id: str) -> bool:
        """Whether the group is shown at all."""
        if self.visible is not None and group_id not in self.visible.groups:
            return False
        return any(matches(grant.groups, group_id) for grant in self.grants)

    def may_see_topic(self, name: str) -> bool:
        """Whether the topic is shown at all."""
        if self.visible is not None and name not in self.visible.topics:
            return False
        return any(matches(grant.topics, name) for grant in self.grants)

    def may_see_values(self, topic: str) -> bool:
        """Whether keys, values and headers of the topic's records are shown, masked by `masks`."""
        if not self.show_values or not self.may_see_topic(topic):
            return False
        return any(grant.values and matches(grant.topics, topic) for grant in self.grants)

    def masked(self, topic: str, document: object) -> object:
        """Return a JSON document of a topic's record with its masked parts replaced."""
        return self.masks.of(topic).document(document)

    def may_change(
        self, kind: Change, *, group: str | None = None, topic: str | None = None
    ) -> bool:
        """Whether the user may change this group or topic, or the topic for this group."""
        if not self.allow_changes or (group is None and topic is None):
            return False
        if group is not None and not self.may_see_group(group):
            return False
        if topic is not None and not self.may_see_topic(topic):
            return False
        least = RANK.index(NEEDED[kind])
        return any(
            RANK.index(grant.role) >= least and grant.has(group, topic) for grant in self.grants
        )

    def why_not(self, kind: Change, *, group: str | None = None, topic: str | None = None) -> str:
        """Return why `may_change` refuses, and what to do."""
        if not self.allow_changes:
            return (
                "this console only reads; start it with --allow-changes, or mount it with "
                "allow_changes=True and auth"
            )
        subject = " and ".join(
            f"{noun} {name!r}"
            for noun, name in (("group", group), ("topic", topic))
            if name is not None
        )
        return (
            f"{kind} of {subject or 'nothing'} needs the role {NEEDED[kind]}; ask for a grant "
            "in the console's file of roles"
        )


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who uses the console."""

    name: str
    grants: tuple[Grant, ...] | None = None
    """None: those that the file of roles gives to this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserGrant:
    """A grant and the users who have it, as patterns of their names."""

    users: tuple[str, ...]
    grant: Grant


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """All grants of all users, and the masks."""

    grants: tuple[UserGrant, ...]
    masks: Masks = field(default=NO_MASKS)

    @classmethod
    def of_everybody(cls, grants: tuple[Grant, ...]) -> Roles:
        """Return roles that give these grants to every user."""
        return cls(grants=tuple(UserGrant(users=EVERYTHING, grant=grant) for grant in grants))

    def of(self, user: User) -> tuple[Grant, ...]:
        """Return the grants of a user; none: the user sees nothing."""
        if user.grants is not None:
            return user.grants
        return tuple(entry.grant for entry in self.grants if matches(entry.users, user.name))
