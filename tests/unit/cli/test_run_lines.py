"""The drawing of share partitions: which mark stands for which offsets, and what the table says."""

from __future__ import annotations

import pytest

from sharegroup.cli.groups.inspect_group import base_url
from sharegroup.cli.groups.run_lines import MARKS, drawing, run_table
from sharegroup.client.admin.types import ShareRun
from sharegroup.share_runs.share_runs import ShownSharePartition, cells


def shown(
    *runs: ShareRun,
    start: int | None = 0,
    end: int | None = None,
    high_watermark: int,
    run_count: int | None = None,
) -> ShownSharePartition:
    last = runs[-1].last_offset + 1 if runs else start
    return ShownSharePartition(
        topic="orders",
        partition=3,
        start_offset=start,
        end_offset=last if end is None else end,
        high_watermark=high_watermark,
        run_count=len(runs) if run_count is None else run_count,
        runs=runs,
    )


def marks(share_partition: ShownSharePartition, count: int) -> str:
    return "".join(MARKS[state] for state in cells(share_partition, count))


ACCEPTED = ShareRun(10, 13, "acknowledged", 1)
RELEASED = ShareRun(14, 15, "available", 1)
HELD = ShareRun(16, 17, "acquired", 2, "m1", 12_340)
NEW = ShareRun(18, 19, "available", 0)
FAILED = ShareRun(20, 20, "archived", 5)
DYING = ShareRun(21, 21, "archiving", 5)
WAITING = ShareRun(22, 22, "delayed", 1)
ALL = (ACCEPTED, RELEASED, HELD, NEW, FAILED, DYING)


def test_each_state_has_its_mark() -> None:
    assert marks(shown(*ALL, WAITING, start=10, high_watermark=24), 14) == "====oo##..x!o."


def test_line_is_not_longer_than_there_are_offsets() -> None:
    assert marks(shown(ACCEPTED, start=10, high_watermark=14), 100) == "===="


def test_mark_shows_the_state_of_most_of_its_offsets() -> None:
    runs = (ShareRun(0, 5, "acknowledged", 1), ShareRun(6, 9, "acquired", 1))
    assert marks(shown(*runs, high_watermark=10), 1) == "="
    assert marks(shown(*runs, high_watermark=10), 2) == "=#"


def test_offsets_that_no_run_has_are_not_shown() -> None:
    """Two answers of a broker are from different moments, so offsets may be in neither."""
    runs = (ShareRun(0, 3, "acquired", 1), ShareRun(8, 9, "acknowledged", 1))
    assert marks(shown(*runs, high_watermark=10), 5) == "##??="


def test_of_equally_frequent_states_a_lock_is_shown() -> None:
    runs = (ShareRun(0, 4, "acknowledged", 1), ShareRun(5, 9, "acquired", 1))
    assert marks(shown(*runs, high_watermark=10), 1) == "#"


@pytest.mark.parametrize("count", [1, 2, 3, 7, 99, 100])
def test_every_offset_counts_in_one_mark(count: int) -> None:
    """All runs have the same state, so a mark without an offset would fail."""
    runs = [ShareRun(offset, offset, "archived", 1) for offset in range(101)]
    assert marks(shown(*runs, high_watermark=101), count) == "x" * count


def test_runs_that_were_left_out_are_unknown() -> None:
    partition = shown(ACCEPTED, start=10, end=20, high_watermark=24, run_count=5)
    assert marks(partition, 14) == "====??????...."
    assert drawing([partition], width=80, coloured=False).splitlines()[:2] == [
        "PARTITION  START OLDEST TO NEWEST END  RECORDS",
        "orders 3   10    [====??????....] 24   =4 .4 ?6",
    ]


def test_share_partition_without_an_offset_is_not_delivered_yet() -> None:
    partition = ShownSharePartition("orders", 0, None, None, 5, 0, ())
    _, line, *_ = drawing([partition], width=60, coloured=False).splitlines()
    assert line.endswith("] 5    no offset yet")
    assert set(line.partition("[")[2].partition("]")[0]) == {"."}


def test_empty_share_partition_has_an_empty_line() -> None:
    assert marks(shown(start=7, high_watermark=7), 20) == ""


def test_lines_fit_the_terminal_and_are_aligned() -> None:
    long = ShownSharePartition("a-much-longer-name", 12, 0, 0, 1_000_000, 0, ())
    lines = drawing([shown(*ALL, start=10, high_watermark=500), long], width=100, coloured=False)
    heading, first, second, _, *legend = lines.splitlines()
    assert max(len(first), len(second)) == 100
    assert heading.index("OLDEST") == first.index("[") == second.index("[")
    assert first.endswith("] 500        #2 o2 !1 x1 =4 .480")
    assert [line.split("  ") for line in legend] == [
        [
            *("# acquired", "o available again or delayed", "! waits for its dead letter"),
            *("x archived", "= acknowledged"),
        ],
        [". never delivered", "? not shown, see --max-runs"],
    ]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_lines_and_legend_fit_narrow_terminals(width: int) -> None:
    long = ShownSharePartition("a-much-longer-name-of-a-topic.retry.1", 12, 0, 0, 1_000_000, 0, ())
    text = drawing([shown(*ALL, start=10, high_watermark=500), long], width=width, coloured=False)
    assert max(map(len, text.splitlines())) <= width
    assert "?" in text.splitlines()[-1]


def test_colours_are_set_once_for_neighbours() -> None:
    _, line, *_ = drawing(
        [shown(ACCEPTED, start=10, high_watermark=14)], width=80, coloured=True
    ).split("\n")
    assert "[\x1b[32m====\x1b[0m]" in line


def test_table_has_a_line_for_each_run_with_member_and_lock() -> None:
    lines = run_table([shown(*ALL, start=10, high_watermark=24)]).splitlines()
    assert (
        lines[0].split()
        == (
            "TOPIC PARTITION FIRST-OFFSET LAST-OFFSET RECORDS STATE DELIVERY-COUNT MEMBER-ID LOCK-S"
        ).split()
    )
    assert [line.split() for line in lines[1:4]] == [
        "orders 3 10 13 4 acknowledged 1 - -".split(),
        "orders 3 14 15 2 available 1 - -".split(),
        "orders 3 16 17 2 acquired 2 m1 12.3".split(),
    ]
    assert len(lines) == 7


def test_table_says_how_many_runs_it_leaves_out_and_how_to_get_them() -> None:
    partition = shown(*ALL, start=10, high_watermark=24, run_count=20_000)
    assert run_table([partition], lines_max=2).splitlines()[3:] == [
        "... 4 more runs; a pipe, a file and --json get them",
        "... 19,994 more runs; --max-runs shows more of them",
    ]


def test_control_characters_of_a_member_id_are_escaped() -> None:
    held = ShareRun(0, 0, "acquired", 1, "m\x1b[2J", 5)
    assert "\x1b" not in run_table([shown(held, high_watermark=1)])


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://127.0.0.1:9464", "http://127.0.0.1:9464"),
        ("127.0.0.1:9464", "http://127.0.0.1:9464"),
        ("https://[::1]:9464/metrics", "https://[::1]:9464"),
        ("http://h:1/", "http://h:1"),
    ],
)
def test_url_of_the_metrics_port_is_taken_without_its_path(text: str, url: str) -> None:
    assert base_url(text) == url


@pytest.mark.parametrize("text", ["ftp://h:1", "http://", "http://h:1/other", "http://h:1?x=1", ""])
def test_other_urls_are_a_misuse(text: str) -> None:
    with pytest.raises(Exception, match="expected the URL of the broker's metrics port"):
        base_url(text)
