"""A reset of a consumer group that still rebalances after its last member has left.

Kafka keeps a classic group in PreparingRebalance until group.initial.rebalance.delay.ms is over,
and refuses offsets until then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from sharegroup.backoff import Backoff
from sharegroup.client.admin.offset_resets import ToEarliest, reset_group_offsets
from sharegroup.errors import GroupIdNotFound, NonEmptyGroup


class RebalancingCluster:
    """A cluster with the classic group ``g``, which is in these states one after the other."""

    principal = None

    def __init__(self, *states: str) -> None:
        self.states = list(states)

    def call(self, seconds: float | None) -> AbstractContextManager[None]:
        return nullcontext()

    def call_timeout_ms(self) -> int:
        return 50

    def backoff(self) -> Backoff:
        return Backoff(1, 2, chance=lambda: 0.5)

    async def retrying(self, attempt: Callable[[], Awaitable[Any]], *, subject: str) -> Any:
        return await attempt()

    async def coordinator(self, key: str, **_: object) -> int:
        return 1

    async def connection(self, node_id: int, purpose: object) -> RebalancingCluster:
        return self

    async def refresh(self, topics: set[str]) -> dict[str, object]:
        return {}

    async def request(self, message: Any) -> Any:
        match type(message).__name__:
            case "ShareGroupDescribeRequest" | "ConsumerGroupDescribeRequest":
                group = SimpleNamespace(group_id="g", error_code=GroupIdNotFound.code)
            case "DescribeGroupsRequest":
                state = self.states[0] if len(self.states) == 1 else self.states.pop(0)
                group = SimpleNamespace(
                    group_id="g",
                    error_code=0,
                    group_state=state,
                    protocol_type="consumer",
                    protocol_data="",
                    members=(),
                    authorized_operations=-(2**31),
                )
            case "OffsetFetchRequest":
                assert self.states == ["Empty"], "asked before the group is empty"
                group = SimpleNamespace(group_id="g", error_code=0, topics=())
            case name:
                raise AssertionError(name)
        return SimpleNamespace(groups=(group,))


def test_reset_waits_until_the_group_has_ended_its_rebalance() -> None:
    cluster: Any = RebalancingCluster("PreparingRebalance", "CompletingRebalance", "Empty")
    assert asyncio.run(reset_group_offsets(cluster, "g", ToEarliest())) == {}


def test_reset_of_a_group_that_goes_on_rebalancing_is_refused_in_time() -> None:
    cluster: Any = RebalancingCluster("PreparingRebalance")
    with pytest.raises(NonEmptyGroup, match="group 'g' has no members and is still rebalancing"):
        asyncio.run(reset_group_offsets(cluster, "g", ToEarliest()))
