"""Imports what one type of request needs, in steps of a module (`sharegroup.steps`).

Handlers, coordinators and the classes of messages are imported when the first request needs them,
which keeps a start short.  Imported at once, those of the first heartbeat of a group would hold the
event loop for 50 ms, and on a slow machine for 200 ms.  So a request whose type is not prepared
waits until its modules have been imported one by one, in slices (`slices`): what a module imports
comes before the module itself, so a step takes a millisecond or two.

The modules of the parts that are made at their first use are behind those that use them.  No text
of a handler names them, so they are in tables here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

from sharegroup.broker.server.handler_table import HANDLERS
from sharegroup.steps import Steps
from sharegroup.wire.codec.apis import APIS, message_module_name

_RECORDS = "sharegroup.wire.batches.records"
_OPENING = "sharegroup.storage.recovery.recovery"
_SETTINGS = "sharegroup.broker.configuration.setting_changes"
_CLASSIC = ("sharegroup.broker.groups.classic_group_coordinator", _OPENING, _RECORDS)
_MODERN = ("sharegroup.broker.groups.modern_group_coordinator", _SETTINGS, *_CLASSIC)
_SHARE = (
    _SETTINGS,
    "sharegroup.core.patterns",
    "sharegroup.broker.share_parts",
    "sharegroup.broker.groups.share_group_records",
    _RECORDS,
)

MODULES_OF_PARTS: dict[bytes, tuple[str, ...]] = {
    b"topics": (_OPENING,),
    b"produced_batches": ("sharegroup.broker.load.produced_batches",),
    b"fetch_sessions": ("sharegroup.core.sessions.fetch_session",),
    b"share_coordinator": _SHARE,
    b"share_group_coordinator": _SHARE,
    b"share_partitions": _SHARE,
    b"share_sessions": _SHARE,
    b"classic_group_coordinator": _CLASSIC,
    b"modern_group_coordinator": _MODERN,
}
"""By the name of a part in `parts.Parts`: the modules that its first use imports."""

_TRANSACTIONS = (
    _OPENING,
    "sharegroup.broker.transactions.transaction_coordinator",
    "sharegroup.broker.transactions.transaction_markers",
    "sharegroup.broker.transactions.produced",
    "sharegroup.wire.batches.markers",
)
_TELEMETRY = (
    "sharegroup.core.client_telemetry.client_instances",
    "sharegroup.core.client_telemetry.pushed_values",
    "sharegroup.core.client_telemetry.subscriptions",
    "sharegroup.wire.otlp_metrics",
)

MODULES_OF_APIS: dict[int, tuple[str, ...]] = {
    **dict.fromkeys((22, 24, 25, 26, 27, 28, 65, 66), _TRANSACTIONS),
    **dict.fromkeys((71, 72), _TELEMETRY),
    9: ("kio.schema.offset_fetch.v8.request", "kio.schema.offset_fetch.v8.response"),
}
"""By API key: other modules that are imported inside functions.

A transaction begins with InitProducerId, so Produce has none.
"""

IMPORT = re.compile(
    rb"^(?:from ([\w.]+) import (\w+|\([^)]*\)|[^\n(]*)|import ([\w.]+))", re.MULTILINE
)
"""An import at the top of a module, not one inside a block; comments may match, too."""

BESIDE = re.compile(rb"^from \.(\w+) import", re.MULTILINE)
"""An import of a module of the same package; kio's packages import all of theirs."""

NAME = re.compile(rb"\w+")

PART = re.compile(rb"parts\.(\w+)")

CODEC = "aiokafka.record.default_records"
"""A module of another project that takes 15 ms, and 40 ms with the package that it is in."""

THREAD_SECONDS = 0.001
"""How long a step waits for the thread that imports the codec."""


def import_for_request(api_key: int, version: int) -> Steps[None]:
    """Import the messages of a request, its handler and what that uses, in steps."""
    api = APIS[api_key]
    for number in (version, api.newest):
        for direction in ("Request", "Response"):
            yield from import_in_steps(message_module_name(api_key, number, direction))
    yield from import_in_steps(f"sharegroup.broker.handlers.{HANDLERS[api_key]}")
    for name in MODULES_OF_APIS.get(api_key, ()):
        yield from import_in_steps(name)


def import_in_steps(name: str, begun: frozenset[str] = frozenset()) -> Steps[None]:
    """Import a module after the modules that it imports, with a step for each of them.

    The modules of the parts that it uses follow.  Its imports are found in its source text, without
    running or parsing it.  One that is not found there is imported by the module itself, in its
    step.  ``begun`` has the modules that wait for this.
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
    # The import of the package may have imported the module, too.
    if spec is None or name in sys.modules:
        return
    source = _source(spec)
    for imported in imported_names(source):
        if imported.startswith(("sharegroup.", "kio.")):
            yield from import_in_steps(imported, begun)
        elif imported == CODEC and CODEC not in sys.modules:
            yield from _import_in_thread(CODEC)
    import_module(name)
    yield
    for part in dict.fromkeys(PART.findall(source)):
        for used in MODULES_OF_PARTS.get(part, ()):
            yield from import_in_steps(used)


def _source(spec: ModuleSpec) -> bytes:
    """Return the text of a module, and of those that come with it in one step."""
    if spec.origin is None or not spec.origin.endswith(".py"):
        return b""
    source = Path(spec.origin).read_bytes()
    for folder in spec.submodule_search_locations or ():
        for name in BESIDE.findall(source):
            source += Path(folder, f"{name.decode()}.py").read_bytes()
    return source


def _import_in_thread(name: str) -> Steps[None]:
    """Import a large module in a thread, with short steps that wait for it."""

    def run() -> None:
        with suppress(ImportError):  # The module that imports it raises the error again.
            import_module(name)

    thread = Thread(target=run, name="import")
    thread.start()
    while thread.is_alive():
        thread.join(THREAD_SECONDS)
        yield


def imported_names(source: bytes) -> Iterator[str]:
    """Yield the names of modules that a source text imports, and what may be names of modules.

    The latter are the names from a package, which must be imported before the next is taken.
    """
    for module, names, plain in IMPORT.findall(source):
        name = (plain or module).decode()
        yield name
        if names and hasattr(sys.modules.get(name), "__path__"):
            for imported in NAME.findall(names):
                yield f"{name}.{imported.decode()}"
