"""What a process frees it has at hand for the next large message."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

MEASURE = """
import resource, sys
from sharegroup import freed_memory
if sys.argv[1] == "kept":
    freed_memory.keep_for_requests()
faults = []
for _ in range(20):
    pieces = [bytes(256 * 1024) for _ in range(4)]
    whole = b"".join(pieces)
    del pieces, whole
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(faults[-1] - faults[4])
"""
PAGES = 15 * 2 * 256
"""Of what is asked for after the first five times: 1 MiB in pieces, and once more in one."""


def faults(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, how], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs glibc"
)
def test_memory_that_was_freed_is_not_fetched_from_the_system_again() -> None:
    assert faults("given back") > PAGES // 4
    assert faults("kept") < PAGES // 100
