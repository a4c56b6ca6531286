"""The blocking clients have what the asyncio clients have, with the same signatures."""

import inspect
from typing import Any

import pytest

from sharegroup import client
from sharegroup.client import sync

PAIRS = {
    "AdminClient": (client.AdminClient, sync.AdminClient),
    "Consumer": (client.Consumer, sync.Consumer),
    "Producer": (client.Producer, sync.Producer),
    "ShareConsumer": (client.ShareConsumer, sync.ShareConsumer),
}
ONLY_ASYNC = {"Producer": {"send_content", "send_now"}}
"""`send_now` is what the blocking `send` is made of; the library redrives with `send_content`."""


def public(kind: type[Any]) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize("name", PAIRS)
def test_nothing_is_missing(name: str) -> None:
    original, twin = PAIRS[name]
    # An attribute that is set when one is made: the blocking clients' `client_id`.
    assert public(original) - public(twin) - ONLY_ASYNC.get(name, set()) == {"client_id"}
    assert public(twin) <= public(original)


@pytest.mark.parametrize("name", PAIRS)
def test_methods_take_the_same_arguments(name: str) -> None:
    original, twin = PAIRS[name]
    for method in public(twin):
        if callable(getattr(original, method)):
            theirs = inspect.signature(getattr(original, method)).parameters.values()
            ours = inspect.signature(getattr(twin, method)).parameters.values()
            shown = [[(p.name, p.kind, p.default) for p in side] for side in (theirs, ours)]
            assert shown[0] == shown[1], method
