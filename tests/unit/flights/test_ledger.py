"""The ledger on disk: what a killed worker leaves can be read."""

from __future__ import annotations

from pathlib import Path

from examples.flights.ledger import Begun, Ended, LedgerReader, LedgerWriter


def test_lines_are_read_in_the_order_of_writing(tmp_path: Path) -> None:
    writer = LedgerWriter(tmp_path / "worker-1.ledger")
    writer.started()
    writer.begun(1, [Begun(0, 7, 2, 1, 1_000)])
    writer.ended(1, [Ended(0, 7, False)], wall_ms=1_030)
    writer.buried(0, 7, "attempts-exhausted")
    writer.close()
    lines = LedgerReader(tmp_path / "worker-1.ledger").new_lines()
    times = [line.pop("at_us") for line in lines]
    assert times == sorted(times)
    assert lines == [
        {"what": "started"},
        {"what": "begun", "batch": 1, "records": [[0, 7, 2, 1, 1_000]]},
        {"what": "ended", "batch": 1, "ends": [[0, 7, False]], "wall_ms": 1_030},
        {"what": "buried", "record": [0, 7], "reason": "attempts-exhausted"},
    ]


def test_reader_returns_only_lines_added_since_the_last_call(tmp_path: Path) -> None:
    path = tmp_path / "worker-1.ledger"
    path.write_bytes(b'{"what":"started"}\n')
    reader = LedgerReader(path)
    assert [line["what"] for line in reader.new_lines()] == ["started"]
    assert reader.new_lines() == []
    with open(path, "ab") as file:
        file.write(b'{"what":"ended"}\n')
    assert [line["what"] for line in reader.new_lines()] == ["ended"]


def test_incomplete_line_is_read_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "worker-1.ledger"
    path.write_bytes(b'{"what":"started"}\n{"what":"en')
    reader = LedgerReader(path)
    assert len(reader.new_lines()) == 1
    with open(path, "ab") as file:
        file.write(b'ded"}\n')
    assert reader.new_lines() == [{"what": "ended"}]


def test_missing_ledger_has_no_lines(tmp_path: Path) -> None:
    assert LedgerReader(tmp_path / "absent.ledger").new_lines() == []
