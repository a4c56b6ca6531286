"""What all requests of an administrator have in common.

A request is a function about a cluster, and `method` makes it a method of `AdminClient`, with one
signature for both.  The functions below ask, and turn the answers into results by item.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar

from kio.static.primitive import i32Timedelta

from sharegroup.client.net.cluster import Cluster
from sharegroup.client.net.refusals import left_out, refused
from sharegroup.errors import NONE, KafkaError, RequestTimedOut, ThrottlingQuotaExceeded
from sharegroup.protocol_enums import AclOperation

P = ParamSpec("P")
R = TypeVar("R")
Key = TypeVar("Key")
Item = TypeVar("Item")
Result = TypeVar("Result")


def call(
    function: Callable[Concatenate[Cluster, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Cluster, P], Coroutine[Any, Any, R]]:
    """Limit all requests of a function to its ``timeout``, which it takes and never reads."""

    @functools.wraps(function)
    async def limited(cluster: Cluster, /, *args: P.args, **kwargs: P.kwargs) -> R:
        seconds: Any = kwargs.pop("timeout", None)
        with cluster.call(seconds):
            return await function(cluster, *args, **kwargs)

    return limited


def method(
    function: Callable[Concatenate[Cluster, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Turn a function into a method of a client with the same signature, types and documentation.

    The client has its cluster in ``_cluster``.
    """

    @functools.wraps(function)
    async def called(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await function(self._cluster, *args, **kwargs)

    return called


def outcome(
    cluster: Cluster, answer: Any, operation: str | None = None, **about: str | int
) -> KafkaError | None:
    """Return None for success, or the error, which names the item and a missing permission.

    ``answer`` is a part of a response with an error code, and perhaps with a text.
    """
    if answer.error_code == NONE:
        return None
    text = getattr(answer, "error_message", None)
    return refused(
        answer.error_code, text, operation=operation, principal=cluster.principal, **about
    )


def check(cluster: Cluster, answer: Any, operation: str | None = None, **about: str | int) -> None:
    """Raise the error that `outcome` returns for the answer, if there is one."""
    error = outcome(cluster, answer, operation, **about)
    if error is not None:
        raise error


def timeout_of(cluster: Cluster) -> i32Timedelta:
    """Return the time that the broker may take: the request timeout of the client, at most."""
    limit_ms = min(cluster.config.request_timeout_ms, cluster.call_timeout_ms())
    return i32Timedelta.parse(timedelta(milliseconds=limit_ms))


def several(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names as a tuple; raise TypeError for a single string.

    Python would iterate over the characters of the string.
    """
    if isinstance(names, str | bytes):
        raise TypeError(f"expected a list of names, got a single name: {names!r}")
    return tuple(names)


def by_item(
    asked: Iterable[Key], answered: Mapping[Key, Result | KafkaError], kind: str
) -> dict[Key, Result | KafkaError]:
    """Return one result for each requested item, in the order of the request.

    If a broker leaves an item out, its result is an error; additional items are dropped.
    """
    return {item: answered[item] if item in answered else left_out(kind, item) for item in asked}


async def ask_any(
    cluster: Cluster, request: Any, *, subject: str, version_min: int | None = None
) -> Any:
    """Send a request to any broker that answers; retry until the timeout of the call.

    A broker that does not serve ``version_min`` of the request raises UnsupportedVersion.
    """

    async def attempt() -> Any:
        connection = await cluster.any_connection()
        if version_min is not None:
            connection.check_version(request.__api_key__, version_min)
        return await connection.request(request)

    return await cluster.retrying(attempt, subject=subject)


def known(number: int) -> int | None:
    """Return the number, or None for a negative one, which means unknown."""
    return None if number < 0 else number


def operations_of(bits: int) -> frozenset[AclOperation] | None:
    """Convert a bit field to operations; None if the broker did not fill it in.

    Every user who sees a resource may describe it, so a field without DESCRIBE is not filled in.
    """
    if bits < 0 or not bits & 1 << AclOperation.DESCRIBE:
        return None
    return frozenset(operation for operation in AclOperation if bits & 1 << operation)


async def until_allowed(
    cluster: Cluster,
    items: Mapping[str, Item],
    ask: Callable[[Mapping[str, Item]], Awaitable[Mapping[str, KafkaError | None]]],
    *,
    subject: str,
) -> dict[str, KafkaError | None]:
    """Return the results of changes by name; those over the quota are tried again (KIP-599).

    The connection waits for the throttle time before it sends the next request.  When the time of
    the call is up, the changes that are still over the quota have ThrottlingQuotaExceeded.
    """
    results: dict[str, KafkaError | None] = {}
    remaining = dict(items)

    async def attempt() -> None:
        results.update(await ask(remaining))
        for name in list(remaining):
            if not isinstance(results.get(name), ThrottlingQuotaExceeded):
                del remaining[name]
        if remaining:
            refusal = results[next(iter(remaining))]
            assert refusal is not None
            raise refusal

    try:
        await cluster.retrying(attempt, subject=subject)
    except RequestTimedOut:
        if not results:
            raise  # No broker has answered.
    return results
