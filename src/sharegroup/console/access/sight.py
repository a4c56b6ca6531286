"""What one user sees of the console's snapshots, which belong to the console's own identity.

Hidden groups and topics are left out.  Of a group that is shown, partitions of hidden topics are
left out, and so is its history, which is a sum over all of its topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from sharegroup.console.access.roles import Rights
from sharegroup.console.watch.cluster_view import (
    ClusterView,
    GroupPartition,
    GroupView,
    MemberView,
    TopicView,
)
from sharegroup.console.watch.history import GroupHistory, Histories
from sharegroup.console.watch.watcher import Watcher

HIDDEN_PROBLEM = "could not be read; the console's administrator sees why"

Parts = tuple[tuple[MemberView, ...], tuple[GroupPartition, ...]]


class Sight:
    """Filters views for the same rights, and remembers what it filtered last."""

    __slots__ = ("_parts", "_rights", "_seen", "_source")

    def __init__(self, rights: Rights) -> None:
        self._rights = rights
        self._source: ClusterView | None = None
        self._seen = ClusterView()
        self._parts: dict[str, tuple[Parts, Parts]] = {}
        """The parts of each group, and those of them that are shown.

        A group of many members is described anew much less often than the view changes.
        """

    def of(self, view: ClusterView) -> ClusterView:
        """Return what the user may see of a view."""
        if self._rights.sees_every_name:
            return view
        if view is not self._source:
            self._seen, self._source = self._filtered(view), view
        return self._seen

    def shows_all_of(self, group: GroupView) -> bool:
        """Whether no topic of a group is hidden; the group is one of the console's own view."""
        if self._rights.sees_every_name:
            return True
        whole, shown = self._shown_parts(group)
        return whole is shown

    def _filtered(self, view: ClusterView) -> ClusterView:
        rights = self._rights
        groups = {
            group_id: self._group(group)
            for group_id, group in view.groups.items()
            if rights.may_see_group(group_id)
        }
        self._parts = {name: parts for name, parts in self._parts.items() if name in groups}
        return replace(
            view,
            groups=groups,
            topics=self._topics(view),
            letters={
                name: replace(topic, groups=tuple(filter(rights.may_see_group, topic.groups)))
                for name, topic in view.letters.items()
                if rights.may_see_topic(name)
            },
            # The texts of errors name groups and topics.
            problems=dict.fromkeys(view.problems, HIDDEN_PROBLEM),
            left_out=0,
        )

    def _topics(self, view: ClusterView) -> Mapping[str, TopicView]:
        if self._source is not None and view.topics is self._source.topics:
            return self._seen.topics  # Topics are read much less often than groups.
        may_see = self._rights.may_see_topic
        return {name: topic for name, topic in view.topics.items() if may_see(name)}

    def _group(self, group: GroupView) -> GroupView:
        whole, shown = self._shown_parts(group)
        if whole is shown:
            return group
        members, partitions = shown
        return replace(group, members=members, partitions=partitions, oldest_ms=None)

    def _shown_parts(self, group: GroupView) -> tuple[Parts, Parts]:
        known = self._parts.get(group.group_id)
        if known is not None:
            (members, partitions), _ = known
            if members is group.members and partitions is group.partitions:
                return known
        hidden = {name for name in group.topics if not self._rights.may_see_topic(name)}
        whole = group.members, group.partitions
        shown = whole if not hidden else _without(whole, hidden)
        self._parts[group.group_id] = whole, shown
        return whole, shown


def _without(parts: Parts, hidden: set[str]) -> Parts:
    members, partitions = parts
    return (
        tuple(
            replace(member, partitions=tuple(p for p in member.partitions if p.topic not in hidden))
            for member in members
        ),
        tuple(part for part in partitions if part.where.topic not in hidden),
    )


class SeenHistory:
    """The histories of the groups that a user sees completely."""

    __slots__ = ("_history", "_sight", "_view")

    def __init__(self, history: Histories, sight: Sight, view: ClusterView) -> None:
        """Filter a history; the view is the console's own, not the user's."""
        self._history, self._sight, self._view = history, sight, view

    def of(self, group_id: str) -> GroupHistory:
        """Return the history of a group; an empty one if the user may not see it."""
        group = self._view.groups.get(group_id)
        is_shown = group is not None and group_id in self._sight.of(self._view).groups
        if group is None or not is_shown or not self._sight.shows_all_of(group):
            return GroupHistory()
        return self._history.of(group_id)


class SeenWatcher:
    """A watcher as a user's pages have it: its view is what the user may see."""

    __slots__ = ("_watcher", "view")

    def __init__(self, watcher: Watcher, view: ClusterView) -> None:
        self._watcher = watcher
        self.view = view
        """What the user may see of the cluster at the moment of the visit."""

    def looks_at(self, group_ids: Iterable[str] = ()) -> None:
        """Note that somebody looks at these groups; hidden ones are not looked at."""
        self._watcher.looks_at(group for group in group_ids if group in self.view.groups)
