"""Keeping appends away from a disk that failed, until it works again.

After a failed sync the system may believe that pages are clean which never reached the disk,
so the same sync can't simply be repeated.  A fenced log takes no appends; every append that is
refused may start a probe, at most one each `PROBE_SECONDS`: a small file is written and synced
in the log's folder, what was cut off the log is removed for good, and all that is left is
synced.  When that works the fence is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from sharegroup.errors import KafkaStorageError
from sharegroup.storage.parts import StorageParts

log = logging.getLogger(__name__)

PROBE_SECONDS = 0.5
PROBE_BYTES = 65_536
_PROBE_FILE = "probe"


class Fence:
    """See the module's text.  ``name`` is the log's, for messages.

    ``active_end`` tells the path and size of the segment that takes the appends, None if there
    is none.
    """

    __slots__ = (
        "_active_end",
        "_doomed",
        "_failures",
        "_folder",
        "_name",
        "_parts",
        "_probe_at",
        "_probing",
        "_reason",
    )

    def __init__(
        self,
        parts: StorageParts,
        folder: str,
        name: str,
        *,
        active_end: Callable[[], tuple[str, int] | None],
    ) -> None:
        self._active_end = active_end
        self._parts = parts
        self._folder = folder
        self._name = name
        self._doomed: list[str] = []
        self._failures = 0
        self._reason: str | None = None
        self._probe_at = 0.0
        self._probing = False

    @property
    def is_up(self) -> bool:
        return self._reason is not None

    def put_up(self, reason: str) -> None:
        """The disk failed."""
        if self._reason is None:
            log.warning("event=log_fenced %s reason=%r", self._name, reason)
        self._reason = reason
        self._failures += 1
        self._probe_at = self._parts.syncer.clock() + PROBE_SECONDS

    def doom(self, paths: Iterable[str]) -> None:
        """Have these files removed, durably, before the next append.

        A segment that was cut off as a whole would otherwise lie in the way of what is
        written at its offsets later.
        """
        assert self.is_up
        self._doomed += paths

    def check(self) -> None:
        """Let an append pass, or refuse it and see to it that the disk is tried."""
        if self._reason is None:
            return
        if not self._probing and self._parts.syncer.clock() >= self._probe_at:
            self._start_probe()
        raise KafkaStorageError(f"{self._name} takes no appends: {self._reason}")

    def _start_probe(self) -> None:
        self._probing = True
        failures, active_end = self._failures, self._active_end()
        self._parts.syncer.run(
            lambda: self._probe(active_end),
            lambda error: self._probed(error, failures=failures),
        )

    def _probe(self, active_end: tuple[str, int] | None) -> None:
        """Blocking: find out whether the disk takes and keeps a write again."""
        files, folder = self._parts.files, self._folder
        files.make_directory(folder)
        fd = files.open(f"{folder}/{_PROBE_FILE}", create=True)
        try:
            files.write(fd, bytes(PROBE_BYTES), 0)
            files.sync(fd)
        finally:
            files.close(fd)
            files.remove(f"{folder}/{_PROBE_FILE}")
        for path in self._doomed:
            if files.exists(path):
                files.remove(path)
        for name in files.names(folder):
            path = f"{folder}/{name}"
            fd = files.open(path)
            try:
                if active_end is not None and active_end[0] == path:
                    files.truncate(fd, active_end[1])
                files.sync(fd)
            finally:
                files.close(fd)
        files.sync_directory(folder)
        files.sync_directory(self._parts.root)

    def _probed(self, error: BaseException | None, *, failures: int) -> None:
        self._probing = False
        if isinstance(error, OSError) or failures < self._failures:
            self._probe_at = self._parts.syncer.clock() + PROBE_SECONDS
        elif error is not None:
            raise error
        else:
            self._reason = None
            self._doomed.clear()
            log.info("event=log_healed %s", self._name)
