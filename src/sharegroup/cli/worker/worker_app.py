"""Loads the application that a command line names, for example ``orders.app:app``.

`load` imports it from the current folder, as Python's ``-m`` would. An error inside the
application's module is shown with its traceback; an error in the name gets one line.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import traceback
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import click

from sharegroup.cli.common.client_properties import client_options
from sharegroup.cli.common.cluster_access import CONFIG_OPTION, Access, NamedCluster, profile_option
from sharegroup.cli.common.options import Verb, gathered
from sharegroup.cli.common.output import complain
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.errors import MissingExtra
from sharegroup.worker.app import App

HERE = Path(__file__).name
HINT = "APP"
DEFAULT_TIMEOUT_MS = 60_000

BOOTSTRAP = click.option(
    "--bootstrap-server",
    "--bootstrap",
    "bootstrap_servers",
    metavar="HOST:PORT,...",
    help="Brokers to connect to first.  [default: SHAREGROUP_BOOTSTRAP, or those of the "
    "application, or as for the other commands]",
)
COMMAND_CONFIG = click.option(
    "--command-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with client properties, as for Kafka's tools; overrides those of the application.",
)


class ImportFailed(click.ClickException):
    """The application's module raised while it was imported."""


@dataclass(frozen=True, slots=True)
class Overrides:
    """The cluster address and the client properties that a command line gives an application."""

    bootstrap_servers: str | None
    command_config: Path | None
    profile: str | None = None

    def apply_to(self, app: App) -> None:
        """Set in the application what the options name; the rest is its own choice of a cluster."""
        named = NamedCluster.of(self.bootstrap_servers, self.command_config, self.profile)
        for address in named.addresses:
            if address.bootstrap_servers:
                app.talk_to(address.bootstrap_servers, address.origin)
                break
        app.client_options |= client_options(
            named.properties,
            ClientConfig,
            warn=complain,
            origin=" and ".join(named.origins) or CONFIG_OPTION,
        )


override_options = gathered("overrides", Overrides, BOOTSTRAP, profile_option, COMMAND_CONFIG)
"""Adds the options of the cluster to a verb, which is called with ``overrides``."""


def app_options(verb: Verb) -> Verb:
    """Add the argument APP and options that override it to a verb called with ``app``."""

    @functools.wraps(verb)
    def with_app(*, app_name: str, overrides: Overrides, **rest: Any) -> Any:
        app = load(app_name)
        overrides.apply_to(app)
        return verb(app=app, app_name=app_name, **rest)

    return click.argument("app_name", metavar="APP")(override_options(with_app))


def access_of(app: App) -> Access:
    """Return the access of the application's cluster, for error messages."""
    choice = app.cluster
    return Access(
        choice.bootstrap_servers,
        int(app.client_options.get("default_api_timeout_ms", DEFAULT_TIMEOUT_MS)),
        {},
        choice.origin,
    )


def load(name: str) -> App:
    """Return the application ``module:name``; without a name, the only one of the module."""
    module_name, _, attribute = name.partition(":")
    if module_name.endswith(".py") or "/" in module_name:
        dotted = ".".join(Path(module_name).with_suffix("").parts)
        raise click.BadParameter(
            f"{name!r} is a file; expected MODULE:NAME, for example {dotted}:{attribute or 'app'}",
            param_hint=HINT,
        )
    module = _imported(module_name)
    if not attribute:
        return _only_app(module)
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise click.BadParameter(
                f"{module_name} has no {part!r}; {_apps_text(module)}", param_hint=HINT
            )
        value = getattr(value, part)
    app = _app_of(value)
    if app is None:
        raise click.BadParameter(
            f"{name} is of type {type(value).__name__}, not an App; {_apps_text(module)}",
            param_hint=HINT,
        )
    return app


def _app_of(value: object) -> App | None:
    """Return the application that a value is or has below it; None for all others."""
    if isinstance(value, App):
        return value
    # Only if the application has imported it.
    tasks = sys.modules.get("sharegroup.worker.tasks.task_app")
    if tasks is not None and isinstance(value, tasks.TaskApp):
        app: App = value.worker_app
        return app
    return None


def _imported(name: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        # The module or a package of it is missing, not a module that it imports.
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise click.BadParameter(
                f"module {error.name!r} is neither in {folder} nor on Python's path",
                param_hint=HINT,
            ) from error
        raise _failed(name, error) from error
    except Exception as error:  # The code of the application may raise anything.
        raise _failed(name, error) from error


def _failed(name: str, error: Exception) -> ImportFailed:
    """Print the traceback from the application's first frame on, and return the error.

    A missing extra needs no traceback: the error says what to install.
    """
    own = _from_application(error.__traceback__)
    if isinstance(error, MissingExtra) or isinstance(error.__cause__, MissingExtra):
        where = f" ({own.tb_frame.f_code.co_filename}:{own.tb_lineno})" if own else ""
        return ImportFailed(f"{name} could not be imported: {error}{where}")
    click.echo("".join(traceback.format_exception(type(error), error, own)), err=True, nl=False)
    return ImportFailed(f"{name} could not be imported: {type(error).__name__}: {error}")


def _from_application(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the frames of this module and of the import machinery."""
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
    values = {name: _app_of(value) for name, value in vars(module).items()}
    return {name: app for name, app in values.items() if app is not None}


def _apps_text(module: ModuleType) -> str:
    names = [f"{module.__name__}:{name}" for name in _apps(module)]
    if names:
        return f"there is {', '.join(names)}"
    # Names the file, because a module of Python may hide a file with the same name.
    return f"there is no App in it ({getattr(module, '__file__', None) or 'a part of Python'})"


def source_folder(name: str) -> Path:
    """Return the folder of the application's package without running its code."""
    top = name.partition(":")[0].partition(".")[0]
    sys.path.insert(0, str(Path.cwd()))
    # Only the top package: to find a submodule, Python runs the code of its packages.
    spec = importlib.util.find_spec(top)
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).resolve().parent
    return Path.cwd()


def is_module(name: str) -> bool:
    """Return whether a name without dots is that of a module, which is not imported."""
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return "." in name or "/" in name or importlib.util.find_spec(name) is not None
