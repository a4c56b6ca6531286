"""``sharegroup demo``: a year of real flights through two share groups, with crashes."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import tempfile
from collections.abc import Coroutine
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sharegroup.cli.flights.departures import PACKAGE, ROWS_MAX

if TYPE_CHECKING:
    from rich.console import Console

    from sharegroup.cli.flights.checks import Evidence
    from sharegroup.cli.flights.stage import Plan, Stage

T = TypeVar("T")

OUTPUT = Path("build/demo")
SUMMARY = "summary.json"
PICTURE = "delays.png"
SPARK_PACKAGES = ("pyspark", "pyarrow", "numpy", "matplotlib")
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
@click.option("--no-spark", is_flag=True, help="End after the first half.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="0 picks a free one.")
def command(*, rows: int, keep: bool, no_spark: bool, port: int) -> int:
    """Process a year of real flights through a share group, with crashes.

    First by workers; one of them and the broker are killed with kill -9 half way.  Then by a
    Spark query in a share group of its own, which is killed in the middle of a batch and draws
    build/demo/delays.png.  Afterwards every count must add up, by the data, by what the workers
    and the query wrote down and by the broker; if one does not, the demo says which and fails.
    """
    require_extra(spark=not no_spark)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    for name in (SUMMARY, PICTURE):
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


def require_extra(*, spark: bool) -> None:
    """Fail with what to do when the packages of the extra ``demo`` are not there."""
    needed = [PACKAGE, "msgspec", "psutil", *(SPARK_PACKAGES if spark else ())]
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise click.ClickException(
            f"the demo needs {', '.join(missing)}; install with: pip install 'sharegroup[demo]'"
        )


def _run(rows: int, port: int, folder: Path, *, spark: bool) -> bool:
    # Loaded when the extra is known to be there.
    from rich.console import Console

    from sharegroup.cli.flights.children import ChildFailed
    from sharegroup.cli.flights.stage import Plan
    from sharegroup.cli.flights.waiting import Stalled

    console = Console(highlight=False)
    try:
        figures = asyncio.run(_until_signal(_play(Plan(rows, port, folder), console, spark=spark)))
    except (ChildFailed, Stalled) as error:
        raise click.ClickException(str(error)) from error
    (OUTPUT / SUMMARY).write_text(json.dumps(figures, indent=2) + "\n")
    if spark:
        console.print(f"picture  {OUTPUT / PICTURE}")
    return bool(figures["ok"] and (not spark or figures["pipeline"]["ok"]))


async def _play(plan: Plan, console: Console, *, spark: bool) -> dict[str, Any]:
    """Both halves; each shows its figures when it has them."""
    from sharegroup.cli.flights.stage import stage

    async with stage(plan) as stage_:
        evidence, figures = await _dispatch(stage_, console)
        if spark:
            figures["pipeline"] = await _pipeline(stage_, evidence, console)
    return figures


async def _dispatch(stage: Stage, console: Console) -> tuple[Evidence, dict[str, Any]]:
    from sharegroup.cli.flights.checks import checks
    from sharegroup.cli.flights.dispatch_run import DispatchRun
    from sharegroup.cli.flights.screen import screen
    from sharegroup.cli.flights.summary import rows, summary
    from sharegroup.cli.flights.table import show

    with screen(console, stage.plan.rows, "produced", "settled") as view:
        run = DispatchRun(stage, view)
        evidence = await run.run()
    figures = summary(run.accounts, evidence, run.course, checks(run.accounts, evidence))
    show(rows(figures), figures["checks"], console)
    return evidence, figures


async def _pipeline(stage: Stage, dispatch: Evidence, console: Console) -> dict[str, Any]:
    from sharegroup.cli.flights.picture import draw
    from sharegroup.cli.flights.pipeline_checks import pipeline_checks
    from sharegroup.cli.flights.pipeline_run import PipelineRun
    from sharegroup.cli.flights.pipeline_summary import pipeline_rows, pipeline_summary
    from sharegroup.cli.flights.screen import screen
    from sharegroup.cli.flights.table import show

    console.print("Now a Spark query over the same flights, in share group pipeline; Spark starts.")
    with screen(console, stage.plan.rows, "written") as view:
        run = PipelineRun(stage, dispatch.kinds, view)
        evidence = await run.run()
    checked = pipeline_checks(run.account, evidence)
    figures = pipeline_summary(run.account, evidence, run.course, checked)
    show(pipeline_rows(figures), figures["checks"], console)
    draw(run.account.result.delays, OUTPUT / PICTURE)
    return figures


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
