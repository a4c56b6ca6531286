"""The picture of the query over time."""

from __future__ import annotations

import struct
from pathlib import Path

from examples.flights.pipeline_run import PipelineCourse
from examples.flights.query_account import Figures
from examples.flights.query_picture import batches, draw_query

FIGURES = [
    Figures(at=11.0, rows=100, batch_ms=500, lag=None, held=100, carried=0, recognised=0),
    Figures(at=12.0, rows=0, batch_ms=0, lag=50, held=0, carried=0, recognised=0),
    Figures(at=14.0, rows=50, batch_ms=250, lag=0, held=50, carried=20, recognised=0),
]


def test_batch_begins_its_duration_before_it_was_told() -> None:
    assert batches(FIGURES, begin=10.0) == [(0.5, 0.5, 200.0), (3.75, 0.25, 200.0)]


def test_picture_is_a_png_with_and_without_a_kill(tmp_path: Path) -> None:
    for course in (PipelineCourse(begin=10.0), PipelineCourse(begin=10.0, killed=12.5, back=13.0)):
        draw_query(FIGURES, course, 150, tmp_path / "query.png")
        head = (tmp_path / "query.png").read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n"
        assert struct.unpack(">II", head[16:24]) == (1200, 700)
