"""The search for dead letters at the start: in pieces, also if no state can be read."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from sharegroup.broker.share.dead_letters import DeadLetters
from sharegroup.errors import CoordinatorNotAvailable
from sharegroup.ids import GroupId, SharePartitionKey, TopicId
from sharegroup.testing.virtual_time import ManualClock

PARTITIONS = 1_000


class UnreadableStates:
    """Knows many share partitions, and can read the state of none."""

    def __init__(self) -> None:
        self.read_count = 0

    def known(self) -> tuple[SharePartitionKey, ...]:
        topic_id = TopicId(UUID(int=1))
        return tuple(
            SharePartitionKey(GroupId("g"), topic_id, partition) for partition in range(PARTITIONS)
        )

    def read(self, key: SharePartitionKey) -> Any:
        self.read_count += 1
        raise CoordinatorNotAvailable(f"the state of {key} cannot be read")


def test_search_gives_way_to_other_tasks_although_no_state_can_be_read() -> None:
    states: Any = UnreadableStates()
    others: Any = SimpleNamespace(
        on_archiving=lambda _: None
    )  # The search uses the stored states alone.

    async def main() -> None:
        letters = DeadLetters(
            ManualClock(),
            others,
            others,
            settings=others,
            share_partitions=others,
            persister=states,
            is_attended=bool,
        )
        running = asyncio.create_task(letters.run())
        read_counts = [0]
        while read_counts[-1] < PARTITIONS:
            await asyncio.sleep(0)
            read_counts.append(states.read_count)
        running.cancel()
        assert read_counts == [100 * turn for turn in range(11)]

    asyncio.run(main())
