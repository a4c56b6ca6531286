"""Plays the demo: the dispatch by workers, then the pipeline by a Spark query, on one stage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from examples.flights.checks import Evidence, checks
from examples.flights.dispatch_run import DispatchRun
from examples.flights.picture import draw
from examples.flights.pipeline_checks import pipeline_checks
from examples.flights.pipeline_run import PipelineRun
from examples.flights.pipeline_summary import pipeline_rows, pipeline_summary
from examples.flights.query_picture import draw_query
from examples.flights.screen import screen
from examples.flights.stage import Plan, Stage, stage
from examples.flights.summary import rows, summary
from examples.flights.table import show
from examples.flights.timeline_picture import draw_timeline


@dataclass(frozen=True, slots=True)
class Pictures:
    """The files of the pictures."""

    timeline: Path
    delays: Path | None
    query: Path | None
    """Both None: the demo ends after the dispatch, without the pipeline that counts the delays."""


async def play(plan: Plan, console: Console, pictures: Pictures) -> dict[str, Any]:
    """Run the dispatch and, if there is to be a picture of the delays, the pipeline.

    Each prints its figures and draws its pictures at its end; all figures are returned.
    """
    async with stage(plan) as stage_:
        if stage_.console_url is not None:
            console.print(f"The console shows the queue while this runs: {stage_.console_url}")
        evidence, figures = await _dispatch(stage_, console, pictures.timeline)
        if pictures.delays is not None and pictures.query is not None:
            run, figures["pipeline"] = await _pipeline(stage_, evidence, console)
            draw(run.account.result.delays, run.account.result.weeks, pictures.delays)
            draw_query(run.account.figures, run.course, plan.rows, pictures.query)
    return figures


async def _dispatch(
    stage: Stage, console: Console, picture: Path
) -> tuple[Evidence, dict[str, Any]]:
    with screen(console, stage.plan.rows, "produced", "settled") as view:
        run = DispatchRun(stage, view)
        evidence = await run.run()
    figures = summary(run.accounts, evidence, run.course, checks(run.accounts, evidence))
    show(rows(figures), figures["checks"], console)
    draw_timeline(run.rates, run.course, stage.plan.rows, picture)
    return evidence, figures


async def _pipeline(
    stage: Stage, dispatch: Evidence, console: Console
) -> tuple[PipelineRun, dict[str, Any]]:
    console.print("Now a Spark query over the same flights, in share group pipeline; Spark starts.")
    with screen(console, stage.plan.rows, "written") as view:
        run = PipelineRun(stage, dispatch.kinds, view)
        evidence = await run.run()
    checked = pipeline_checks(run.account, evidence)
    figures = pipeline_summary(run.account, evidence, run.course, checked)
    show(pipeline_rows(figures), figures["checks"], console)
    return run, figures
