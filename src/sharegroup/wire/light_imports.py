"""Imports of three libraries without what they drag along: most of a broker's start.

- kio registers strategies with Hypothesis wherever Hypothesis can be imported, which takes half
  a second in every development environment, for nothing but tests of kio.
- aiokafka's package imports its whole client, and its codec the formats of old; we want the
  compiled codec of today's format alone.
- crc32c's package reads its own version from its distribution's metadata, which brings the
  parsers of e-mail and of command lines: 15 ms for one function.

The libraries stay whole for everybody else: Hypothesis is only hidden while kio is imported, and
a package's own code runs when somebody asks it for a name that is not there yet.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any


class _DeferredPackage(ModuleType):
    """A package whose own code runs when a name of it is asked for, not when a submodule is."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__all__", "__version__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self.__class__ = ModuleType  # type: ignore[assignment]  # Ordinary from now on.
        assert self.__spec__ is not None
        assert self.__spec__.loader is not None
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def import_kio() -> None:
    """Import kio's primitives without Hypothesis, unless that is there already."""
    if "kio.static.primitive" in sys.modules or "hypothesis" in sys.modules:
        return
    sys.modules["hypothesis"] = None  # type: ignore[assignment]  # Python: not here.
    try:
        import_module("kio.static.primitive")
    finally:
        del sys.modules["hypothesis"]


def defer_aiokafka() -> None:
    """Let ``aiokafka.record.default_records`` be imported without the rest of aiokafka."""
    _defer("aiokafka")
    _defer("aiokafka.record")


def defer_crc32c() -> None:
    """Let ``from crc32c import crc32c`` bring the compiled module and nothing else."""
    package = _defer("crc32c")
    if package is not None:
        package.crc32c = import_module("crc32c._crc32c").crc32c  # type: ignore[attr-defined]


def _defer(name: str) -> ModuleType | None:
    """Put the package there without running its code; None if it is there already."""
    if name in sys.modules:
        return None
    spec = find_spec(name)
    assert spec is not None, f"{name} is a dependency of sharegroup"
    package = module_from_spec(spec)
    package.__class__ = _DeferredPackage
    sys.modules[name] = package
    return package
