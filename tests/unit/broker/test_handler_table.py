"""The table of handlers has the messages that `wire.apis` serves."""

from __future__ import annotations

from types import UnionType
from typing import Any, get_args, get_type_hints

import pytest

from sharegroup.broker import message_versions
from sharegroup.broker.handler_contract import AnyHandler
from sharegroup.broker.handler_table import HANDLERS, handler_of
from sharegroup.wire.apis import APIS, Api, request_class, response_class

GROUPS_VERSION = 8
"""OffsetFetch is answered from this version on; its handler converts the response to older ones."""


def classes(hint: Any) -> tuple[type[Any], ...]:
    return get_args(hint) if isinstance(hint, UnionType) else (hint,)


def request_classes(function: Any) -> tuple[type[Any], ...]:
    return classes(get_type_hints(function, localns=vars(message_versions))["request"])


def expected(api: Api, handler: AnyHandler) -> tuple[type[Any], ...]:
    oldest = api.oldest if handler.is_native else api.newest
    return tuple(request_class(api.key, version) for version in range(oldest, api.newest + 1))


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_handler_takes_the_requests_of_its_api(api: Api) -> None:
    handler = handler_of(api.key)
    assert handler.handle.__module__ == f"sharegroup.broker.handlers.{api.snake_name}"
    taken = request_classes(handler.handle)
    assert taken == expected(api, handler)
    refused = request_classes(handler.refuse)
    assert set(refused) - {type(None)} == set(taken)


def test_every_api_has_an_entry() -> None:
    assert HANDLERS.keys() == APIS.keys()


@pytest.mark.parametrize("key", [0, 1, 8, 57, 78])
def test_responses_of_a_native_handler_have_every_version(key: int) -> None:
    api = APIS[key]
    named = getattr(message_versions, f"{api.name}Response")
    assert get_args(named) == tuple(
        response_class(key, version) for version in range(api.oldest, api.newest + 1)
    )


def test_responses_of_offset_fetch_are_the_versions_with_groups() -> None:
    assert get_args(message_versions.OffsetFetchResponse) == tuple(
        response_class(9, version) for version in range(GROUPS_VERSION, APIS[9].newest + 1)
    )


@pytest.mark.parametrize("key", [10, 13, 20])
def test_older_requests_of_a_converting_handler_have_every_older_version(key: int) -> None:
    api = APIS[key]
    older = getattr(message_versions, f"Older{api.name}Request")
    assert get_args(older) == tuple(
        request_class(key, version) for version in range(api.oldest, api.newest)
    )
