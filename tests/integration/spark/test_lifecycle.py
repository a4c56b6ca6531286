"""How a reader's process ends, tried on processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

END_SECONDS_MAX = 20.0

ON_SIGTERM = """
import signal, sys
from sharegroup.spark.lifecycle import exit_on_sigterm
exit_on_sigterm()
try:
    print("ready", flush=True)
    signal.pause()
finally:
    # What Spark does: a second signal while the reader says goodbye.
    signal.raise_signal(signal.SIGTERM)
    print("stopped", flush=True)
"""

ORPHAN = """
import asyncio, subprocess, sys
CHILD = '''
import asyncio, sys
from sharegroup.spark.lifecycle import exit_as_orphan
async def leave():
    print("left", flush=True)
async def main():
    task = asyncio.create_task(exit_as_orphan(leave))
    await asyncio.sleep(0)
    print("ready", flush=True)
    await task
asyncio.run(main())
'''
subprocess.Popen([sys.executable, "-c", CHILD])
input()
"""


@contextmanager
def process(code: str) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        yield started
    finally:
        started.kill()
        started.communicate()


def test_sigterm_runs_finally_blocks_and_a_second_one_is_ignored() -> None:
    with process(ON_SIGTERM) as reader:
        reader.send_signal(signal.SIGTERM)
        output, _ = reader.communicate(timeout=END_SECONDS_MAX)
        assert output == "stopped\n"
        assert reader.returncode == 0


def test_reader_whose_parent_was_killed_leaves_the_group_and_exits() -> None:
    """The pipe closes when its last writing process, the orphan, ends."""
    with process(ORPHAN) as parent:
        parent.kill()
        began = time.monotonic()
        output, _ = parent.communicate(timeout=END_SECONDS_MAX)
        assert output == "left\n"
        assert time.monotonic() - began < END_SECONDS_MAX
