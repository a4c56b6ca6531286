"""The shape of a handler, found once from its signature.

    async def bill(order: Order) -> None                      a coroutine; runs on the loop
    def resize(image: bytes) -> None                          a function; runs in a thread
    async def bill(order: Order, record: Record) -> None      also gets the record
    async def load(rows: list[Row]) -> None                   many records at a time
    class Bill:                                               made once, with no arguments;
        async def open(self) -> None                          called before the first record
        async def handle(self, order: Order) -> None
        async def close(self) -> None                         called after the last
    Bill(client)                                              the same, made by the application

The annotation of the first parameter determines how a record's value is decoded (`payloads`).  For
one record whose JSON is an array, use ``tuple[X, ...]``, because ``list[X]`` means a batch.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from sharegroup.errors import InvalidConfig
from sharegroup.worker.records.record import Record

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
SIGNATURE = "a handler takes the payload, and optionally a second parameter annotated Record"


class HandlerKind(Enum):
    """The way in which a handler is called: as a coroutine, or as a function in a thread."""

    COROUTINE = auto()
    FUNCTION = auto()


@dataclass(frozen=True, slots=True)
class HandlerShape:
    """A handler as the worker uses it: the way to call it, and the arguments that it takes."""

    name: str
    call: Callable[..., Any]
    kind: HandlerKind
    payload_type: Any
    """The annotation of the first parameter; for a batch handler that of the list's elements."""
    takes_record: bool
    """Whether a second parameter gets the `Record`, or for a batch handler a list of them."""
    is_batch: bool
    module: str = ""
    qualified_name: str = ""
    """The path by which another process imports it; that object may wrap it (``__wrapped__``)."""
    opening: Callable[[], Any] | None = None
    """The ``open`` method of a class or object, may be a coroutine function; None without one."""
    closing: Callable[[], Any] | None = None
    return_type: Any = Any
    """The annotation of what it returns; Any without one."""


class _Parameters(NamedTuple):
    payload_type: Any
    takes_record: bool
    is_batch: bool
    return_type: Any


def shape_of(
    handler: Any, *, name: str | None = None, namespace: Mapping[str, Any] | None = None
) -> HandlerShape:
    """Determine the shape of a function, a coroutine function, a class, or an object.

    ``namespace`` has names that annotations may use in addition to those of the handler's module,
    such as types that are local to a function.
    """
    handler = getattr(
        handler, "routed_handler", handler
    )  # Two stacked declarations, for two groups.
    target = _made(handler) if isinstance(handler, type) else handler
    title = name or _name_of(handler)
    call = _callable_of(target, title)
    if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
        raise InvalidConfig(f"handler {title}: it has a yield, so calling it would not run it")
    parameters = _parameters_of(call, title, namespace or {})
    owner = handler if isinstance(handler, type) or inspect.isroutine(handler) else type(handler)
    # A wrapped coroutine function returns a coroutine, even if the wrapper is a plain function.
    written = inspect.unwrap(call) if inspect.isfunction(call) else call
    is_coroutine = inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(written)
    opens = target is not call
    return HandlerShape(
        name=title,
        call=call,
        kind=HandlerKind.COROUTINE if is_coroutine else HandlerKind.FUNCTION,
        payload_type=parameters.payload_type,
        takes_record=parameters.takes_record,
        is_batch=parameters.is_batch,
        module=getattr(owner, "__module__", ""),
        qualified_name=getattr(owner, "__qualname__", ""),
        opening=getattr(target, "open", None) if opens else None,
        closing=getattr(target, "close", None) if opens else None,
        return_type=parameters.return_type,
    )


def _made(handler: type) -> Any:
    if not callable(getattr(handler, "handle", None)):
        raise InvalidConfig(f"handler {handler.__qualname__}: a class needs a method `handle`")
    try:
        return handler()
    except TypeError as error:
        raise InvalidConfig(
            f"handler {handler.__qualname__}: it is instantiated without arguments ({error}); "
            f"create the object yourself and pass it as `handler=`"
        ) from error


