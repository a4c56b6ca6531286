"""Charts and bars: their texts for screen readers, and numbers of any size."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, strategies as st

from sharegroup.client.admin.types import ShareRun
from sharegroup.console.drawing.charts import line_chart, short, sparkline, thinned
from sharegroup.console.drawing.runs import CELLS_MAX, GAP_CELLS_MAX, runs_bar
from sharegroup.share_runs.share_runs import ShownSharePartition

START = 1_700_000_000_000
LARGEST = 2**63 - 1
HOSTILE = '"><script>alert(1)</script>'

points = st.lists(
    st.tuples(st.integers(START, START + 10**9), st.integers(0, LARGEST)), max_size=600
).map(sorted)


def label_of(svg: str) -> str | None:
    root = ET.fromstring(svg)
    drawing = root.find("svg") if root.tag == "div" else root
    assert drawing is not None
    return drawing.get("aria-label")


def bar(runs: list[ShareRun], *, end: int, high_watermark: int, topic: str = "orders") -> str:
    start = runs[0].first_offset if runs else end
    return runs_bar(ShownSharePartition(topic, 0, start, end, high_watermark, len(runs), runs))


def test_sparkline_says_first_last_and_largest_value() -> None:
    svg = sparkline([(START, 5), (START + 1000, 12_000), (START + 2000, 7)], "records that wait")
    assert label_of(svg) == "records that wait: from 5 to 7, at most 12,000"


def test_chart_says_first_and_last_value() -> None:
    assert label_of(line_chart([(START, 5), (START + 1000, 7)], "lag")) == "lag: from 5 to 7"


def test_one_point_is_no_line() -> None:
    assert "svg" not in sparkline([(START, 5)], "lag")
    assert "no history yet" in line_chart([], "lag")


def test_labels_are_escaped() -> None:
    two = [(START, 1), (START + 1, 2)]
    for svg in (sparkline(two, HOSTILE), line_chart(two, HOSTILE)):
        assert "<script" not in svg
    assert "<script" not in bar([], end=0, high_watermark=5, topic=HOSTILE)


@given(points)
def test_numbers_of_any_size_stay_inside_the_drawing(points: list[tuple[int, int]]) -> None:
    for svg, width, height in (
        (sparkline(points, "lag"), 120, 24),
        (line_chart(points, "lag"), 1000, 200),
    ):
        for path in re.findall(r'd="M([^"Z]*)Z?"', svg):
            if "H" in path:
                continue
            for place in path.split("L"):
                x, y = map(float, place.split())
                assert 0 <= x <= width
                assert 0 <= y <= height


@given(points, st.integers(1, 50))
def test_thinned_points_keep_the_largest(points: list[tuple[int, int]], count: int) -> None:
    thin = thinned(points, count)
    assert len(thin) <= count
    assert max((value for _, value in points), default=0) == max(
        (value for _, value in thin), default=0
    )
    assert thin == sorted(thin, key=lambda point: point[0])


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"), (0.4, "0.4"), (2.5, "2.5"), (950, "950"), (999.6, "1k"), (1000, "1k"),
        (1250, "1.2k"), (9960, "10k"), (35_000_000, "35M"), (999_600, "1M"), (LARGEST, "9.2E"),
    ],
)  # fmt: skip
def test_short_numbers(number: float, text: str) -> None:
    assert short(number) == text


@given(st.floats(0, 9e18))
def test_short_numbers_have_at_most_four_characters(number: float) -> None:
    assert len(short(number)) <= 4


def test_bar_says_how_many_records_are_in_each_state() -> None:
    runs = [ShareRun(10, 11, "acquired", 1, "m", 500), ShareRun(12, 14, "acknowledged", 1)]
    svg = bar(runs, end=15, high_watermark=20)
    assert label_of(svg) == "orders 0: 2 acquired, 3 acknowledged, 5 never delivered"
    assert svg.count("<rect") == 10


def test_bar_of_many_offsets_has_no_gaps_and_few_parts() -> None:
    runs = [ShareRun(at, at, ("acquired", "acknowledged")[at % 2], 1) for at in range(20_000)]
    svg = bar(runs, end=20_000, high_watermark=LARGEST)
    assert svg.count("<rect") <= CELLS_MAX
    assert bar(runs[: GAP_CELLS_MAX + 1], end=81, high_watermark=81).count("<rect") == 81


def test_bar_without_records_is_empty() -> None:
    svg = bar([], end=7, high_watermark=7)
    assert label_of(svg) == "orders 0: no records"
    assert "<rect" not in svg


def test_one_record_among_thousands_has_a_mark() -> None:
    runs = (
        ShareRun(0, 4_999, "acknowledged", 1),
        ShareRun(5_000, 5_000, "acquired", 2),
        ShareRun(5_001, 9_998, "acknowledged", 1),
        ShareRun(9_999, 9_999, "archived", 5),
    )
    drawn = str(runs_bar(ShownSharePartition("orders", 0, 0, 10_000, 10_000, 4, runs)))
    for state in ("acquired", "archived"):
        assert f'class="run {state}"' in drawn
    assert drawn.count('height="10"') == 2
