"""Repeats the part of a request that a broker refuses because of a quota (KIP-599)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from sharegroup.client.net.cluster import Cluster
from sharegroup.errors import KafkaError, RequestTimedOut, ThrottlingQuotaExceeded

Item = TypeVar("Item")


async def until_allowed(
    cluster: Cluster,
    items: Mapping[str, Item],
    ask: Callable[[Mapping[str, Item]], Awaitable[Mapping[str, KafkaError | None]]],
    *,
    subject: str,
) -> dict[str, KafkaError | None]:
    """Return the results of changes by name; those over the quota are tried again.

    The connection waits for the throttle time before it sends the next request.  When the time of
    the call is up, the changes that are still over the quota have ThrottlingQuotaExceeded.
    """
    results: dict[str, KafkaError | None] = {}
    left = dict(items)

    async def attempt() -> None:
        results.update(await ask(left))
        for name in list(left):
            if not isinstance(results.get(name), ThrottlingQuotaExceeded):
                del left[name]
        if left:
            refusal = results[next(iter(left))]
            assert refusal is not None
            raise refusal

    try:
        await cluster.retrying(attempt, subject=subject)
    except RequestTimedOut:
        if not results:
            raise  # No broker has answered.
    return results
