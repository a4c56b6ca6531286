"""The ledger on disk: what a killed worker leaves can be read."""

from __future__ import annotations

from pathlib import Path

from sharegroup.cli.flights.ledger import Delivered, LedgerReader, LedgerWriter, Sent


def test_lines_come_in_the_order_in_which_they_were_written(tmp_path: Path) -> None:
    writer = LedgerWriter(tmp_path / "worker-1.ledger")
    writer.started()
    writer.delivered(1, [Delivered(0, 7, 2, 1_000)])
    writer.sent(1, [Sent(0, 7, 1)])
    writer.answered(1, {0: None}, wall_ms=1_030)
    writer.close()
    lines = LedgerReader(tmp_path / "worker-1.ledger").new_lines()
    times = [line.pop("at_us") for line in lines]
    assert times == sorted(times)
    assert lines == [
        {"what": "started"},
        {"what": "delivered", "batch": 1, "records": [[0, 7, 2, 1_000]]},
        {"what": "sent", "batch": 1, "outcomes": [[0, 7, 1]]},
        {"what": "answered", "batch": 1, "errors": {"0": None}, "wall_ms": 1_030},
    ]


def test_reader_returns_only_what_was_added_since_the_last_call(tmp_path: Path) -> None:
    path = tmp_path / "worker-1.ledger"
    path.write_bytes(b'{"what":"started"}\n')
    reader = LedgerReader(path)
    assert [line["what"] for line in reader.new_lines()] == ["started"]
    assert reader.new_lines() == []
    with open(path, "ab") as file:
        file.write(b'{"what":"sent"}\n')
    assert [line["what"] for line in reader.new_lines()] == ["sent"]


def test_line_that_was_cut_off_is_not_read_before_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "worker-1.ledger"
    path.write_bytes(b'{"what":"started"}\n{"what":"se')
    reader = LedgerReader(path)
    assert len(reader.new_lines()) == 1
    with open(path, "ab") as file:
        file.write(b'nt"}\n')
    assert reader.new_lines() == [{"what": "sent"}]


def test_worker_that_did_not_start_yet_has_no_lines(tmp_path: Path) -> None:
    assert LedgerReader(tmp_path / "absent.ledger").new_lines() == []
