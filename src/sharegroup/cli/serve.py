"""``sharegroup serve``: a broker in the foreground until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from pathlib import Path

import click

from sharegroup import freed_memory
from sharegroup.cli.properties import read_properties
from sharegroup.errors import InvalidConfig


@click.command("serve")
@click.option("--host", default=None, help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), default=None, help="0 picks a free one.")
@click.option(
    "--data", type=click.Path(file_okay=False, path_type=Path), default=None, help="Data directory."
)
@click.option(
    "--durability",
    type=click.Choice(["fsync", "os"]),
    default=None,
    help="Answer a write after the disk has it (fsync) or after write(2) (os).",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    default=None,
    help="Serve metrics for Prometheus at /metrics on this port; 0 picks a free one.",
)
@click.option(
    "--set", "settings", metavar="KEY=VALUE", multiple=True, help="A setting, by Kafka's name."
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A server.properties to read first.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
)
@click.option("--insecure", is_flag=True, help="Allow listening beyond this machine, unprotected.")
def command(  # The options of one verb; click passes each as an argument.
    *,
    host: str | None,
    port: int | None,
    data: Path | None,
    durability: str | None,
    metrics_port: int | None,
    settings: tuple[str, ...],
    config_file: Path | None,
    log_level: str,
    insecure: bool,
) -> None:
    """Run a broker in the foreground; SIGTERM or Ctrl-C stops it cleanly.

    Prints one line when it accepts connections:

    \b
        ready bootstrap=127.0.0.1:9092 cluster=... data=...
    """
    values = dict(read_properties(config_file)) if config_file else {}
    values.update(_pair(text) for text in settings)
    if data is not None:
        values["log.dirs"] = str(data)
    if durability is not None:
        values["sharegroup.durability"] = durability
    if metrics_port is not None:
        values["sharegroup.metrics.port"] = str(metrics_port)
    if host is not None or port is not None:
        values["listeners"] = f"PLAINTEXT://{host or '127.0.0.1'}:{9092 if port is None else port}"
    logging.basicConfig(
        level=log_level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    _run(values, insecure=insecure)


def _pair(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator:
        raise click.BadParameter(f"{text!r}: expected KEY=VALUE", param_hint="--set")
    return key.strip(), value.strip()


def _run(values: dict[str, str], *, insecure: bool) -> None:
    # What is imported here stays as long as the process: to look through it for garbage, now and
    # at each collection from now on, is in vain.
    gc.disable()
    import uvloop

    from sharegroup.broker.app import run_until
    from sharegroup.broker.configuration.config import Config

    freed_memory.keep_for_requests()
    gc.freeze()
    gc.enable()
    try:
        config = Config.parse(values)
    except InvalidConfig as error:
        raise click.UsageError(str(error)) from error

    async def serve() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await run_until(stop, config, insecure=insecure, ready=_say_ready)

    uvloop.run(serve())


def _say_ready(bootstrap: str, cluster_id: str, data: str) -> None:
    click.echo(f"ready bootstrap={bootstrap} cluster={cluster_id} data={data}")
    sys.stdout.flush()
