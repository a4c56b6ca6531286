"""``orders.app:app``: the application that a command is about.

`load` imports it from the current folder, as Python's own ``-m`` would.  What goes wrong inside
of the application's module is shown with its traceback; what is wrong with the name is said.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import click

from sharegroup.cli.asking import Access
from sharegroup.cli.client_properties import client_options
from sharegroup.cli.output import complain
from sharegroup.cli.properties import read_properties
from sharegroup.client.config import ClientConfig
from sharegroup.worker.app import App

HERE = Path(__file__).name
HINT = "APP"

BOOTSTRAP = click.option(
    "--bootstrap",
    "--bootstrap-server",
    metavar="HOST:PORT,...",
    help="Where a broker of the cluster is.  [default: the application's]",
)
COMMAND_CONFIG = click.option(
    "--command-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Client properties as for Kafka's tools, beside those of the application.",
)


class ImportFailed(click.ClickException):
    """The application's module raised while it was imported."""


def app_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the argument APP and options that override it; it is called with ``app``."""

    @functools.wraps(verb)
    def with_app(
        *, app_name: str, bootstrap: str | None, command_config: Path | None, **rest: Any
    ) -> Any:
        app = load(app_name)
        override(app, bootstrap, command_config)
        return verb(app=app, app_name=app_name, **rest)

    for option in (COMMAND_CONFIG, BOOTSTRAP, click.argument("app_name", metavar="APP")):
        with_app = option(with_app)
    return with_app


def override(app: App, bootstrap: str | None, command_config: Path | None) -> None:
    """Let the command line say where the cluster is, and how to get in."""
    properties = dict(read_properties(command_config)) if command_config else {}
    where = bootstrap or properties.pop("bootstrap.servers", None)
    if where is not None:
        app.bootstrap = where
    app.client_options |= client_options(properties, ClientConfig, warn=complain)


def access_of(app: App) -> Access:
    """Where the application's cluster is, for what is said of errors."""
    where = app.bootstrap if isinstance(app.bootstrap, str) else ",".join(app.bootstrap)
    return Access(where, int(app.client_options.get("default_api_timeout_ms", 60_000)), {})


def load(name: str) -> App:
    """The application that ``module:name`` names; without a name the only one in the module."""
    module_name, _, attribute = name.partition(":")
    if module_name.endswith(".py") or "/" in module_name:
        dotted = ".".join(Path(module_name).with_suffix("").parts)
        raise click.BadParameter(
            f"{name!r} is a file; expected MODULE:NAME, as {dotted}:{attribute or 'app'}",
            param_hint=HINT,
        )
    module = _imported(module_name)
    if not attribute:
        return _only_app(module)
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise click.BadParameter(
                f"{module_name} has no {part!r}; {_apps_text(module)}", param_hint=HINT
            )
        found = getattr(found, part)
    if not isinstance(found, App):
        raise click.BadParameter(
            f"{name} is of type {type(found).__name__}, not an App; {_apps_text(module)}",
            param_hint=HINT,
        )
    return found


def _imported(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        # The module itself, or a package around it; not something that it wants to import.
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise click.BadParameter(
                f"there is no module {error.name!r} in {here} or on Python's path",
                param_hint=HINT,
            ) from error
        raise _failed(name, error) from error
    except Exception as error:  # Whatever the application's module does.
        raise _failed(name, error) from error


def _failed(name: str, error: Exception) -> ImportFailed:
    """The error, after its traceback from the application's first line on."""
    own = _from_application(error.__traceback__)
    click.echo("".join(traceback.format_exception(type(error), error, own)), err=True, nl=False)
    return ImportFailed(f"{name} could not be imported: {type(error).__name__}: {error}")


def _from_application(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames of this module and of the import machinery."""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if Path(file).name != HERE and "importlib" not in file:
            return trace
        trace = trace.tb_next
    return None


def _only_app(module: ModuleType) -> App:
    apps = _apps(module)
    if len(apps) != 1:
        raise click.BadParameter(
            f"which App of {module.__name__}? {_apps_text(module)}", param_hint=HINT
        )
    return next(iter(apps.values()))


def _apps(module: ModuleType) -> dict[str, App]:
    return {name: one for name, one in vars(module).items() if isinstance(one, App)}


def _apps_text(module: ModuleType) -> str:
    names = [f"{module.__name__}:{name}" for name in _apps(module)]
    if names:
        return f"there is {', '.join(names)}"
    # A file named as a module of Python's own is not the one that was imported.
    return f"there is no App in it ({getattr(module, '__file__', None) or 'a part of Python'})"


def source_folder(name: str) -> Path:
    """The folder of the application's package, found without running any of its code."""
    top = name.partition(":")[0].partition(".")[0]
    sys.path.insert(0, str(Path.cwd()))
    found = importlib.util.find_spec(top)
    if found is not None and found.origin is not None:
        return Path(found.origin).resolve().parent
    return Path.cwd()
