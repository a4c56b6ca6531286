"""A handler together with its route, as `share_group` returns it.

Calling it calls the plain handler, so a test of the handler needs no worker.  Its attribute
``send`` is a typed sender::

    await bill(order)                  runs the handler in this process
    await bill.send(order)             writes a record for the workers of the group

It belongs to the application to which `App.share_group` or `App.routes` added it last.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Collection, Coroutine, Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, overload

from sharegroup.durations import Duration
from sharegroup.errors import InvalidConfig
from sharegroup.worker.asking import AskParts, ask, result_of
from sharegroup.worker.declarations.checks import checked_group
from sharegroup.worker.declarations.handler import shape_of
from sharegroup.worker.declarations.options import (
    ConsumerGroupOptions,
    RouteOptions,
    Topics,
    route_of,
)
from sharegroup.worker.declarations.route import Route, RouteKind
from sharegroup.worker.other_names import OF_HANDLERS, missing_attribute
from sharegroup.worker.ports import WrittenRecord
from sharegroup.worker.results.result import Result
from sharegroup.worker.sender import Sender

Handler = TypeVar("Handler")
Made = TypeVar("Made")
Sent = TypeVar("Sent")
Rest = ParamSpec("Rest")
Returns = TypeVar("Returns")


class Routed(Generic[Sent, Handler]):
    """A handler together with its route and its sender, as `share_group` returns it.

    Calling it calls the plain handler, so a test of the handler needs no worker.  ``send`` writes
    a record for the workers of the group.
    """

    def __init__(self, handler: Any, route: Route, given: Collection[str] = ()) -> None:
        self.routed_handler = handler
        self.route = route
        self.declared = route
        """The route without the defaults of its application."""
        self.given = frozenset(given)
        """The names of the options that its declaration has."""
        self.send: Sender[Sent] = Sender(route)
        own: Any = self  # Typed Any, because the handler need not be a function.
        functools.update_wrapper(own, handler, updated=())

    if TYPE_CHECKING:  # The signature of the handler.
        __call__: Handler
    else:

        def __call__(self, *arguments: Any, **named: Any) -> Any:
            return self.routed_handler(*arguments, **named)

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute(self, name, OF_HANDLERS)

    @overload
    async def ask(
        self: Routed[Sent, Callable[..., Coroutine[Any, Any, Returns]]],
        payload: Sent,
        *,
        timeout: Duration,  # noqa: ASYNC109  By the application's clock, which a test moves.
        **parts: Unpack[AskParts],
    ) -> Returns: ...
    @overload
    async def ask(
        self: Routed[Sent, Any],
        payload: Sent,
        *,
        timeout: Duration,  # noqa: ASYNC109
        **parts: Unpack[AskParts],
    ) -> Any: ...
    async def ask(
        self,
        payload: Any,
        *,
        timeout: Duration,  # noqa: ASYNC109
        **parts: Unpack[AskParts],
    ) -> Any:
        """Send a payload, wait for its outcome, and return what the handler returned.

        The handler is declared with ``replies=True``.  Raises AskFailed if the record fails
        finally, and AskTimeout if no reply comes in this time.
        """
        return await ask(self.route, self.send, payload, timeout=timeout, **parts)

    @overload
    async def result(
        self: Routed[Any, Callable[..., Coroutine[Any, Any, Returns]]], id: str | WrittenRecord
    ) -> Result[Returns] | None: ...
    @overload
    async def result(self: Routed[Any, Any], id: str | WrittenRecord) -> Result[Any] | None: ...
    async def result(self, id: str | WrittenRecord) -> Result[Any] | None:  # noqa: A002
        """Return the result of a record; None if there is none, or no longer.

        ``id`` is that given to `send`, or what `send` has returned.  The handler is declared with
        ``result_for``.
        """
        return await result_of(self.route, self.send, id)

    def __repr__(self) -> str:
        route = self.route
        topics = ", ".join(route.topics)
        return (
            f"<handler {route.shape.name} of {route.kind} group {route.group!r}, topics {topics}>"
        )


class Declare:
    """A decorator that turns a handler into a `Routed`."""

    __slots__ = ("_group", "_kind", "_namespace", "_options", "_take", "_topics")

    def __init__(
        self,
        group: str,
        topics: Topics,
        options: RouteOptions | ConsumerGroupOptions,
        *,
        kind: RouteKind = RouteKind.SHARE,
        take: Callable[[Routed[Any, Any]], None] | None = None,
        depth: int = 2,
    ) -> None:
        # Checked here and not in `__call__`, because a decorator used without parentheses
        # never reaches `__call__`.
        self._group = checked_group(group, f"{kind}_group")
        self._kind = kind
        self._topics = topics
        self._options = options
        self._take = take
        # Names that are local to the declaring scope, for annotations that use them.
        self._namespace = dict(sys._getframe(depth).f_locals)

    @overload
    def __call__(self, handler: type[Made]) -> Routed[Any, type[Made]]: ...
    @overload
    def __call__(
        self, handler: Callable[Concatenate[list[Sent], Rest], Returns]
    ) -> Routed[Sent, Callable[Concatenate[list[Sent], Rest], Returns]]: ...
    @overload
    def __call__(
        self, handler: Callable[Concatenate[Sent, Rest], Returns]
    ) -> Routed[Sent, Callable[Concatenate[Sent, Rest], Returns]]: ...
    @overload
    def __call__(self, handler: Any) -> Routed[Any, Any]: ...
    def __call__(self, handler: Any) -> Any:
        shape = shape_of(handler, name=self._options.get("name"), namespace=self._namespace)
        route = route_of(self._group, self._topics, shape, self._options, kind=self._kind)
        handler = getattr(handler, "routed_handler", handler)
        routed: Routed[Any, Any] = Routed(handler, route, self._options)
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
    handler: Callable[Concatenate[Sent, Rest], Returns],
    **options: Unpack[RouteOptions],
) -> Routed[Sent, Callable[Concatenate[Sent, Rest], Returns]]: ...
@overload
def share_group(
    group: str, *, topics: Topics, handler: object, **options: Unpack[RouteOptions]
) -> Routed[Any, Any]: ...
def share_group(
    group: str, *, topics: Topics = (), handler: Any = None, **options: Unpack[RouteOptions]
) -> Any:
    """Declare a handler without an application, for example in a module of its own.

    Used as a decorator, or as a plain call with ``handler``.  Pass the result, or the module that
    contains it, to `App.routes`.
    """
    declare = Declare(group, topics, options)
    return declare if handler is None else declare(handler)


@overload
def consumer_group(
    group: str, *, topics: Topics, handler: None = None, **options: Unpack[ConsumerGroupOptions]
) -> Declare: ...
@overload
def consumer_group(
    group: str, *, topics: Topics, handler: object, **options: Unpack[ConsumerGroupOptions]
) -> Routed[Any, Any]: ...
def consumer_group(
    group: str, *, topics: Topics = (), handler: Any = None, **options: Unpack[ConsumerGroupOptions]
) -> Any:
    """Declare a handler of a consumer group without an application, as `share_group` does."""
    declare = Declare(group, topics, options, kind=RouteKind.CONSUMER)
    return declare if handler is None else declare(handler)


def routed_in(given: object) -> list[Routed[Any, Any]]:
    """Return the handlers that ``given`` is or has; raises InvalidConfig if it has none."""
    if isinstance(given, Routed):
        return [given]
    if isinstance(given, ModuleType):
        handlers = [value for value in vars(given).values() if isinstance(value, Routed)]
        lists = [value for value in vars(given).values() if isinstance(value, list | tuple)]
        handlers += [value for values in lists for value in values if isinstance(value, Routed)]
        if not handlers:
            raise InvalidConfig(
                f"module {given.__name__}: it declares no handler with share_group(...)"
            )
        return handlers
    if isinstance(given, Iterable) and not isinstance(given, str):
        return [value for values in given for value in routed_in(values)]
    raise InvalidConfig(
        f"routes: {given!r}; expected a handler declared with share_group(...), "
        "a list of such handlers, or a module"
    )


def routed_of_groups(
    routed: Iterable[Routed[Any, Any]], groups: frozenset[str], app_name: str
) -> list[Routed[Any, Any]]:
    """Return the handlers of these groups, or all if there are none; raises InvalidConfig."""
    handlers = list(routed)
    known = {handler.route.group for handler in handlers}
    if unknown := groups - known:
        raise InvalidConfig(
            f"App {app_name!r} has no group {', '.join(sorted(unknown))}; "
            f"its groups are {', '.join(sorted(known))}"
        )
    return [handler for handler in handlers if not groups or handler.route.group in groups]
