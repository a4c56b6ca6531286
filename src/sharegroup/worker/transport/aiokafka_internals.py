"""Access to private attributes of aiokafka's consumer that the retry scheduler needs.

`ConsumerControl` is the interface; an adapter for another consumer can implement it differently.
For aiokafka it uses private attributes, so ``pyproject.toml`` allows only versions that were
tested, 0.11 to 0.14 (``make dependency-range``).  No other module uses private attributes of
aiokafka (tests/test_tidy.py).
"""

from __future__ import annotations

from typing import Any, Protocol


class ConsumerControl(Protocol):
    """Detects and cleans up a consumer whose background tasks have failed."""

    def has_stopped_fetching(self) -> bool:
        """Whether the consumer will never return another record, although it is open."""

    async def close_connections(self) -> None:
        """Close the connections of a consumer that failed while it was stopped."""


def control_of(consumer: Any) -> ConsumerControl:
    """Return the control of an `AIOKafkaConsumer` that was started."""
    return _AiokafkaControl(consumer)


class _AiokafkaControl:
    """The `ConsumerControl` of an `AIOKafkaConsumer`."""

    __slots__ = ("_consumer",)

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def has_stopped_fetching(self) -> bool:
        """Whether the fetch task has ended.

        It fetches until the consumer is stopped.  uvloop raises a RuntimeError when the broker dies
        while a request is written.  That ends the task for good: heartbeats continue, `getmany`
        returns nothing, and no method of the consumer says so.
        """
        return bool(self._consumer._fetcher.error_future.done())

    async def close_connections(self) -> None:
        """Close the client of the consumer.

        `stop` awaits the fetch task first.  If the task has failed, `stop` raises its error and
        leaves the connections open, and a second `stop` returns at once.
        """
        await self._consumer._client.close()
