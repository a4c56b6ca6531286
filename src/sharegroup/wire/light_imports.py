"""Imports of two libraries without what they drag along: half of a broker's start.

- kio registers strategies with Hypothesis wherever Hypothesis can be imported, which takes half
  a second in every development environment, for nothing but tests of kio.
- aiokafka's package imports its whole client; we want its compiled record codec alone.

Both libraries stay whole for everybody else: Hypothesis is only hidden while kio is imported,
and aiokafka's own code runs when somebody asks its package for a name.
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
    """Let ``aiokafka.record`` be imported without the rest of aiokafka."""
    if "aiokafka" in sys.modules:
        return
    spec = find_spec("aiokafka")
    assert spec is not None, "aiokafka is a dependency of sharegroup"
    package = module_from_spec(spec)
    package.__class__ = _DeferredPackage
    sys.modules["aiokafka"] = package
