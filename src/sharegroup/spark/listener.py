"""`ShareGroupListener`: publishes the figures of queries over ``kafka-share``.

    spark.streams.addListener(ShareGroupListener(spark, registry=prometheus_client.REGISTRY))

Spark calls a listener after each batch, and every ten seconds while a query has nothing to do
(``spark.sql.streaming.noDataProgressEventInterval``).  An idle call has no figures, so they are
read from the query's last progress: without them the lag would stay at what it was when the last
batch began.

The calls come from a thread of Spark; the figures are passed on in that thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from sharegroup.escaping import escaped
from sharegroup.spark.query_figures import OUTCOMES, Progress, QueryFigures

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from rich.console import Console

log = logging.getLogger("sharegroup.spark.query")


class ShareGroupListener(StreamingQueryListener):
    """Publishes lag, held and carried records, rows, outcomes and batch times of queries.

    ``registry`` is a Prometheus registry (extra ``metrics``). ``console`` is a rich console: a
    table that is renewed on a terminal, a line for each report elsewhere. ``is_logged`` writes a
    line ``event=query.progress`` with INFO to the logger ``sharegroup.spark.query``.
    ``on_figures`` is called with each report, in a thread of Spark.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        registry: CollectorRegistry | None = None,
        console: Console | None = None,
        is_logged: bool = True,
        on_figures: Callable[[QueryFigures], None] | None = None,
    ) -> None:
        self.spark = spark  # PySpark's own attribute, which it only sets with Spark Connect.
        self._progress = Progress()
        self._publish: list[Callable[[QueryFigures], None]] = []
        self._ended: list[Callable[[str, str], None]] = []
        if is_logged:
            self._publish.append(log_figures)
        if registry is not None:
            # Imported here because prometheus-client is an extra.
            from sharegroup.spark.query_metrics import QueryMetrics

            metrics = QueryMetrics(registry)
            self._publish.append(metrics.publish)
            self._ended.append(metrics.end)
        if console is not None:
            # Imported here because rich takes a while, and most drivers have no terminal.
            from sharegroup.spark.query_table import QueryTable

            table = QueryTable(console)
            self._publish.append(table.publish)
            self._ended.append(table.end)
        if on_figures is not None:
            self._publish.append(on_figures)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  Spark's names.
        """Log that a query has started; whether it has a share group is not known yet."""
        log.debug("event=query.started query=%s run=%s", event.name or event.id, event.runId)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Publish the figures of a batch."""
        self._tell(event.progress, is_idle=False)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Publish the figures of a query without new records."""
        assert self.spark is not None
        query = self.spark.streams.get(str(event.id))
        last = query.lastProgress if query else None
        if last is not None:
            self._tell(last, is_idle=True)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Remove the query's figures, and log the error that ended it."""
        run_id = str(event.runId)
        self._progress.forget(run_id)
        for end in self._ended:
            end(str(event.id), run_id)
        if event.exception is not None:
            log.error(
                "event=query.failed query=%s run=%s error=%r action='start the query again; it "
                "continues from its checkpoint'",
                event.id,
                event.runId,
                event.exception.partition("\n")[0],
            )

    def _tell(self, report: dict[str, object], *, is_idle: bool) -> None:
        figures = self._progress.figures(report, is_idle=is_idle)
        if figures is not None:
            for publish in self._publish:
                publish(figures)


def log_figures(figures: QueryFigures) -> None:
    """Log a line for each share group of the query, and another one if its member is idle."""
    for group in figures.groups:
        outcomes = " ".join(f"{name}={group.added[name]}" for name in OUTCOMES)
        log.info(
            "event=query.progress query=%s group=%s batch=%d rows=%d rows_per_second=%.0f "
            "batch_ms=%d lag=%s held=%d carried=%d %s%s",
            escaped(figures.name),
            escaped(group.group),
            figures.batch_id,
            figures.rows,
            figures.rows_per_second,
            figures.batch_ms,
            "unknown" if group.lag is None else group.lag,
            group.held,
            group.carried,
            outcomes,
            "".join(f" {state}={count}" for state, count in group.states.items()),
        )
        if group.idle_cause:
            log.warning(
                "event=query.idle query=%s group=%s idle_seconds=%d %s",
                escaped(figures.name),
                escaped(group.group),
                group.idle_seconds,
                escaped(group.idle_cause),
            )
