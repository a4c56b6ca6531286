"""Keeps the history in a local file: read at the start, written each minute and at a stop.

    cluster id known ─▶ read, put before what was seen ─▶ write each minute ─▶ write at the stop

Whatever is wrong with the file, the console goes on: it says so in its log and on its pages, and
remembers nothing meanwhile.  A file that cannot be read or is of another cluster is not replaced.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import chain

from sharegroup.console.remember.blocks import Block, GroupPoints, packed
from sharegroup.console.remember.history_file import DamagedFile, HistoryFile, OtherCluster
from sharegroup.console.remember.notice import Notice
from sharegroup.console.remember.restoring import SLICE_GROUPS, Restoring
from sharegroup.console.settings import PathOf
from sharegroup.console.watch.history import Columns, History, Series, Tier

log = logging.getLogger(__name__)

WRITE_SECONDS = 60.0
FILE_POINTS_MAX = 1_000_000
"""Points that are written, the newest of each group: about 10 MB."""


class FileMemory:
    """The task that keeps the file."""

    def __init__(
        self,
        history: History,
        path_of: PathOf,
        cluster_id: Callable[[], Awaitable[str]],
        notice: Notice,
        *,
        write_seconds: float = WRITE_SECONDS,
    ) -> None:
        """Make the task; ``cluster_id`` waits until the id is known."""
        self._history = history
        self._path_of, self._cluster_id = path_of, cluster_id
        self._notice = notice
        self._write_seconds = write_seconds

    async def run(self) -> None:
        """Read the file, and write it again and again until this is cancelled, and then once."""
        cluster_id = await self._cluster_id()
        try:
            file = HistoryFile(self._path_of(cluster_id), cluster_id)
        except (RuntimeError, OSError) as error:
            self._notice.wrong(f"there is no place for a file: {error}", "give --history FILE")
            return
        try:
            if not await self._load(file):
                return
            try:
                while True:
                    await asyncio.sleep(self._write_seconds)
                    await self._save(file)
            finally:
                await self._save(file)
        finally:
            file.close()

    async def _load(self, file: HistoryFile) -> bool:
        """Read the file; False if it must not be replaced."""
        restoring = Restoring()
        try:
            for block in await asyncio.to_thread(_blocks, file):
                await restoring.take(block)
        except DamagedFile as error:
            return self._set_aside(file, str(error))
        except OtherCluster as error:
            self._notice.wrong(f"{file.path}: {error}", "give another --history FILE")
            return False
        except OSError as error:
            self._notice.wrong(f"{file.path} cannot be read: {error.strerror}", "see its rights")
            return False
        log.info("event=console.history_read file=%s points=%d", file.path, restoring.points)
        await restoring.restore(self._history)
        return True

    def _set_aside(self, file: HistoryFile, reason: str) -> bool:
        try:
            if file.lock():
                log.warning(
                    "event=console.history_damaged file=%s reason=%r aside=%s effect=%r",
                    *(file.path, reason, file.set_aside(), "the history begins anew"),
                )
                return True
            reason += "; another console writes it"
        except OSError as error:
            reason += f"; it cannot be renamed: {error.strerror}"
        self._notice.wrong(
            f"{file.path} is damaged: {reason}", "move it away, and restart the console"
        )
        return False

    async def _save(self, file: HistoryFile) -> None:
        try:
            if not file.lock():
                self._notice.wrong(
                    f"another console writes {file.path}", "give another --history FILE"
                )
                return
            parts = [(tier, await self._newest(tier)) for tier in (Tier.MINUTES, Tier.SECONDS)]
            blocks = chain.from_iterable(packed(tier, 0, groups) for tier, groups in parts)
            left_out = await asyncio.to_thread(file.write, blocks)
        except OSError as error:
            self._notice.wrong(
                f"{file.path} cannot be written: {error.strerror}",
                "make room or give rights; it is tried again each minute",
            )
            return
        if left_out:
            self._notice.wrong(f"{file.path}: no room for {left_out} blocks", "use --remember")
        else:
            self._notice.right()

    async def _newest(self, tier: Tier) -> list[GroupPoints]:
        """Return the newest points of each group, of groups at slightly different moments."""
        group_ids = self._history.group_ids()
        part = max(1, FILE_POINTS_MAX // (len(Tier) * max(1, len(group_ids))))
        groups = []
        for number, group_id in enumerate(group_ids):
            groups.append(GroupPoints(group_id, _last(self._history.of(group_id).of(tier), part)))
            if number % SLICE_GROUPS == SLICE_GROUPS - 1:
                await asyncio.sleep(0)
        return groups


def _blocks(file: HistoryFile) -> list[Block]:
    return list(file.blocks())


def _last(series: Series, count: int) -> Columns:
    times, lags, settled = series.columns()
    return Columns(times[-count:], lags[-count:], settled[-count:])
