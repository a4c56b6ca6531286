"""Which groups are read next."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from sharegroup.client import TopicPartition
from sharegroup.console.watch.cluster_view import GroupPartition, GroupView, MemberView
from sharegroup.console.watch.turns import LOOKED_MAX, Plan, plan

PLACE = TopicPartition("orders", 0)
MEMBER = MemberView("m", "c", "/127.0.0.1", (PLACE,))
EACH_MEMBER = 144
"""Bytes of `MEMBER` in an answer."""


def groups(count: int, *, members: int = 0, partitions: int = 1) -> dict[str, GroupView]:
    places = (GroupPartition(PLACE, 1, 0),) * partitions
    return {
        (name := f"group-{number:04}"): GroupView(
            name, "share", "Stable", (MEMBER,) * members, places, seen_at=0.0, members_at=0.0
        )
        for number in range(count)
    }


def played(
    seen: dict[str, GroupView],
    *looked_at: str,
    seconds: int,
    pause: float = 1.0,
    is_watched: bool = True,
) -> tuple[Counter[str], Counter[str]]:
    """Return how often each group's offsets and members were read; all were read at moment 0."""
    offsets: Counter[str] = Counter()
    members: Counter[str] = Counter()
    for look in range(1, int(seconds / pause) + 1):
        chosen = plan(seen, looked_at, pause_seconds=pause, is_watched=is_watched)
        offsets.update(chosen.offsets)
        members.update(chosen.members)
        for name in chosen.offsets:
            seen[name] = replace(seen[name], seen_at=look * pause)
        for name in chosen.members:
            seen[name] = replace(seen[name], members_at=look * pause)
    return offsets, members


def test_each_group_has_its_turn_in_a_minute_and_one_that_is_looked_at_in_each_look() -> None:
    offsets, members = played(groups(120), "group-0007", seconds=60)
    for counts in (offsets, members):
        assert counts.pop("group-0007") == 60
        assert len(counts) == 119
        assert set(counts.values()) == {1, 2}


def test_without_a_browser_members_have_their_turn_in_ten_minutes() -> None:
    offsets, members = played(groups(1_000), seconds=600, pause=5.0, is_watched=False)
    assert (min(offsets.values()), len(offsets)) == (10, 1_000)
    assert (max(members.values()), len(members)) == (2, 1_000)


def test_group_that_was_never_read_comes_first_and_so_does_one_whose_members_changed() -> None:
    seen = groups(100)
    seen["group-0042"] = GroupView("group-0042", "share", "Stable")
    seen["group-0077"] = replace(seen["group-0077"], members_at=None)
    chosen = plan(seen, (), pause_seconds=1.0, is_watched=False)
    assert chosen.offsets[0] == "group-0042"
    assert set(chosen.members) == {"group-0042", "group-0077"}


def test_groups_that_were_never_read_are_read_in_steps() -> None:
    new = {f"g{number}": GroupView(f"g{number}", "share", "Stable") for number in range(500)}
    assert len(plan(new, (), pause_seconds=1.0, is_watched=True).offsets) == LOOKED_MAX


def test_what_is_looked_at_is_bounded() -> None:
    seen = groups(LOOKED_MAX + 30)
    chosen = plan(seen, list(seen), pause_seconds=1.0, is_watched=True)
    assert len(chosen.offsets) <= LOOKED_MAX + 2


def test_members_of_large_groups_are_read_alternately() -> None:
    """Of twenty groups with 200 members each, 4 have room in one look."""
    seen = groups(20, members=200)
    _, members = played(seen, *seen, seconds=60)
    assert sum(members.values()) * 200 * EACH_MEMBER <= 60 * (128 + 256) * 1024
    assert max(members.values()) - min(members.values()) <= 1


def test_one_group_is_read_however_large_it_is() -> None:
    seen = groups(1, members=10_000, partitions=100_000)
    chosen = plan(seen, ["group-0000"], pause_seconds=1.0, is_watched=True)
    assert chosen == Plan(["group-0000"], ["group-0000"])


def test_offsets_of_groups_with_many_partitions_are_read_alternately() -> None:
    seen = groups(600, partitions=5_000)
    offsets, _ = played(seen, seconds=60)
    assert sum(offsets.values()) == 60 * 2
    assert max(offsets.values()) == 1
