"""The offsets of `sharegroup groups describe`, also if some groups cannot be asked any more."""

from __future__ import annotations

import asyncio

from sharegroup.cli.groups.group_rows import share_offset_rows
from sharegroup.client.admin.types import SharePartitionOffset
from sharegroup.client.records import TopicPartition
from sharegroup.errors import GroupIdNotFound, TopicAuthorizationFailed

GONE = GroupIdNotFound("group 'gone' does not exist")
HIDDEN = TopicAuthorizationFailed("topic 'secret'")


class Admin:
    """Answers as a cluster in which a group was deleted since it was described."""

    async def list_share_group_offsets(self, names):
        kept = {
            TopicPartition("orders", 0): SharePartitionOffset(7, 0, 3),
            TopicPartition("secret", 0): HIDDEN,
        }
        return {name: GONE if name == "gone" else kept for name in names}


def test_groups_beside_one_that_is_gone_keep_their_rows():
    rows, failures = asyncio.run(share_offset_rows(Admin(), ["gone", "kept"]))
    assert [(row["group"], row["topic"], row["start_offset"], row["lag"]) for row in rows] == [
        ("kept", "orders", 7, 3)
    ]
    assert failures == [GONE, HIDDEN]
