"""Imports the modules that an application of tasks is given by name: settings, and tasks."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec

from sharegroup.errors import InvalidConfig


def imported(source: object) -> object:
    """Return what a dotted path names, a module or a name in one; other objects stay."""
    if not isinstance(source, str):
        return source
    path, _, attribute = source.partition(":")
    try:
        module = import_module(path)
    except ModuleNotFoundError as error:
        parent, _, last = path.rpartition(".")
        # Another name is that of a module which the settings themselves import.
        if attribute or not parent or error.name != path:
            raise
        return getattr(import_module(parent), last)
    return getattr(module, attribute) if attribute else module


def import_related(packages: Iterable[str] | None, related_name: str) -> None:
    """Import a module of each package that has it; None stands for Django's applications."""
    if packages is None:
        apps = sys.modules.get("django.apps")
        if apps is None:
            raise InvalidConfig(
                "autodiscover_tasks(): there is no Django here; expected packages: "
                "app.autodiscover_tasks(['shop', 'mail'])"
            )
        packages = [config.name for config in apps.apps.get_app_configs()]
    for package in packages:
        name = f"{package}.{related_name}"
        if find_spec(name) is not None:
            import_module(name)
