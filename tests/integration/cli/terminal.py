"""The command line in a process with a terminal, as a person uses it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.processes import readable

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
CTRL_C = b"\x03"
LIMIT_SECONDS = 60.0
"""Time for an expected text to appear: a loaded machine may take long to start Python."""


class Terminal:
    """A process whose standard streams are a pseudo-terminal."""

    def __init__(self, process_id: int, fd: int) -> None:
        self._process_id = process_id
        self._fd = fd
        self.text = ""
        """Everything that the terminal has shown."""

    @property
    def lines(self) -> list[str]:
        """What the terminal has shown, line by line, without colours."""
        return ESCAPES.sub("", self.text).replace("\r", "").splitlines()

    def type(self, keys: bytes) -> None:
        """Send keys to the process."""
        os.write(self._fd, keys)

    def expect(self, text: str) -> None:
        """Read until the terminal has shown this text."""
        limit = time.monotonic() + LIMIT_SECONDS
        while text not in self.text:
            assert time.monotonic() < limit, f"expected {text!r}, found {self.text!r}"
            assert self._read(), f"expected {text!r}, but the process ended with {self.text!r}"

    def end(self) -> tuple[int, float]:
        """Return the exit code of the process, and the seconds that its end took."""
        began = time.monotonic()
        while self._read():
            assert time.monotonic() < began + LIMIT_SECONDS, f"still running: {self.text!r}"
        _, status = os.waitpid(self._process_id, 0)
        self._process_id = 0
        return os.waitstatus_to_exitcode(status), time.monotonic() - began

    def close(self) -> None:
        """End the process if it still runs."""
        if self._process_id:
            os.kill(self._process_id, 9)
            os.waitpid(self._process_id, 0)
        os.close(self._fd)

    def _read(self) -> bool:
        """Read what there is within a short time; return False at the end of the process."""
        if not readable((self._fd,), 0.1):
            return True
        try:
            chunk = os.read(self._fd, 1 << 16)
        except OSError:  # Linux reports the end of the other side as EIO.
            return False
        self.text += chunk.decode()
        return bool(chunk)


@contextmanager
def terminal(*words: str, columns: int = 80, lines: int = 24) -> Iterator[Terminal]:
    """Run ``sharegroup WORDS...`` at a terminal; its process ends with the context."""
    process_id, fd = pty.fork()
    if process_id == 0:
        # Of the child, whose standard input is the terminal: its window is there when it starts.
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        # Not `execv`: the readline library may have set COLUMNS, which `os.environ` does not see.
        variables = {
            name: text for name, text in os.environ.items() if name not in ("COLUMNS", "LINES")
        }
        os.execve(sys.executable, [sys.executable, "-m", "sharegroup", *words], variables)
    shown = Terminal(process_id, fd)
    try:
        yield shown
    finally:
        shown.close()
