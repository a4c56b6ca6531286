"""``python -m examples.flights``: a year of real flights through two share groups, with crashes."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Coroutine
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import click

from examples.flights.departures import PACKAGE, ROWS_MAX
from sharegroup.errors import KafkaError

T = TypeVar("T")

OUTPUT = Path("build/demo")
SUMMARY = "summary.json"
TIMELINE = "timeline.png"
DELAYS = "delays.png"
QUERY = "query.png"
SPARK_PACKAGES = ("pyspark", "pyarrow", "numpy")
ROWS_MIN = 1_000
"""With fewer rows the run ends before a worker can be killed half way."""

SIGNALS = (signal.SIGTERM, signal.SIGHUP)
"""Signals that end the demo as Ctrl-C does: it leaves no processes and no data behind."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--rows",
    type=click.IntRange(ROWS_MIN, ROWS_MAX),
    default=ROWS_MAX,
    show_default=True,
    help="Number of flights.",
)
@click.option("--keep", is_flag=True, help="Keep the data directory, the ledgers and the logs.")
@click.option("--no-spark", is_flag=True, help="Stop after the first part.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port of the broker; 0: a free port."
)
def command(*, rows: int, keep: bool, no_spark: bool, port: int) -> int:
    """Process a year of real flights through a share group, with crashes.

    First, workers process the flights; one worker and the broker are killed with kill -9 halfway.
    build/demo/timeline.png shows the throughput, the retries and the dead letters over time.
    Then a Spark query processes them in its own share group; it is killed in the middle of a batch
    and draws build/demo/delays.png, the delays by carrier, hour, week and weather, and
    build/demo/query.png, the query over time.  Finally the demo compares the counts of the data, of
    the workers, of the query and of the broker.  If a check fails, the demo reports it and fails.
    """
    require_packages(spark=not no_spark)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    for name in (SUMMARY, TIMELINE, DELAYS, QUERY):
        (OUTPUT / name).unlink(missing_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=OUTPUT))
    keep_for_a_look = False
    try:
        ok = _run(rows, port, folder, spark=not no_spark)
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


def require_packages(*, spark: bool) -> None:
    """Fail with an installation hint if packages that the demo needs are missing."""
    needed = [PACKAGE, "matplotlib", "msgspec", "psutil", *(SPARK_PACKAGES if spark else ())]
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise click.ClickException(f"the demo needs {', '.join(missing)}; install with: make setup")


def _run(rows: int, port: int, folder: Path, *, spark: bool) -> bool:
    # Imported here because they need the packages that `require_packages` has checked.
    from rich.console import Console

    from examples.flights.children import ChildFailed
    from examples.flights.play import Pictures, play
    from examples.flights.stage import Plan
    from examples.flights.waiting import Stalled

    console = Console(highlight=False)
    of_query = (OUTPUT / DELAYS, OUTPUT / QUERY) if spark else (None, None)
    pictures = Pictures(OUTPUT / TIMELINE, *of_query)
    try:
        figures = asyncio.run(_until_signal(play(Plan(rows, port, folder), console, pictures)))
    except (ChildFailed, Stalled) as error:
        raise click.ClickException(str(error)) from error
    (OUTPUT / SUMMARY).write_text(json.dumps(figures, indent=2) + "\n")
    for picture in (pictures.timeline, pictures.delays, pictures.query):
        if picture is not None:
            console.print(f"picture  {picture}")
    return bool(figures["ok"] and (not spark or figures["pipeline"]["ok"]))


async def _until_signal(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``work``; a signal cancels it and ends the program with its code."""
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


def main() -> int:
    """Run the command and return its exit code: 0 done, 1 failed, 2 misused, or by a signal."""
    try:
        return int(command.main(standalone_mode=False))
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 128 + signal.SIGINT
    except (KafkaError, OSError) as error:
        click.echo(f"{type(error).__name__}: {error}", err=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
