"""Imports what requests need soon after the start of `sharegroup serve`, in slices.

Handlers, coordinators and the classes of messages are imported, and decoders and encoders compiled,
when the first request needs them; that keeps a start short.  But the first heartbeat of a group
would hold the event loop for 50 ms, and on a slow machine for 200 ms.  So everything is imported
soon after the start, module by module: what a module imports comes before the module itself, so a
step takes a millisecond or two, and requests are served between the slices (`slices`).

An embedded broker does none of this: a test imports only what it uses.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules

from sharegroup.broker.clock import Clock, sleep_ms
from sharegroup.broker.dispatch import prepare
from sharegroup.broker.handler_contract import HandlerOf
from sharegroup.broker.slices import Slices
from sharegroup.steps import Steps
from sharegroup.wire import encoder
from sharegroup.wire.apis import APIS

AFTER_START_MS = 50
"""Pause after the start, in which clients that waited for the broker are served first."""

SHARE_REQUESTS = ((10, 2), (10, 6), (76, 1), (78, 1), (78, 2), (79, 1), (79, 2))
"""API key and version: FindCoordinator as librdkafka and Java send it, ShareGroupHeartbeat,
ShareFetch, ShareAcknowledge."""

FIRST = (
    "sharegroup.broker.share_parts",
    "sharegroup.broker.groups.share_group_records",
    "sharegroup.broker.handlers.find_coordinator",
    "sharegroup.broker.handlers.share_group_heartbeat",
    "sharegroup.broker.handlers.share_fetch",
    "sharegroup.broker.handlers.share_acknowledge",
)
"""Modules that a share group needs."""

LATER = (
    "sharegroup.broker.produced_batches",
    "sharegroup.broker.groups.consumer_group_coordinator",
    "sharegroup.broker.groups.modern_group_coordinator",
    "sharegroup.broker.transactions.produced",
    "sharegroup.broker.transactions.transaction_coordinator",
    "sharegroup.broker.transactions.transaction_markers",
    "sharegroup.storage.recovery.recovery",
    "sharegroup.storage.segment.timestamps",
    "sharegroup.storage.log.compaction",
)
"""Other modules that are imported inside functions, when they are first needed."""

IMPORT = re.compile(
    rb"^(?:from ([\w.]+) import (\w+|\([^)]*\)|[^\n(]*)|import ([\w.]+))", re.MULTILINE
)
"""An import at the top of a module, not one inside a block; comments may match, too."""


async def prepare_all(clock: Clock, slices: Slices, handler_of: HandlerOf) -> None:
    """Prepare everything that requests need, then end."""
    await sleep_ms(clock, AFTER_START_MS)
    await slices.later(partial(prepare_steps, handler_of), "warm-up")


def prepare_steps(handler_of: HandlerOf) -> Steps[None]:
    """Import and compile everything, in steps of a module or of a message."""
    for name in FIRST:
        yield from import_in_steps(name)
    yield from _prepare_share_records()
    for api_key, version in SHARE_REQUESTS:
        yield from _prepare_request(handler_of, api_key, version)
    handlers = import_module("sharegroup.broker.handlers")
    for name in (*LATER, *(found.name for found in iter_modules(handlers.__path__))):
        yield from import_in_steps(name if "." in name else f"{handlers.__name__}.{name}")
    for api in APIS.values():
        yield from _prepare_request(handler_of, api.key, api.newest)


def _prepare_share_records() -> Steps[None]:
    # Imported here, because Kafka's record classes would add 15 ms to the start.
    from sharegroup.wire.share_group_records import SHARE_GROUP_RECORDS
    from sharegroup.wire.share_state_records import ShareSnapshotKey, ShareSnapshotValue

    for pair in (*SHARE_GROUP_RECORDS.values(), (ShareSnapshotKey, ShareSnapshotValue)):
        for cls in pair:
            encoder.prepare(cls)
            yield


def _prepare_request(handler_of: HandlerOf, api_key: int, version: int) -> Steps[None]:
    package = f"kio.schema.{APIS[api_key].snake_name}.v{version}"
    for direction in ("request", "response"):
        yield from import_in_steps(f"{package}.{direction}")
    prepare(handler_of, api_key, version)
    yield


def import_in_steps(name: str, begun: frozenset[str] = frozenset()) -> Steps[None]:
    """Import a module after the modules that it imports, with a step for each of them.

    They are found in its source text, without running or parsing it.  One that is not found there
    is imported by the module itself, in its step.  ``begun`` has the modules that wait for this.
    """
    if name in sys.modules or name in begun:
        return
    begun |= {name}
    parent = name.rpartition(".")[0]
    if parent:
        yield from import_in_steps(parent, begun)
        if not hasattr(sys.modules.get(parent), "__path__"):
            return  # A name in a module, or a package that does not exist.
    spec = find_spec(name)
    if spec is None or name in sys.modules:
        return
    if spec.origin is not None and spec.origin.endswith(".py"):
        with open(spec.origin, "rb") as file:
            source = file.read()
        for imported in imported_names(source):
            if imported.startswith(("sharegroup.", "kio.")):
                yield from import_in_steps(imported, begun)
    import_module(name)
    yield


def imported_names(source: bytes) -> Iterator[str]:
    """Yield the names of modules, and what may be names of modules, that a source text imports."""
    for module, names, plain in IMPORT.findall(source):
        if plain:
            yield plain.decode()
            continue
        yield module.decode()
        for imported in re.findall(rb"\w+", names):
            yield f"{module.decode()}.{imported.decode()}"
