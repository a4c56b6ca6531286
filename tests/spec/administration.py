"""What an administrator asks, as the tests of several sections need it."""

from __future__ import annotations

from typing import Any

from kio.schema.alter_share_group_offsets.v0 import request as alter_offsets_request
from kio.schema.delete_groups.v2 import request as delete_groups_request
from kio.schema.delete_share_group_offsets.v0 import request as delete_offsets_request
from kio.schema.list_groups.v5 import request as list_groups_request

from tests.spec.scene import Scene


def list_groups(scene: Scene, *, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> Any:
    """What ListGroups says of this test's groups."""
    answer = scene.ask(
        list_groups_request.ListGroupsRequest(states_filter=states, types_filter=types)
    )
    assert answer.error_code == 0
    return [group for group in answer.groups if group.group_id.startswith(f"{scene.name}.")]


def delete_groups(scene: Scene, *groups: str) -> list[int]:
    """The error of each group."""
    answer = scene.ask(delete_groups_request.DeleteGroupsRequest(groups_names=groups))
    codes = {result.group_id: int(result.error_code) for result in answer.results}
    return [codes[group] for group in groups]


def alter_offsets(scene: Scene, group: str, topic: str, *offsets: int) -> Any:
    """The answer to setting the start offsets of partitions 0, 1, ..."""
    partitions = tuple(
        alter_offsets_request.AlterShareGroupOffsetsRequestPartition(
            partition_index=number, start_offset=offset
        )
        for number, offset in enumerate(offsets)
    )
    topic_entry = alter_offsets_request.AlterShareGroupOffsetsRequestTopic(
        topic_name=topic, partitions=partitions
    )
    return scene.ask(
        alter_offsets_request.AlterShareGroupOffsetsRequest(group_id=group, topics=(topic_entry,))
    )


def altered(answer: Any) -> list[int]:
    """The error of each partition."""
    assert answer.error_code == 0, answer
    return [
        int(partition.error_code) for topic in answer.responses for partition in topic.partitions
    ]


def delete_offsets(scene: Scene, group: str, *topics: str) -> Any:
    """The answer to deleting a group's offsets of some topics."""
    wanted = tuple(
        delete_offsets_request.DeleteShareGroupOffsetsRequestTopic(topic_name=name)
        for name in topics
    )
    return scene.ask(
        delete_offsets_request.DeleteShareGroupOffsetsRequest(group_id=group, topics=wanted)
    )
