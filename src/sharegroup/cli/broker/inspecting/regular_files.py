"""Opens files of a data directory whose content nobody has checked, for reading.

Such a directory may come from elsewhere.  A link could lead out of it, a pipe would be waited for
without an end, and a sparse file can have any size.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

SMALL_FILE_BYTES_MAX = 256 * 1024 * 1024
"""Maximum size of a file that is read as a whole, as in the broker."""


def open_regular(path: Path) -> int:
    """Return a descriptor for reading; OSError for everything but a regular file."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "expected a regular file", str(path))
    return fd


def read_beginning(path: Path, bytes_max: int) -> bytes:
    """Return the content of a file, or its first ``bytes_max`` bytes."""
    with open(open_regular(path), "rb") as file:
        return file.read(bytes_max)


def read_small(path: Path) -> bytes:
    """Return the whole content of a file; OSError if it is larger than `SMALL_FILE_BYTES_MAX`."""
    with open(open_regular(path), "rb") as file:
        if os.fstat(file.fileno()).st_size > SMALL_FILE_BYTES_MAX:
            text = f"expected up to {SMALL_FILE_BYTES_MAX} bytes"
            raise OSError(errno.EFBIG, text, str(path))
        return file.read()
