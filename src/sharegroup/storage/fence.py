"""Keeping appends away from a disk that failed, until it works again.

After a failed sync the system may believe that pages are clean which never reached the disk,
so the same sync can't simply be repeated.  A fenced log takes no appends; every append that is
refused may start a probe, at most one each `PROBE_SECONDS`: a small file is written and synced
in the log's folder, then everything the log consists of.  When that works the fence is gone.
"""

from __future__ import annotations

import logging

from sharegroup.errors import KafkaStorageError
from sharegroup.storage.parts import StorageParts

log = logging.getLogger(__name__)

PROBE_SECONDS = 0.5
PROBE_BYTES = 65_536
_PROBE_FILE = "probe"


class Fence:
    """See the module's text.  ``name`` is the log's, for messages."""

    __slots__ = ("_folder", "_name", "_parts", "_probe_at", "_probing", "_reason")

    def __init__(self, parts: StorageParts, folder: str, name: str) -> None:
        self._parts = parts
        self._folder = folder
        self._name = name
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
        self._probe_at = self._parts.syncer.clock() + PROBE_SECONDS

    def check(self) -> None:
        """Let an append pass, or refuse it and see to it that the disk is tried."""
        if self._reason is None:
            return
        if not self._probing and self._parts.syncer.clock() >= self._probe_at:
            self._probing = True
            self._parts.syncer.run(self._probe, self._probed)
        raise KafkaStorageError(f"{self._name} takes no appends: {self._reason}")

    def _probe(self) -> None:
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
        # What was cut off after the failure must stay cut off.
        for name in files.list(folder):
            fd = files.open(f"{folder}/{name}")
            try:
                files.sync(fd)
            finally:
                files.close(fd)
        files.sync_directory(folder)
        files.sync_directory(self._parts.root)

    def _probed(self, error: BaseException | None) -> None:
        self._probing = False
        if error is None:
            self._reason = None
            log.info("event=log_healed %s", self._name)
        elif isinstance(error, OSError):
            self._probe_at = self._parts.syncer.clock() + PROBE_SECONDS
        else:
            raise error
