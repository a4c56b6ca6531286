"""Reading the data directory of a broker that runs, and deletes files meanwhile."""

from __future__ import annotations

import shutil
from pathlib import Path

from sharegroup.cli.broker.inspecting.data_directory import find_logs
from sharegroup.cli.broker.inspecting.survey import LogSelection, opened_segments


def folder_of(directory: Path, name: str, *base_offsets: int) -> Path:
    folder = directory / name
    folder.mkdir()
    for offset in base_offsets:
        (folder / f"{offset:020}.log").touch()
    return folder


def test_segment_that_retention_deletes_meanwhile_is_left_out(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "orders-0", 0, 5, 9)
    (log,) = find_logs(tmp_path, warn=print)
    base_offsets = []
    for segment, file in opened_segments(log, LogSelection()):
        file.close()
        base_offsets.append(segment.base_offset)
        (folder / f"{5:020}.log").unlink(missing_ok=True)
    assert base_offsets == [0, 9]


def test_log_whose_topic_is_deleted_meanwhile_has_no_segments(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "orders-0", 0)
    (log,) = find_logs(tmp_path, warn=print)
    shutil.rmtree(folder)
    assert list(opened_segments(log, LogSelection())) == []
