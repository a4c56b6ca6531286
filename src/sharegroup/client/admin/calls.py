"""What makes a function about a cluster a method of `AdminClient`, with one signature for both."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from sharegroup.client.net.cluster import Cluster

P = ParamSpec("P")
R = TypeVar("R")


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
