"""A file of tokens or roles that is read again when it has changed.

A file that is not valid, or is gone, changes nothing: what was read before still counts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from sharegroup.errors import InvalidConfig

T = TypeVar("T")


class ChangingFile(Generic[T]):
    """A file, and what tells whether it has changed since it was read."""

    __slots__ = ("_path", "_read", "_signature", "subject")

    def __init__(self, subject: str, path: Path, read: Callable[[Path], T]) -> None:
        """Watch a file; ``read`` returns its content, or raises InvalidConfig."""
        self.subject = subject
        self._path, self._read = path, read
        self._signature: tuple[int, ...] | None = None
        """None: it has not been read, or could not be."""

    def look(self) -> T | None:
        """Return the content if the file has changed since the last look, otherwise None.

        Raises InvalidConfig at each look while the file cannot be read, and once for each content
        that is not valid.  It waits for the disk, so it belongs into a thread.
        """
        try:
            status = self._path.stat()
        except OSError as error:
            self._signature = None
            raise InvalidConfig(f"the {self.subject} {self._path}: {error.strerror}") from error
        # Taken before the content is read: if the file changes meanwhile, the next look sees it.
        signature = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
        if signature == self._signature:
            return None
        self._signature = signature
        return self._read(self._path)
