"""Descriptions of groups, as far as a principal may see the groups and the topics of their members.

ConsumerGroupDescribe and ShareGroupDescribe differ only in how they describe a group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from kio.static.primitive import i32

from sharegroup.broker.access import checks as required
from sharegroup.broker.access.permission import Permission, operations_on_group
from sharegroup.broker.access.rights import Rights
from sharegroup.errors import KafkaError, TopicAuthorizationFailed
from sharegroup.steps import Steps, paced

FEW = 16
"""A step ends after every 16 groups."""


class _Described(Protocol):
    @property
    def members(self) -> tuple[Any, ...]: ...


Group = TypeVar("Group", bound=_Described)


def described_groups(
    rights: Rights,
    request: Any,
    *,
    describe: Callable[[Any, i32], Steps[Group]],
    failed: Callable[[Any, KafkaError], Group],
    assignments_of: Callable[[Any], Iterable[Any]],
) -> Steps[tuple[Group, ...]]:
    """Return a description, or an error, of each group that a request names.

    ``describe`` gets the id of a group and the operations that are allowed on it, and
    ``assignments_of`` returns the assignments of a member that its description shows.
    """
    groups_allowed = Permission(rights, required.DESCRIBE_GROUPS)
    topics_allowed = Permission(rights, required.DESCRIBE_TOPICS)
    groups: list[Group] = []
    for group_id, pause in paced(dict.fromkeys(request.group_ids), FEW):
        if (denial := groups_allowed.denial(group_id)) is not None:
            groups.append(failed(group_id, denial))
        else:
            group = yield from describe(group_id, operations_on_group(rights, request, group_id))
            hidden = yield from _hidden_topic(group, topics_allowed, assignments_of)
            groups.append(group if hidden is None else failed(group_id, hidden))
        if pause:
            yield
    return tuple(groups)


def _hidden_topic(
    group: _Described, topics: Permission, assignments_of: Callable[[Any], Iterable[Any]]
) -> Steps[KafkaError | None]:
    """Return the error for a group with a topic that the principal may not describe."""
    for member in () if topics.is_unlimited else group.members:
        named = {
            topic.topic_name
            for assignment in assignments_of(member)
            for topic in assignment.topic_partitions
        }
        # Subscribed topics, too, which Kafka does not check: no answer names a topic that the
        # principal may not describe (docs/differences.md).
        if not all(map(topics.allows, named.union(member.subscribed_topic_names))):
            return TopicAuthorizationFailed(
                "members of the group use topics that no ACL allows this user to DESCRIBE"
            )
        yield
    return None
