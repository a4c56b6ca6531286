"""``sharegroup demo``: a year of real flights through a share group, with crashes."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import tempfile
from collections.abc import Coroutine
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import click

from sharegroup.cli.flights.departures import PACKAGE, ROWS_MAX

T = TypeVar("T")

OUTPUT = Path("build/demo")
ROWS_MIN = 1_000
"""With fewer all is done before a worker can be killed half way."""

SIGNALS = (signal.SIGTERM, signal.SIGHUP)
"""They end the demo as Ctrl-C does: no process and no data stay behind."""


@click.command("demo")
@click.option(
    "--rows",
    type=click.IntRange(ROWS_MIN, ROWS_MAX),
    default=ROWS_MAX,
    show_default=True,
    help="How many flights.",
)
@click.option("--keep", is_flag=True, help="Keep the data directory, the ledgers and the logs.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="0 picks a free one.")
def command(*, rows: int, keep: bool, port: int) -> int:
    """Process a year of real flights through a share group, with crashes.

    A worker and the broker are killed with kill -9 half way.  Afterwards every count must add
    up, by the data, by the workers' ledgers and by the broker; if one does not, the demo says
    which and fails.
    """
    require_extra()
    OUTPUT.mkdir(parents=True, exist_ok=True)
    (OUTPUT / "summary.json").unlink(missing_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=OUTPUT))
    keep_for_a_look = False
    try:
        ok = _run(rows, port, folder)
        keep_for_a_look = not ok
    except click.exceptions.Exit:
        raise
    except Exception:
        keep_for_a_look = True
        raise
    finally:
        if keep or keep_for_a_look:
            click.echo(f"data, ledgers and logs are kept in {folder.resolve()}")
        else:
            shutil.rmtree(folder)
    return 0 if ok else 1


def require_extra() -> None:
    """Fail with what to do when the packages of the extra ``demo`` are not there."""
    missing = [name for name in (PACKAGE, "psutil") if find_spec(name) is None]
    if missing:
        raise click.ClickException(
            f"the demo needs {' and '.join(missing)}; install with: pip install 'sharegroup[demo]'"
        )


def _run(rows: int, port: int, folder: Path) -> bool:
    # Loaded when the extra is known to be there.
    from rich.console import Console

    from sharegroup.cli.flights.checks import checks
    from sharegroup.cli.flights.children import ChildFailed
    from sharegroup.cli.flights.run import Demo, Plan, Stalled
    from sharegroup.cli.flights.screen import screen
    from sharegroup.cli.flights.summary import show, summary

    console = Console(highlight=False)
    try:
        with screen(console, rows) as view:
            demo = Demo(Plan(rows, port, folder), progress=view.progress, event=view.event)
            evidence = asyncio.run(_until_signal(demo.run()))
    except (ChildFailed, Stalled) as error:
        raise click.ClickException(str(error)) from error
    figures = summary(demo.accounts, evidence, demo.course, checks(demo.accounts, evidence))
    (OUTPUT / "summary.json").write_text(json.dumps(figures, indent=2) + "\n")
    show(figures, console)
    return bool(figures["ok"])


async def _until_signal(work: Coroutine[Any, Any, T]) -> T:
    """The work's result; a signal cancels it and ends the program with the signal's code."""
    received: list[signal.Signals] = []
    task = asyncio.ensure_future(work)

    def stop(number: signal.Signals) -> None:
        received.append(number)
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, stop, number)
    try:
        return await task
    except asyncio.CancelledError:
        if received:
            raise click.exceptions.Exit(128 + received[0]) from None
        raise
