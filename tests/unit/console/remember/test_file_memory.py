"""The local file of the history: written whole, read at a start, and never a reason to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from sharegroup.console.remember.file_memory import FileMemory
from sharegroup.console.remember.history_file import (
    FILE_BYTES_MAX,
    MAGIC,
    DamagedFile,
    HistoryFile,
    OtherCluster,
    default_file,
)
from sharegroup.console.remember.notice import Notice
from sharegroup.console.watch.history import History
from tests.support.limits import HANGING_SECONDS

START = 1_700_000_040_000


def history_of(*group_ids: str, seconds: int = 90) -> History:
    history = History()
    for group_id in group_ids:
        for second in range(seconds):
            history.add(group_id, at_ms=START + second * 1000, lag=second, progress=1)
    return history


class Console:
    """A history with its memory, and what the pages would say."""

    def __init__(self, path: Path, history: History | None = None, cluster: str = "c1") -> None:
        self.history = history or History()
        self.problem: str | None = None
        self.path = path
        self._cluster = cluster

    async def run(self, until: Callable[[], bool] = lambda: True) -> None:
        """Run until a condition holds, and stop."""
        memory = FileMemory(
            self.history, lambda _: self.path, self._cluster_id, Notice(self._tell),
            write_seconds=0.02,
        )  # fmt: skip
        task = asyncio.create_task(memory.run())
        async with asyncio.timeout(HANGING_SECONDS):
            self._told = asyncio.Event()
            waiting = asyncio.create_task(self._told.wait())
            await asyncio.wait([waiting, task], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            while not until():
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])

    async def _cluster_id(self) -> str:
        return self._cluster

    def _tell(self, problem: str | None) -> None:
        self.problem = problem
        self._told.set()


def ran(path: Path, history: History | None = None, cluster: str = "c1") -> Console:
    console = Console(path, history, cluster)
    asyncio.run(console.run())
    return console


def test_restart_shows_the_history(tmp_path: Path) -> None:
    path = tmp_path / "state" / "h"
    ran(path, history_of("billing", "\ud800"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    again = ran(path)
    assert again.problem is None
    assert again.history.of("billing").since(0) == history_of("billing").of("billing").since(0)
    assert len(again.history.of("\ud800").minutes) == 2
    assert sorted(file.name for file in path.parent.iterdir()) == ["h", "h.lock"]


def test_what_was_seen_before_the_file_is_read_stays_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "h"
    ran(path, history_of("g"))
    own = History()
    own.add("g", at_ms=START + 100_000, lag=7, progress=0)
    points = ran(path, own).history.of("g").seconds.since(START + 89_000)
    assert [(point.at_ms - START, point.lag, point.settled) for point in points] == [
        (89_000, 89, 90), (100_000, 7, 90),
    ]  # fmt: skip


def test_file_is_written_again_and_again(tmp_path: Path) -> None:
    path = tmp_path / "h"

    async def run() -> None:
        console = Console(path, history_of("g"))
        inodes = set[int]()

        def is_rewritten() -> bool:
            if path.exists():
                inodes.add(path.stat().st_ino)
            return len(inodes) > 1

        await console.run(is_rewritten)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda content: b"", "expected a history"),
        (lambda content: b"\0" * 40, "expected a history"),
        (lambda content: MAGIC.replace(b"1", b"2") + content[len(MAGIC) :], "expected a history"),
        (lambda content: content[:-1], "in the middle of a block"),
        (lambda content: content + b"x", "in the middle of a block"),
        (lambda content: content[:-9] + b"\0" + content[-8:], "is damaged"),
        (lambda content: content + bytes(FILE_BYTES_MAX), "expected at most"),
    ],
)  # fmt: skip
def test_damaged_file_is_put_aside_and_the_console_goes_on(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[bytes], bytes],
    reason: str,
) -> None:
    path = tmp_path / "h"
    ran(path, history_of("g"))
    path.write_bytes(damage(path.read_bytes()))
    with caplog.at_level(logging.WARNING):
        console = ran(path, history_of("other"))
    assert (console.problem, console.history.group_ids()) == (None, ["other"])
    assert reason in caplog.text
    assert "event=console.history_damaged" in caplog.text
    assert (tmp_path / "h.damaged").exists()
    assert ran(path).history.group_ids() == ["other"]


def test_history_of_another_cluster_is_neither_read_nor_replaced(tmp_path: Path) -> None:
    path = tmp_path / "h"
    ran(path, history_of("g"))
    before = path.read_bytes()
    other = ran(path, cluster="c2\n")
    assert (
        other.problem == f'{path}: it is the history of cluster "c1"; give another --history FILE'
    )
    assert (other.history.group_ids(), path.read_bytes()) == ([], before)


def test_file_that_cannot_be_read_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "h").mkdir()
    problem = ran(tmp_path / "h").problem
    assert problem == f"{tmp_path}/h cannot be read: Is a directory; see its rights"


def test_folder_that_cannot_be_written_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    problem = ran(tmp_path / "file" / "h").problem
    assert problem is not None
    assert "cannot be read: Not a directory" in problem
    loop = tmp_path / "loop"
    loop.symlink_to(tmp_path / "nowhere" / "folder")
    problem = ran(loop / "h").problem
    assert problem is not None
    assert "cannot be written" in problem


def test_second_console_reads_the_file_and_leaves_it_to_the_first(tmp_path: Path) -> None:
    path = tmp_path / "h"
    ran(path, history_of("g"))
    first = HistoryFile(path, "c1")
    assert first.lock()
    second = ran(path, history_of("other"))
    assert second.problem == f"another console writes {path}; give another --history FILE"
    assert set(second.history.group_ids()) == {"g", "other"}
    assert ran(path).history.group_ids() == ["g"]
    first.close()


def test_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    file = HistoryFile(tmp_path / "h", "c1")
    assert file.lock()
    assert file.write([]) == 0
    before = file.path.read_bytes()
    (tmp_path / "h.new").mkdir()
    with pytest.raises(IsADirectoryError):
        file.write([b"x"])
    assert file.path.read_bytes() == before
    file.close()


def test_blocks_beyond_the_bound_are_left_out(tmp_path: Path) -> None:
    file = HistoryFile(tmp_path / "h", "c1")
    assert file.lock()
    assert file.write([b"x" * (FILE_BYTES_MAX // 2)] * 3) == 2
    assert file.path.stat().st_size <= FILE_BYTES_MAX
    file.close()


def test_file_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    file = HistoryFile(tmp_path / "h", "c1")
    assert list(file.blocks()) == []
    file.path.write_bytes(MAGIC)
    with pytest.raises(OtherCluster):
        list(file.blocks())
    file.path.write_bytes(MAGIC + b'"c1"\n\0\0\0\x03abc')
    with pytest.raises(DamagedFile, match="block at byte 34"):
        list(file.blocks())


def test_default_file_is_one_per_cluster_and_no_path_of_a_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_file("4L6g3nShT-eMCtK--X86sw") == Path(
        "/state/sharegroup/console-4L6g3nShT-eMCtK--X86sw.history"
    )
    for odd in ("../../etc/passwd", "", "a\0b", "\ud800", "x" * 300):
        path = default_file(odd)
        assert path.parent == Path("/state/sharegroup")
        assert len(os.fsencode(path.name)) < 100
