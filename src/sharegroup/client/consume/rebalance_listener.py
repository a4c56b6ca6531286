"""The functions of an application that `Consumer.poll` calls when the assignment changes."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from sharegroup.client.records import TopicPartition


class RebalanceListener:
    """Functions that `poll` calls when partitions are given or taken; override those you need.

    Each may be a plain function or a coroutine function.
    """

    def on_partitions_assigned(
        self, partitions: frozenset[TopicPartition]
    ) -> Awaitable[None] | None:
        """Called after partitions were given to this consumer; `seek` is possible here."""

    def on_partitions_revoked(
        self, partitions: frozenset[TopicPartition]
    ) -> Awaitable[None] | None:
        """Called before partitions are taken away; `commit` is still possible here."""

    def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> Awaitable[None] | None:
        """Called when other members may own the partitions already, so nothing can be committed."""


async def call_in_loop(function: Callable[..., Any], partitions: frozenset[TopicPartition]) -> None:
    """Call a function of the listener in the event loop, and wait for a coroutine."""
    result = function(partitions)
    if inspect.isawaitable(result):
        await result
