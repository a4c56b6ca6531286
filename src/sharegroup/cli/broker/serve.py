"""``sharegroup serve``: runs a broker in the foreground until a signal stops it."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import re
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sharegroup import event_loop, freed_memory, stop_signals
from sharegroup.cli.broker.kafka_environment import settings_from, variables_in
from sharegroup.cli.common.light_imports import import_lightly
from sharegroup.cli.common.log_lines import start_logging
from sharegroup.cli.common.output import printable
from sharegroup.cli.common.properties import origin_of, read_numbered
from sharegroup.errors import InvalidConfig
from sharegroup.escaping import escaped

if TYPE_CHECKING:
    from sharegroup.broker.configuration.config import Config


log = logging.getLogger(__name__)
LOCAL = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104  These are compared, not bound.
"""The addresses on this machine of ports that listen on all addresses."""


@click.command("serve")
@click.option("--host", default=None, help="Address to listen on.  [default: 127.0.0.1]")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=None,
    help="Port to listen on; 0: a free port.  [default: 9092]",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, readable=False, path_type=Path),
    default=None,
    help="Data directory.",
)
@click.option(
    "--durability",
    type=click.Choice(["fsync", "os"]),
    default=None,
    help="Acknowledge a write after it is on disk (fsync) or after write(2) (os).",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    default=None,
    help="Serve metrics for Prometheus at /metrics on this port; 0: a free port.",
)
@click.option(
    "--console-port",
    type=click.IntRange(0, 65535),
    default=None,
    help="Run the console, a page for the browser, as a process of its own on this port of "
    "127.0.0.1; 0: a free port.",
)
@click.option(
    "--console-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Properties file with which the console connects, if the listener has TLS or logins.",
)
@click.option(
    "--test-port",
    type=click.IntRange(0, 65535),
    default=None,
    help="For tests: take faults over HTTP on this port; 0: a free port.  Loopback only.",
)
@click.option(
    "--set", "settings", metavar="KEY=VALUE", multiple=True, help="Value of a configuration key."
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Properties file with configuration keys; --set overrides it.",
)
@click.option(
    "--kafka-env",
    is_flag=True,
    help="Take configuration keys from variables such as KAFKA_NUM_PARTITIONS, as Apache Kafka's "
    "container images do; --set overrides them, and they override --config.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Allow connections from other machines without TLS and passwords.",
)
def command(  # The options of one verb; click passes each as an argument.
    *,
    host: str | None,
    port: int | None,
    data: Path | None,
    durability: str | None,
    metrics_port: int | None,
    console_port: int | None,
    console_config: Path | None,
    test_port: int | None,
    settings: tuple[str, ...],
    config_file: Path | None,
    kafka_env: bool,
    log_level: str,
    insecure: bool,
) -> None:
    """Run a broker in the foreground; SIGTERM, Ctrl-C or a closed terminal stops it cleanly.

    Prints one line when it accepts connections:

    \b
        ready bootstrap=127.0.0.1:9092 cluster=... data=...

    With --test-port there is a line before it, `faults http://127.0.0.1:...`.
    With --console-port a line follows, `console http://127.0.0.1:...`.
    """
    values, origins = _settings(config_file, os.environ if kafka_env else {})
    if host is not None or port is not None:
        # The options replace the addresses of the file, also those that it advertises.
        values.pop("advertised.listeners", None)
    values.update(_pair(text) for text in settings)
    if host is not None or port is not None:
        values["listeners"] = f"PLAINTEXT://{host or '127.0.0.1'}:{9092 if port is None else port}"
    if data is not None:
        values["log.dirs"] = str(data)
    if durability is not None:
        values["sharegroup.durability"] = durability
    if metrics_port is not None:
        values["sharegroup.metrics.port"] = str(metrics_port)
    handler = start_logging(log_level)
    if click.get_current_context().obj:
        # Only in the program's own process: it hides modules from later imports, which would break
        # other code in a process that calls `main` or embeds the broker (ADR 0024).
        import_lightly()
    with _named_origin({key: place for key, place in origins.items() if key in values}):
        _run(
            values,
            insecure=insecure,
            test_port=test_port,
            console=_console(console_port, console_config),
            log_handler=handler,
        )


def _settings(
    file: Path | None, environment: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings of a file and of an environment, and the line or variable of each key."""
    values, origins = {}, {}
    for number, key, value in read_numbered(file) if file else ():
        values[key], origins[key] = value, f"{escaped(str(file))}, line {number}"
    values.update(settings_from(environment))
    for key, name in variables_in(environment).items():
        origins[key] = f"variable {name}"
    return values, origins


@contextmanager
def _named_origin(origins: Mapping[str, str]) -> Iterator[None]:
    """Add to an error about a setting the line or the variable that has set it."""
    try:
        yield
    except InvalidConfig as error:
        origin = origin_of(str(error), origins)
        raise click.UsageError(f"{error} ({origin})" if origin else str(error)) from error


