"""What the committed offsets of all groups may take in memory."""

from __future__ import annotations

import pytest

from sharegroup.core.groups.classic.offsets import GROUP_PART
from sharegroup.errors import InvalidCommitOffsetSize
from sharegroup.ids import GroupId, TopicName
from tests.unit.core.consumer_group_scene import GROUP, Scene

OTHERS = tuple(GroupId(f"other-{number}") for number in range(GROUP_PART))


def full_scene() -> Scene:
    """Groups with two offsets each, which together take all the memory there is."""
    scene = Scene()
    for group_id in (GROUP, *OTHERS):
        scene.commit(1, group_id=group_id)
        scene.commit(1, group_id=group_id, partition=1)
    scene.offsets_bytes_max = scene.groups.offsets_bytes
    return scene


def test_commit_that_takes_no_more_memory_is_accepted_at_the_limit() -> None:
    scene = full_scene()
    scene.commit(2)
    assert scene.offset() == 2


@pytest.mark.parametrize(
    "commit", [{"partition": 2}, {"topic": "u"}, {"note": "n"}, {"group_id": GroupId("new")}]
)
def test_commit_that_takes_more_memory_than_all_groups_may_is_refused(
    commit: dict[str, object],
) -> None:
    scene = full_scene()
    with pytest.raises(InvalidCommitOffsetSize, match="of all groups"):
        scene.commit(2, **commit)  # type: ignore[arg-type]
    assert scene.offset() == 1


def test_commit_metadata_counts_by_its_encoded_size() -> None:
    scene = full_scene()
    scene.offsets_bytes_max += 2_000
    with pytest.raises(InvalidCommitOffsetSize):
        scene.commit(2, note="\N{GRINNING FACE}" * 500)  # Four bytes for each character.
    scene.commit(2, note="n" * 500)


def test_group_takes_no_more_than_its_part() -> None:
    scene = full_scene()
    scene.offsets_bytes_max *= 100
    with pytest.raises(InvalidCommitOffsetSize, match="allowed for one group"):
        scene.commit(2, note="n" * (scene.offsets_bytes_max // GROUP_PART))


def test_deleted_offsets_free_memory() -> None:
    scene = full_scene()
    before = scene.groups.offsets_bytes
    records, _ = scene.groups.delete_offsets(GROUP, {TopicName("t"): [0]})
    scene.write(records)
    assert scene.groups.offsets_bytes < before
    scene.commit(1, partition=2)
    assert scene.groups.offsets_bytes == before
    scene.commit(5, partition=2)
    for group_id in (GROUP, *OTHERS):
        scene.write(scene.groups.delete_group(group_id))
    assert scene.groups.offsets_bytes == 0


def test_offsets_in_the_log_are_loaded_beyond_the_limit() -> None:
    scene = full_scene()
    scene.commit(2)
    before = scene.groups.offsets_bytes
    scene.offsets_bytes_max = 1
    scene.restart()
    assert scene.groups.offsets_bytes == before
    scene.commit(3)
    with pytest.raises(InvalidCommitOffsetSize):
        scene.commit(1, topic="u")
