"""A streaming read gives every record once, with the columns of Spark's Kafka source."""

from __future__ import annotations

from tests.spark.conftest import produce, run_available, stream


def collected(frame, checkpoint):
    """All rows of an ``availableNow`` run."""
    rows = []
    run_available(frame, checkpoint, lambda batch, _: rows.extend(batch.collect()))
    return rows


def test_every_record_is_read_once(spark, bootstrap, topic, group, tmp_path):
    produce(bootstrap, topic, *(b"%d" % number for number in range(1_000)))
    frame = stream(spark, bootstrap, topic, group)
    rows = collected(frame, tmp_path / "checkpoint")
    assert sorted(int(row["value"]) for row in rows) == list(range(1_000))
    assert {row["topic"] for row in rows} == {topic}
    produce(bootstrap, topic, b"later")
    assert [row["value"] for row in collected(frame, tmp_path / "checkpoint")] == [b"later"]
