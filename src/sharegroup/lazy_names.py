"""Names of a package whose modules are imported at the first use of a name (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple


class LazyNames(NamedTuple):
    """What a package assigns to its own ``__getattr__``, ``__dir__`` and ``__all__``.

    It does so hidden from type checkers, which would accept every name of a module that has
    ``__getattr__``.  For them the package imports the names under ``TYPE_CHECKING``, as
    ``from module import Name as Name``: that is an export, also for users of the package.
    """

    getattr: Callable[[str], Any]
    dir: Callable[[], list[str]]
    all: list[str]


def lazy_names(package: str, modules: Mapping[str, str], *, imported: str = "") -> LazyNames:
    """Return the lazy names of a package.

    ``modules`` has the names that each module of sharegroup provides, divided by white space.
    ``imported`` has further public names, which the package has imported already.
    """
    places = {name: module for module, names in modules.items() for name in names.split()}
    names = sorted([*places, *imported.split()])

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"sharegroup.{places[name]}"), name)

    def list_all() -> list[str]:
        return sorted({*vars(sys.modules[package]), *names})

    return LazyNames(get, list_all, names)
