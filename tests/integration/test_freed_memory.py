"""What a process frees it has at hand for the next large message."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

# The same work again and again: pieces that are put together, as a message is received.
MEASURE = """
import resource, sys
from sharegroup import freed_memory
if keep := getattr(freed_memory, sys.argv[1], None):
    keep()
def receive():
    b"".join([bytes(256 * 1024) for _ in range(int(sys.argv[2]))])
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
receive()
before = faults()
for _ in range(10):
    receive()
print(faults() - before)
"""


def faults(how: str, pieces: int) -> int:
    """Of ten messages after the first; a piece is 64 pages, and they are put together once."""
    command = [sys.executable, "-c", MEASURE, how, str(pieces)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs glibc"
)
@pytest.mark.parametrize(("keep", "pieces"), [("keep_for_requests", 4), ("keep_for_answers", 80)])
def test_memory_that_was_freed_is_not_fetched_from_the_system_again(keep: str, pieces: int) -> None:
    """What is broken up between messages takes some pages, but not the most."""
    pages = 10 * pieces * 64 * 2
    assert faults("nothing", pieces) > pages // 4
    assert faults(keep, pieces) < pages // 4
