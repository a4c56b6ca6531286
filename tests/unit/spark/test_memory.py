"""Freed memory is kept: what a process frees, it finds again without new pages."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Twice the same work: pieces that are kept and then put together, as an answer is received.
FAULTS = """
import resource, sys
from sharegroup.spark.memory import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
def receive():
    b"".join([bytes(256 * 1024) for _ in range(80)])
receive()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
receive()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(mode: str) -> int:
    command = [sys.executable, "-c", FAULTS, mode]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="it is about glibc")
def test_a_second_answer_needs_no_new_pages() -> None:
    """Pieces and whole are 40 MiB, 10,240 pages; what is broken up between them takes some."""
    assert faults("default") > 9_000
    assert faults("keep") < 4_000