def _pair(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator:
        raise click.BadParameter(f"{text!r}: expected KEY=VALUE", param_hint="--set")
    return key.strip(), value.strip()


def _run(
    values: dict[str, str],
    *,
    insecure: bool,
    test_port: int | None,
    console: tuple[int, Path | None] | None,
    log_handler: logging.Handler,
) -> None:
    # Imported modules live as long as the process, so collecting garbage meanwhile is useless.
    gc.disable()
    # Imported here because `import_lightly` has to run before, and without garbage collections.
    from sharegroup.broker.app import run_until
    from sharegroup.broker.configuration.config import Config
    from sharegroup.broker.load.descriptors import raise_limit
    from sharegroup.broker.load.garbage import GarbagePolicy
    from sharegroup.broker.load.log_limit import LOG_LIMIT

    log_handler.addFilter(LOG_LIMIT)
    freed_memory.keep_for_requests()
    garbage = GarbagePolicy()
    garbage.start()
    gc.enable()
    config = Config.parse(values)
    raise_limit()
    prepared = None if console is None else _console_of(config, *console, insecure=insecure)
    started: list[asyncio.Task[None]] = []

    async def serve() -> None:
        stop = _stop_event()
        collecting = asyncio.create_task(garbage.run())
        try:
            if test_port is None:
                await run_until(stop, config, insecure=insecure, ready=ready)
            else:
                await _run_with_faults(stop, config, test_port, ready)
        finally:
            collecting.cancel()
            await _cancel(started)

    def ready(bootstrap_servers: str, cluster_id: str, data: str) -> None:
        garbage.settle()  # The data that was loaded is in use.
        _say_ready(bootstrap_servers, cluster_id, data)
        if prepared is not None:
            started.append(asyncio.create_task(prepared(bootstrap_servers)))

    try:
        event_loop.run(serve(), is_said=True)
    except OSError as error:
        text = explained(error)
        if text is None:
            raise
        raise click.ClickException(printable(text)) from error


def _console(port: int | None, config_file: Path | None) -> tuple[int, Path | None] | None:
    if port is None:
        if config_file is not None:
            raise click.UsageError("--console-config: there is no console without --console-port")
        return None
    return port, config_file


def _console_of(
    config: Config, port: int, config_file: Path | None, *, insecure: bool
) -> Callable[[str], Coroutine[Any, Any, None]]:
    """Return what runs the console for a bootstrap address; raise if it cannot run."""
    # Imported here because most brokers have no console.
    from sharegroup.broker.configuration.listeners import metrics_host, parse_listeners
    from sharegroup.broker.server.sockets import bracketed
    from sharegroup.cli.broker.console_process import (
        ConsoleOptions,
        ConsoleProcess,
        check_installed,
    )

    check_installed()
    listener = parse_listeners(config, insecure=insecure)[0]
    if config_file is None and listener.protocol != "PLAINTEXT":
        raise click.UsageError(
            f"--console-port: clients of listener {listener.name} use {listener.protocol}; "
            "give a properties file with the console's login: --console-config FILE"
        )
    metrics_port = config.server.metrics_port
    metrics_url = None
    if metrics_port > 0:
        host = metrics_host(config.server, listener, insecure=insecure)
        # A port that listens everywhere is asked on this machine.
        metrics_url = f"http://{LOCAL.get(host, bracketed(host))}:{metrics_port}"
    options = ConsoleOptions(port, config_file, metrics_url)

    async def run(bootstrap_servers: str) -> None:
        def command(port: int) -> Sequence[str]:
            return options.command(bootstrap_servers, port)

        await ConsoleProcess(command, port, say=_say_line).run()

    return run


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel tasks, and wait for their ends; an error of one is logged."""
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            log.error("event=console.failed error=%r", result)


def _say_line(text: str) -> None:
    click.echo(text)
    sys.stdout.flush()


def _stop_event() -> asyncio.Event:
    """Return an event that is set when a signal asks this process to stop."""
    stop = asyncio.Event()
    for number in stop_signals.heeded():
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def _run_with_faults(
    stop: asyncio.Event, config: Config, test_port: int, ready: Callable[[str, str, str], None]
) -> None:
    # Imported here, because only a broker under test needs it.
    from sharegroup.faults import fault_port

    try:
        fault_port.check_loopback(config)
    except InvalidConfig as error:
        raise click.UsageError(f"--test-port: {error}") from error
    await fault_port.run_until(
        stop,
        config,
        port=test_port,
        ready=ready,
        said=lambda url: click.echo(f"faults {url}"),
    )


def _say_ready(bootstrap_servers: str, cluster_id: str, data: str) -> None:
    _say_line(f"ready bootstrap={bootstrap_servers} cluster={cluster_id} data={data}")


# The operating system's errors at the start are explained in one line. The usual ones are a second
# broker on the same port or data directory, and missing rights.


ADDRESS = re.compile(r"\('([^']+)', (\d+)|(\S+):(\d+)")
"""An address in the texts of asyncio and of our own listeners."""

OTHER_PORT = "choose another port with --port or --metrics-port (0: a free port)"
OTHER_DIRECTORY = "choose another data directory with --data"


def explained(error: OSError) -> str | None:
    """Return the cause and what to do next; None if the error is not one of the start."""
    reason = error.strerror or str(error)
    if error.filename is not None:
        return _about_file(error, reason)
    if isinstance(error, socket.gaierror):
        return f"the address to listen on is not known: {reason}; check --host"
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"{_address(reason)} is in use by another process, perhaps by another broker: stop "
                f"that process, or {OTHER_PORT}"
            )
        case errno.EADDRNOTAVAIL:
            return f"{_address(reason)} is not an address of this machine; check --host"
        case errno.EACCES | errno.EPERM:
            return (
                f"this user may not listen on {_address(reason)}: ports below 1024 need "
                f"administrator rights; {OTHER_PORT}"
            )
    return None


def _about_file(error: OSError, reason: str) -> str:
    path = Path(str(error.filename))
    if isinstance(error, BlockingIOError):
        return (
            f"the data directory {path.parent} is {reason}: stop that broker, or {OTHER_DIRECTORY}"
        )
    return f"{path}: {reason}; {OTHER_DIRECTORY}, or correct its rights and its file system"


def _address(reason: str) -> str:
    found = ADDRESS.search(reason)
    if found is None:
        return f"the address ({reason})"
    return f"{found[1]}:{found[2]}" if found[1] else f"{found[3]}:{found[4]}"


# Log lines: one short line for each event, without control characters.
