"""Reads the files that a console is started with: whole, and no larger than they may be."""

from __future__ import annotations

from pathlib import Path

from sharegroup.errors import InvalidConfig


def read_bounded(path: Path, bytes_max: int, *, subject: str) -> bytes:
    """Return the content of a file; InvalidConfig if it cannot be read or is too large."""
    try:
        with path.open("rb") as file:
            content = file.read(bytes_max + 1)
    except OSError as error:
        raise InvalidConfig(f"{subject}: {error.strerror}") from error
    if len(content) > bytes_max:
        raise InvalidConfig(f"{subject}: expected at most {bytes_max} bytes")
    return content
