"""State with timers (``transformWithState``): reports sensors that have become silent.

    sharegroup serve --port 9092
    python examples/spark/silent_sensors.py 127.0.0.1:9092 silent           # rows
    python examples/spark/silent_sensors.py 127.0.0.1:9092 silent pandas    # pandas frames
    echo '{"sensor": "roof", "at": "2026-01-01T12:00:00Z"}' | sharegroup produce readings

Each sensor has a state, the time of its last reading and their number, and a timer ten minutes
after that.  A reading moves the timer; if the timer expires, the sensor is reported and its state
removed.  A share group delivers readings out of order, so the state keeps the latest time and
not that of the last row.

The timer is one of event time: it expires when the watermark, which follows the readings of all
sensors, has passed it.  State is in RocksDB and belongs to the checkpoint; a batch that is run
again after a crash finds the state before it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Row, SparkSession, functions as f
from pyspark.sql.streaming import DataStreamWriter
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

import sharegroup.spark  # noqa: F401  Sets the Python and the Java that Spark starts.

if TYPE_CHECKING:
    import pandas as pd

SILENT_MS = 10 * 60 * 1000
LATE = "1 minute"
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
"""The only state store that `transformWithState` works with."""
SILENT = "sensor STRING, readings LONG, last_ms LONG"


class SilentSensors(StatefulProcessor):
    """The processor for `transformWithState`, whose input and output are rows."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._seen = handle.getValueState("seen", "readings LONG, last_ms LONG")

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: TimerValues,
    ) -> Iterator[Row]:
        self.update([row.at_ms for row in rows])
        return iter(())

    def handleExpiredTimer(
        self,
        key: Any,
        timerValues: TimerValues,
        expiredTimerInfo: ExpiredTimerInfo,
    ) -> Iterator[Row]:
        readings, last_ms = self.forget()
        yield Row(sensor=key[0], readings=readings, last_ms=last_ms)

    def close(self) -> None:
        """Do nothing: the state belongs to Spark."""

    def update(self, times_ms: list[int]) -> None:
        """Count the readings, and move the timer to ten minutes after the latest one."""
        readings, last_ms = self._seen.get() if self._seen.exists() else (0, 0)
        latest_ms = max(last_ms, *times_ms)
        self._seen.update((readings + len(times_ms), latest_ms))
        for timer_ms in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer_ms)
        self._handle.registerTimer(latest_ms + SILENT_MS)

    def forget(self) -> tuple[int, int]:
        """Remove the state and return it."""
        readings, last_ms = self._seen.get()
        self._seen.clear()
        return readings, last_ms


class SilentSensorsInPandas(SilentSensors):
    """The processor for `transformWithStateInPandas`, whose input and output are frames."""

    def handleInputRows(  # type: ignore[override]
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,
    ) -> Iterator[pd.DataFrame]:
        self.update([at_ms for frame in rows for at_ms in frame["at_ms"].tolist()])
        return iter(())

    def handleExpiredTimer(  # type: ignore[override]
        self,
        key: Any,
        timerValues: TimerValues,
        expiredTimerInfo: ExpiredTimerInfo,
    ) -> Iterator[pd.DataFrame]:
        import pandas as pd

        readings, last_ms = self.forget()
        yield pd.DataFrame({"sensor": [key[0]], "readings": [readings], "last_ms": [last_ms]})


def silent_sensors(records: DataFrame, *, in_pandas: bool = False) -> DataFrame:
    """Return a row for each sensor that had no reading for ten minutes."""
    value = f.from_json(f.col("value").cast("string"), "sensor STRING, at TIMESTAMP").alias("v")
    readings = (
        records.select(value)
        # Milliseconds, because rows and frames disagree about the time zone of a timestamp.
        .selectExpr("v.sensor", "v.at", "unix_millis(v.at) AS at_ms")
        .where("at is not null")
    )
    by_sensor = readings.withWatermark("at", LATE).groupBy("sensor")
    if in_pandas:
        return by_sensor.transformWithStateInPandas(
            SilentSensorsInPandas(), SILENT, outputMode="append", timeMode="EventTime"
        )
    return by_sensor.transformWithState(
        SilentSensors(), SILENT, outputMode="append", timeMode="EventTime"
    )


def query(
    spark: SparkSession, bootstrap: str, folder: Path, *, in_pandas: bool = False
) -> DataStreamWriter:
    """Return the query, which appends silent sensors to Parquet files."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STATE_STORE)
    records = (
        spark.readStream.format("kafka-share")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "readings")
        .option("share.group", "watch")
        .load()
    )
    return (
        silent_sensors(records, in_pandas=in_pandas)
        .writeStream.format("parquet")
        .outputMode("append")
        .option("path", str(folder / "silent"))
        .option("checkpointLocation", str(folder / "checkpoint"))
    )


if __name__ == "__main__":
    session = SparkSession.builder.appName("silent_sensors").getOrCreate()
    writer = query(session, sys.argv[1], Path(sys.argv[2]), in_pandas=sys.argv[3:] == ["pandas"])
    writer.start().awaitTermination()
