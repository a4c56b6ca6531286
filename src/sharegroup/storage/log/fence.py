"""Fences a log after a disk failure: it refuses appends until the disk works again.

After a failed sync the system may treat pages as clean that never reached the disk, so repeating
the sync is not enough.  A refused append may start a probe, at most one per
`Syncer.probe_seconds`.  The probe writes and syncs a small file in the log's folder, removes the
files that were cut off the log, and syncs all remaining files.  If it succeeds, the log takes
appends again.

A log whose files are gone stays fenced: in a new folder its old records would be missing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from sharegroup.errors import KafkaStorageError
from sharegroup.storage.log.segments import Segments
from sharegroup.storage.parts import StorageParts

log = logging.getLogger(__name__)

WHAT_TO_DO = (
    "free space on the disk, or mend it: the log takes records again by itself, when a probe has "
    "written and synced its folder (event=log_healed)"
)
PROBE_BYTES = 65_536
_PROBE_FILE = "probe"


class Fence:
    """Refuses the appends to one log while its disk fails; ``name`` names the log in messages."""

    __slots__ = (
        "_doomed",
        "_failures",
        "_folder",
        "_name",
        "_parts",
        "_probe_at",
        "_probing",
        "_reason",
        "_segments",
        "is_final",
    )

    def __init__(
        self,
        parts: StorageParts,
        folder: str,
        name: str,
        segments: Segments,
    ) -> None:
        self._segments = segments
        self.is_final = False
        """Whether the fence stays until the broker restarts, because the log's files are gone."""
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
        """Whether appends are refused."""
        return self._reason is not None

    def put_up(self, reason: str) -> None:
        """Fence the log because the disk failed."""
        if self._reason is None:
            log.warning("event=log_fenced %s reason=%r action=%r", self._name, reason, WHAT_TO_DO)
        self._reason = reason
        self._failures += 1
        self._probe_at = self._next_probe()

    def put_up_for_good(self, reason: str) -> None:
        """Fence the log until the broker restarts.

        Its files are gone, or belong to another broker.
        """
        self._reason = reason
        self.is_final = True

    def doom(self, paths: Iterable[str]) -> None:
        """Let the next probe remove these files durably, before the log takes appends again.

        They are segments that were cut off as a whole.  Their records would conflict with records
        that are appended later at the same offsets.
        """
        assert self.is_up
        self._doomed += paths

    def check(self) -> None:
        """Raise KafkaStorageError if the fence is up; start a probe of the disk if one is due."""
        if self._reason is None:
            return
        if not self.is_final and not self._probing and self._parts.syncer.clock() >= self._probe_at:
            self._start_probe()
        raise KafkaStorageError(f"{self._name} accepts no appends: {self._reason}")

    def _next_probe(self) -> float:
        syncer = self._parts.syncer
        return syncer.clock() + syncer.probe_seconds

    def _start_probe(self) -> None:
        self._probing = True
        # Read here, in the event loop: the storage thread must not look at segments, which may
        # change.
        failures = self._failures
        active_end, paths = self._segments.active_end(), self._segments.paths()
        self._parts.syncer.run(
            lambda: self._probe(active_end, paths),
            lambda error: self._probed(error, failures=failures),
        )

    def _probe(self, active_end: tuple[str, int] | None, paths: list[str]) -> None:
        """Blocking: check whether the disk accepts and keeps writes again. OSError if not."""
        files, folder = self._parts.files, self._folder
        missing = next((path for path in paths if not files.exists(path)), None)
        if missing is not None:
            raise FileNotFoundError(
                f"{missing} no longer exists: restore it, and restart the broker"
            )
        if not paths:
            # The first write to the log may have failed before it had a folder.
            files.make_directory(folder, parents=False)
        fd = files.open(f"{folder}/{_PROBE_FILE}", create=True)
        try:
            # Real bytes, because a full disk still creates empty files.
            files.write(fd, bytes(PROBE_BYTES), 0)
            files.sync(fd)
        finally:
            files.close(fd)
            files.remove(f"{folder}/{_PROBE_FILE}")
        # Before the syncs below, which make the removal durable together with the rest.
        for path in self._doomed:
            if files.exists(path):
                files.remove(path)
        for name in files.names(folder):
            path = f"{folder}/{name}"
            fd = files.open(path)
            try:
                # Cutting it after the failure may have failed, too.
                if active_end is not None and active_end[0] == path:
                    files.truncate(fd, active_end[1])
                files.sync(fd)
            finally:
                files.close(fd)
        files.sync_directory(folder)
        files.sync_directory(self._parts.root)

    def _probed(self, error: BaseException | None, *, failures: int) -> None:
        self._probing = False
        if self.is_final:
            return
        # The probe does not cover a failure that happened while it ran.
        if isinstance(error, OSError) or failures < self._failures:
            self._probe_at = self._next_probe()
        elif error is not None:
            raise error
        else:
            self._reason = None
            self._doomed.clear()
            log.info("event=log_healed %s", self._name)
