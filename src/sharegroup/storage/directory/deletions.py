"""Deletes topics: closes their logs and removes their folders, a few at a time.

A topic may have 20,000 partitions.  The event loop closes `SLICE_LOGS` logs in each iteration and
renames their folders to mark them for removal.  The storage thread then removes the files of
`PIECE_FOLDERS` folders at a time, so that syncs and checkpoints can run in between.

    event loop       | close, rename | close, rename | ...                        | removed |
    storage thread                                   | remove | remove | sync folder |

The deletion is durable before any of this begins, and its event stays in the catalog until the
removal of the last folder is durable.  So after a crash the next start removes the remaining
folders.  A new topic with the same name has another id and therefore other folders.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from sharegroup.ids import TopicId, TopicIdPartition
from sharegroup.steps import Steps
from sharegroup.storage.disk.folders import check_removed, doom_folder, folders_of, remove_folder
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.storage.parts import StorageParts
from sharegroup.storage.recovery.checkpoint import DirectoryOffsets

log = logging.getLogger(__name__)

SLICE_LOGS = 32
"""Number of logs closed before the event loop serves requests; one takes about 0.07 ms."""

PIECE_FOLDERS = 64
"""Number of folders removed before the storage thread does other work."""


class Deletions:
    """The deletions of topics that are in progress in a data directory."""

    __slots__ = ("_is_closed", "_left", "_logs", "_offsets", "_parts")

    def __init__(
        self,
        parts: StorageParts,
        logs: dict[TopicIdPartition, PartitionLog],
        offsets: DirectoryOffsets,
    ) -> None:
        self._parts = parts
        self._logs = logs
        self._offsets = offsets
        self._left: deque[Steps[None]] = deque()
        """Topics with logs that are not closed yet."""
        self._is_closed = False

    def begin(
        self, topic_id: TopicId, *, partition_count: int, removed: Callable[[], None]
    ) -> None:
        """Delete a topic: at once if it has few partitions, otherwise over several iterations.

        ``removed`` is called when the removal of all its folders is durable.  After `close` nothing
        is done; the next start deletes the topic.
        """
        if self._is_closed:
            return
        steps = self._close_logs(topic_id, partition_count, removed)
        if _step(steps):
            self._left.append(steps)
            # With others before it the next step is scheduled already.
            if len(self._left) == 1:
                asyncio.get_running_loop().call_soon(self._go_on)

    def close(self) -> None:
        """Close the remaining logs.  The next start removes the remaining folders."""
        for steps in self._left:
            while _step(steps):
                pass
        self.abandon()

    def abandon(self) -> None:
        """Stop as a crash would."""
        self._left.clear()
        self._is_closed = True

    def _go_on(self) -> None:
        """Do one step for the first topic, and schedule the next step."""
        if not self._left:
            return
        steps = self._left.popleft()
        if _step(steps):
            self._left.appendleft(steps)
        if self._left:
            asyncio.get_running_loop().call_soon(self._go_on)

    def _close_logs(
        self, topic_id: TopicId, partition_count: int, removed: Callable[[], None]
    ) -> Steps[None]:
        files, root = self._parts.files, self._parts.root
        for partition in range(partition_count):
            key = TopicIdPartition(topic_id, partition)
            opened = self._logs.pop(key, None)
            if opened is not None:
                opened.close()
            self._offsets.forget(key)
            try:
                # After the rename the folder is not a log any more, even if its files remain.
                doom_folder(files, root, key)
            except OSError as error:
                log.warning("event=rename_failed folder=%s error=%r", root, str(error))
            if partition % SLICE_LOGS == SLICE_LOGS - 1 and partition < partition_count - 1:
                yield
        _Removal(self._parts, topic_id, removed, lambda: not self._is_closed).go_on()


def _step(steps: Steps[None]) -> bool:
    """Make one step and return whether there are more."""
    return next(steps, StopIteration) is not StopIteration


class _Removal:
    """The removal of the folders of one topic, piece by piece."""

    __slots__ = ("_found", "_is_wanted", "_parts", "_removed", "_topic_id")

    def __init__(
        self,
        parts: StorageParts,
        topic_id: TopicId,
        removed: Callable[[], None],
        is_wanted: Callable[[], bool],
    ) -> None:
        self._parts = parts
        self._topic_id = topic_id
        self._removed = removed
        self._is_wanted = is_wanted
        self._found: deque[str] | None = None
        """The remaining folders; None until the storage thread has listed them."""

    def go_on(self) -> None:
        """Let the storage thread remove the next piece."""
        self._parts.syncer.run(self._remove_piece, self._ended)

    def _remove_piece(self) -> None:
        """Blocking: remove some folders. OSError if one still exists after the last was removed."""
        files, root = self._parts.files, self._parts.root
        if self._found is None:
            self._found = deque(folders_of(files, root, self._topic_id))
        for _ in range(min(PIECE_FOLDERS, len(self._found))):
            remove_folder(files, self._found.popleft())
        if not self._found:
            check_removed(files, root, self._topic_id)

    def _ended(self, error: BaseException | None) -> None:
        if error is not None:
            # The catalog keeps the deletion until `removed` is called, so the next start tries
            # again.
            log.warning("event=remove_postponed folder=%s error=%r", self._parts.root, str(error))
        elif not self._found:
            self._removed()
        elif self._is_wanted():
            self.go_on()
