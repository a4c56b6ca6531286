"""Detects that a running broker's data directory was deleted, moved away or replaced.

Open files keep working in that case: writes and syncs succeed, but the records are lost.  So every
`WATCH_SECONDS`, and before each write of a file for the whole directory, the broker checks that the
paths of the lock file and of the journals still lead to its open files.
"""

from __future__ import annotations

from collections.abc import Iterable

from sharegroup.storage.disk.files import Files, Identity

WATCH_SECONDS = 1.0
"""Time between two checks, and so about the longest time until a loss is detected."""

WHAT_TO_DO = (
    "this broker confirms no more writes and does not recover while it runs: stop it, put the "
    "directory back, and start it again"
)


class DirectoryLostError(OSError):
    """The data directory is not the one that this broker has locked."""


class FoldersLostError(OSError):
    """Segments of some logs are missing; ``folders`` are the names of the logs' folders."""

    def __init__(self, folders: Iterable[str]) -> None:
        self.folders = frozenset(folders)
        super().__init__(f"folders no longer exist: {', '.join(sorted(self.folders))}")


class DirectoryWatch:
    """Remembers by path which files the broker has open. It is used in the storage thread."""

    __slots__ = ("_files", "_identities")

    def __init__(self, files: Files) -> None:
        self._files = files
        self._identities: dict[str, Identity] = {}

    def expect(self, path: str, file: int | str) -> None:
        """Expect from now on that ``path`` leads to ``file``, a descriptor or a path."""
        identity = self._files.identity(file)
        assert identity is not None
        self._identities[path] = identity

    def check(self) -> None:
        """Raise DirectoryLostError if a path leads to another file or to none."""
        for path, expected in self._identities.items():
            identity = self._files.identity(path)
            if identity is None:
                raise DirectoryLostError(f"{path} no longer exists")
            if identity != expected:
                raise DirectoryLostError(f"{path} is not the file that is in use")
