"""The table of handlers has the messages that `wire.codec.apis` serves."""

from __future__ import annotations

import inspect
import re
import sys
from importlib import import_module
from types import NoneType
from typing import Any, get_args

import pytest

from sharegroup.broker.handlers import parts as handler_parts
from sharegroup.broker.server.handler_table import HANDLERS, handler_of
from sharegroup.wire.codec.apis import APIS, Api, request_class, response_class

DECLARED_TOGETHER = {80, 81, 83, 84, 85, 86, 87}
"""Requests whose handlers share a function, so its annotation cannot be of one of them."""


@pytest.mark.parametrize("key", sorted(APIS.keys() - DECLARED_TOGETHER))
def test_handler_takes_the_requests_of_its_api(key: int) -> None:
    handler = handler_of(key)
    for function in (handler.handle, handler.refuse):
        if function is not None:
            assert request_class_of(function, key) is request_class(key, APIS[key].newest)


def request_class_of(function: Any, key: int) -> Any:
    """The class of the requests that a function is annotated with, as type checkers see it."""
    version = APIS[key].newest
    names = {
        # What is imported for type checkers only, is of the newest version there, too.
        **vars(sys.modules[request_class(key, version).__module__]),
        **vars(sys.modules[response_class(key, version).__module__]),
        **vars(sys.modules[function.__module__]),
    }
    hint = eval(function.__annotations__["request"], names)
    return next(cls for cls in (*get_args(hint), hint) if cls is not NoneType)


def test_every_api_has_an_entry() -> None:
    assert HANDLERS.keys() == APIS.keys()


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_a_module_serves_the_apis_that_the_table_says(api: Api) -> None:
    handler = handler_of(api.key)
    assert handler.handle.__module__ == f"sharegroup.broker.handlers.{HANDLERS[api.key]}"


@pytest.mark.parametrize("name", sorted(set(HANDLERS.values())))
def test_a_module_touches_the_parts_that_it_names(name: str) -> None:
    """The type checker refuses parts that are not named; nobody else sees those named in vain."""
    module = import_module(f"sharegroup.broker.handlers.{name}")
    source = inspect.getsource(module)
    for protocol in (cls for cls in vars(module).values() if inspect.isclass(cls)):
        if protocol.__module__ == handler_parts.__name__:
            (part,) = members(protocol)
            assert re.search(rf"parts\.{part}\b", source), f"{protocol.__name__} is not touched"


def members(protocol: type) -> set[str]:
    """The names that a protocol declares."""
    properties = {name for name, value in vars(protocol).items() if isinstance(value, property)}
    return properties | set(vars(protocol).get("__annotations__", {}))
