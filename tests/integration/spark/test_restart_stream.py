"""Whole queries: triggers, progress, and restarts from a checkpoint."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.integration.spark.conftest import produce, run_available, set_group_config, stream

WAIT_SECONDS = 60.0


class Sink:
    """Rows by batch: a batch that is run again replaces what it wrote before."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[int, int]]] = {}
        self.fails_in: int | None = None

    def write(self, batch: DataFrame, batch_id: int) -> None:
        self.batches[batch_id] = [
            (row.partition, row.offset) for row in batch.select("partition", "offset").collect()
        ]
        if batch_id == self.fails_in:
            raise RuntimeError("the sink has failed")

    @property
    def rows(self) -> list[tuple[int, int]]:
        return sorted(row for rows in self.batches.values() for row in rows)


def start(frame: DataFrame, checkpoint: Path, sink: Sink, **trigger: str) -> StreamingQuery:
    writer = frame.writeStream.foreachBatch(sink.write)
    if trigger:
        writer = writer.trigger(**trigger)  # type: ignore[call-overload]
    return writer.option("checkpointLocation", str(checkpoint)).start()


def wait(query: StreamingQuery, reached: Callable[[], bool], what: str) -> None:
    limit = time.monotonic() + WAIT_SECONDS
    while not reached():
        assert query.isActive, query.exception()
        assert time.monotonic() < limit, what
        query.awaitTermination(0.05)


def reported(query: StreamingQuery) -> dict[str, int]:
    """What the last progress says of the share group; empty before there is one."""
    progress = query.lastProgress
    said = progress and progress["sources"][0]["latestOffset"]
    return json.loads(said) if said and said != "null" else {}


def test_default_trigger_delivers_and_settles_new_records(
    spark: SparkSession, bootstrap: str, topic: str, group: str, tmp_path: Path
) -> None:
    sink = Sink()
    query = start(stream(spark, bootstrap, topic, group), tmp_path / "checkpoint", sink)
    try:
        for round_ in range(2):
            produce(bootstrap, topic, b"a", b"b", b"c", partition=0)
            expected = [(0, offset) for offset in range(3 * round_ + 3)]
            wait(query, lambda: sink.rows == expected, f"{expected} did not come")  # noqa: B023
    finally:
        query.stop()
    run_available(stream(spark, bootstrap, topic, group), tmp_path / "checkpoint", sink.write)
    assert sink.rows == [(0, offset) for offset in range(6)], "shown once, also after a restart"


@pytest.mark.slow
def test_progress_reports_the_group(
    spark: SparkSession, bootstrap: str, topic: str, group: str, tmp_path: Path
) -> None:
    # Spark reports a trigger without data every ten seconds, unless told otherwise.
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "0")
    produce(bootstrap, topic, *[b"x"] * 40)
    sink = Sink()
    query = start(
        stream(spark, bootstrap, topic, group),
        tmp_path / "checkpoint",
        sink,
        processingTime="200 milliseconds",
    )
    try:
        wait(query, lambda: reported(query).get("accepted") == 40, "40 records were not accepted")
        wait(query, lambda: reported(query)["lag"] == 0, "the lag is not 0")
        said = reported(query)
    finally:
        query.stop()
        spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")
    assert said == {
        "group": group,
        "lag": 0,
        "held": 0,
        "carried": 0,
        "acquired": 40,
        "redelivered": 0,
        "accepted": 40,
        "released": 0,
        "rejected": 0,
        "recognised": 0,
        "lostAcknowledgements": 0,
        "idleSeconds": 0,
        "idleCause": None,
    }


@pytest.mark.slow
def test_a_failed_batch_is_run_again_with_the_same_rows(
    spark: SparkSession, bootstrap: str, topic: str, group: str, tmp_path: Path
) -> None:
    """The restarted query replays it, though meanwhile its records were given back."""
    sink = Sink()
    frame = stream(spark, bootstrap, topic, group)
    produce(bootstrap, topic, b"a", b"b", partition=0)
    run_available(frame, tmp_path / "checkpoint", sink.write)
    produce(bootstrap, topic, *[b"c"] * 50)
    sink.fails_in = max(sink.batches) + 1
    query = start(frame, tmp_path / "checkpoint", sink, availableNow=True)  # type: ignore[arg-type]
    with pytest.raises(StreamingQueryException, match="the sink has failed"):
        query.awaitTermination(WAIT_SECONDS)
    failed_in, sink.fails_in = sink.fails_in, None
    failed = sink.batches.pop(failed_in)
    run_available(frame, tmp_path / "checkpoint", sink.write)
    assert sorted(sink.batches[failed_in]) == sorted(failed)
    assert sink.rows == sorted([(0, offset) for offset in range(27)] + [(1, o) for o in range(25)])


@pytest.mark.slow
def test_killed_reader_ends_the_query_and_the_next_start_continues(
    spark: SparkSession, bootstrap: str, topic: str, group: str, tmp_path: Path
) -> None:
    """The records that the reader held come again when their locks have run out."""
    set_group_config(bootstrap, group, "share.record.lock.duration.ms", "8000")
    sink = Sink()
    frame = stream(spark, bootstrap, topic, group)
    query = start(frame, tmp_path / "checkpoint", sink)
    produce(bootstrap, topic, *[b"a"] * 30)
    wait(query, lambda: len(sink.rows) == 30, "30 records did not come")
    for pid in readers():
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(WAIT_SECONDS)
    produce(bootstrap, topic, *[b"b"] * 10)
    run_available(frame, tmp_path / "checkpoint", sink.write)
    assert sink.rows == sorted((part, offset) for part in (0, 1) for offset in range(20))


def readers() -> list[int]:
    """The reader processes of this machine that descend from this process."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and b"streaming_source_runner" in _read(entry / "cmdline"):
            found += [int(entry.name)] if os.getpid() in ancestors(int(entry.name)) else []
    return found


def ancestors(pid: int) -> list[int]:
    pids = []
    while pid > 1:
        pids.append(pid)
        stat = _read(Path(f"/proc/{pid}/stat")).rpartition(b")")[2].split()
        pid = int(stat[1]) if stat else 0
    return pids


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # It ended meanwhile.


def test_trigger_once_is_refused_with_the_reason(
    spark: SparkSession, bootstrap: str, topic: str, group: str, tmp_path: Path
) -> None:
    frame = stream(spark, bootstrap, topic, group)
    query = start(frame, tmp_path / "checkpoint", Sink(), once=True)  # type: ignore[arg-type]
    with pytest.raises(StreamingQueryException, match=r"use trigger\(availableNow=True\)"):
        query.awaitTermination(WAIT_SECONDS)


@pytest.mark.slow
def test_a_checkpoint_of_another_group_is_refused(
    spark: SparkSession, bootstrap: str, topic: str, group: str, tmp_path: Path
) -> None:
    run_available(stream(spark, bootstrap, topic, group), tmp_path / "checkpoint", Sink().write)
    other = stream(spark, bootstrap, topic, "another")
    query = start(other, tmp_path / "checkpoint", Sink(), availableNow=True)  # type: ignore[arg-type]
    with pytest.raises(StreamingQueryException, match=f"belongs to share group '{group}'"):
        query.awaitTermination(WAIT_SECONDS)
