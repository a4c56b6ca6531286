"""Faster imports of kio, aiokafka and crc32c in the processes of some verbs (ADR 0024).

The three libraries load more than we need, and that is most of the start of a broker, and half of
that of ``sharegroup dlq redrive``:

- kio registers strategies with Hypothesis if Hypothesis is installed, as in every development
  environment. Only kio's own tests use these strategies.
- The package aiokafka imports its whole client. We need one compiled codec.
- The package crc32c reads its version from its distribution's metadata, which imports the
  parsers of e-mail messages and of command lines.

`import_lightly` leaves the import system in a state that breaks later imports of these libraries:
`from aiokafka.consumer import AIOKafkaConsumer` raises ImportError. So only programs that run
nothing but our code call this function, never a package that other code imports. An embedded
broker (`sharegroup.testing`, `broker.app`), the clients, the worker and Spark import the three
libraries as everybody does; `tests/packaging/test_other_libraries.py` checks that.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType


def import_lightly() -> None:
    """Import the parts of kio, aiokafka and crc32c that we use, and no others."""
    _import_kio()
    _insert_empty_package("aiokafka")
    _insert_empty_package("aiokafka.record")
    crc32c = _insert_empty_package("crc32c")
    crc32c.crc32c = import_module("crc32c._crc32c").crc32c  # type: ignore[attr-defined]


def _import_kio() -> None:
    """Import kio's primitives as if Hypothesis was not installed."""
    if "hypothesis" in sys.modules:
        return  # Its time is spent, see `_insert_empty_package`.
    sys.modules["hypothesis"] = None  # type: ignore[assignment]  # Imports of it fail.
    try:
        import_module("kio.static.primitive")
    finally:
        del sys.modules["hypothesis"]


def _insert_empty_package(name: str) -> ModuleType:
    """Register a package without running its code, so its submodules can be imported.

    A package stays as it is if it was imported before the program began, as a ``sitecustomize``
    does that instruments libraries.
    """
    if name in sys.modules:
        return sys.modules[name]
    spec = find_spec(name)
    assert spec is not None, f"{name} is a dependency of sharegroup"
    package = module_from_spec(spec)
    sys.modules[name] = package
    return package
