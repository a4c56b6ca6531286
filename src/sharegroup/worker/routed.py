"""A handler with its route: what `share_group` makes of a function, a class or an object.

It is called as the plain function is, so that a test of the handler needs no worker, and has the
typed sender beside it::

    await bill(order)                  runs the function, here and now
    await bill.send(order)             writes a record for whoever works

It belongs to the application that took it last: `App.share_group` and `App.routes` do.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, overload

from sharegroup.worker.declared.handler import shape_of
from sharegroup.worker.declared.names import checked_group
from sharegroup.worker.declared.options import RouteOptions, Topics, route_of
from sharegroup.worker.declared.route import Route
from sharegroup.worker.sender import Sender

Handler = TypeVar("Handler")
Made = TypeVar("Made")
Sent = TypeVar("Sent")
Rest = ParamSpec("Rest")
Result = TypeVar("Result")


class Routed(Generic[Sent, Handler]):
    """See the module's text."""

    def __init__(self, handler: Any, route: Route) -> None:
        self.routed_handler = handler
        self.route = route
        self.send: Sender[Sent] = Sender(route)
        own: Any = self  # Its signature is the handler's, which need not be a function.
        functools.update_wrapper(own, handler, updated=())

    if TYPE_CHECKING:  # What it is called with, and returns, is its handler's.
        __call__: Handler
    else:

        def __call__(self, *arguments: Any, **named: Any) -> Any:
            return self.routed_handler(*arguments, **named)

    def __repr__(self) -> str:
        route = self.route
        topics = ", ".join(route.topics)
        return f"<handler {route.shape.name} of share group {route.group!r}, topics {topics}>"


class Declare:
    """A decorator that makes a handler `Routed`."""

    __slots__ = ("_group", "_namespace", "_options", "_take", "_topics")

    def __init__(
        self,
        group: str,
        topics: Topics,
        options: RouteOptions,
        *,
        take: Callable[[Routed[Any, Any]], None] | None = None,
        depth: int = 2,
    ) -> None:
        # Here, and not where a decorator is used: without its parentheses it never is.
        self._group = checked_group(group)
        self._topics = topics
        self._options = options
        self._take = take
        # Where the decorator stands, for annotations that name what is declared there.
        self._namespace = dict(sys._getframe(depth).f_locals)

    @overload
    def __call__(self, handler: type[Made]) -> Routed[Any, type[Made]]: ...
    @overload
    def __call__(
        self, handler: Callable[Concatenate[list[Sent], Rest], Result]
    ) -> Routed[Sent, Callable[Concatenate[list[Sent], Rest], Result]]: ...
    @overload
    def __call__(
        self, handler: Callable[Concatenate[Sent, Rest], Result]
    ) -> Routed[Sent, Callable[Concatenate[Sent, Rest], Result]]: ...
    @overload
    def __call__(self, handler: Any) -> Routed[Any, Any]: ...
    def __call__(self, handler: Any) -> Any:
        shape = shape_of(handler, name=self._options.get("name"), namespace=self._namespace)
        route = route_of(self._group, self._topics, shape, self._options)
        routed: Routed[Any, Any] = Routed(getattr(handler, "routed_handler", handler), route)
        if self._take is not None:
            self._take(routed)
        return routed


@overload
def share_group(
    group: str, *, topics: Topics, handler: None = None, **options: Unpack[RouteOptions]
) -> Declare: ...
@overload
def share_group(
    group: str,
    *,
    topics: Topics,
    handler: Callable[Concatenate[Sent, Rest], Result],
    **options: Unpack[RouteOptions],
) -> Routed[Sent, Callable[Concatenate[Sent, Rest], Result]]: ...
@overload
def share_group(
    group: str, *, topics: Topics, handler: object, **options: Unpack[RouteOptions]
) -> Routed[Any, Any]: ...
def share_group(
    group: str, *, topics: Topics = (), handler: Any = None, **options: Unpack[RouteOptions]
) -> Any:
    """Declare a handler that no application has yet: for routes kept apart from the code.

    With ``handler`` it is routed at once, and without it is a decorator.  Hand what comes out, or
    the module that it stands in, to `App.routes`.
    """
    declare = Declare(group, topics, options)
    return declare if handler is None else declare(handler)