def _name_of(handler: Any) -> str:
    if isinstance(handler, functools.partial):
        return _name_of(handler.func)
    name = getattr(handler, "__name__", None) or type(handler).__name__
    return str(name)


def _callable_of(target: Any, title: str) -> Callable[..., Any]:
    """The function that is called for each record."""
    if inspect.isroutine(target) or isinstance(target, functools.partial):
        return target
    for method in ("handle", "__call__"):
        bound = getattr(target, method, None)
        if inspect.ismethod(bound):
            return bound
    raise InvalidConfig(
        f"handler {title}: expected a function, a coroutine function, or a class or object "
        f"with a method `handle`; got {type(target).__name__}"
    )


def _parameters_of(
    call: Callable[..., Any], title: str, namespace: Mapping[str, Any]
) -> _Parameters:
    parameters = list(inspect.signature(call).parameters.values())
    positional = [parameter for parameter in parameters if parameter.kind in POSITIONAL]
    hints = _hints_of(call, title, namespace)
    if not positional:
        raise InvalidConfig(f"handler {title}: it has no parameter for the payload; {SIGNATURE}")
    first, *others = positional
    payload = hints.get(first.name, Any)
    if payload is Record:
        raise InvalidConfig(
            f"handler {title}: its first parameter is the payload (annotate it `bytes` for the "
            f"raw value); the Record is the second"
        )
    is_batch = payload is list or get_origin(payload) is list
    takes_record = bool(others) and _is_record(others[0], hints, title, is_batch=is_batch)
    filled = {parameter.name for parameter in positional[: 2 if takes_record else 1]}
    _check_others(parameters, title, filled)
    if is_batch:
        payload = (get_args(payload) or (Any,))[0]
    return _Parameters(payload, takes_record, is_batch, hints.get("return", Any))


def _hints_of(call: Callable[..., Any], title: str, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """The annotations; those given as strings are evaluated where the function was defined."""
    target: Any = call
    while isinstance(target, functools.partial):
        target = target.func
    target = inspect.unwrap(getattr(target, "__func__", target))
    module = sys.modules.get(getattr(target, "__module__", ""))
    # The module's own names come first, as they do when Python reads the annotation.
    known = {**namespace, **getattr(target, "__globals__", vars(module) if module else {})}
    try:
        return get_type_hints(target, globalns=known, include_extras=True)
    except NameError as error:
        raise InvalidConfig(
            f"handler {title}: an annotation can't be read: {error}; a type that is imported "
            f"under TYPE_CHECKING must be imported for real"
        ) from error


def _is_record(
    second: inspect.Parameter, hints: Mapping[str, Any], title: str, *, is_batch: bool
) -> bool:
    annotation = hints.get(second.name)
    expected = list[Record] if is_batch else Record
    if annotation == expected:
        return True
    if annotation in (Record, list[Record]):
        raise InvalidConfig(
            f"handler {title}: {second.name} is annotated {_text(annotation)}; expected "
            f"{_text(expected)}, because its payload is {'a list' if is_batch else 'not a list'}"
        )
    if second.default is inspect.Parameter.empty:
        raise InvalidConfig(
            f"handler {title}: no argument is passed for its parameter {second.name}: {SIGNATURE}"
        )
    return False


def _check_others(parameters: list[inspect.Parameter], title: str, filled: set[str]) -> None:
    for parameter in parameters:
        is_variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if (
            parameter.name not in filled
            and not is_variadic
            and parameter.default is parameter.empty
        ):
            raise InvalidConfig(
                f"handler {title}: no argument is passed for its parameter {parameter.name}: "
                f"{SIGNATURE}"
            )


def _text(annotation: Any) -> str:
    return "Record" if annotation is Record else "list[Record]"
