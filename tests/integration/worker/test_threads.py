"""Handlers in threads, in a process of its own under a profiler."""

from __future__ import annotations

import subprocess
import sys

TRACED = """
import asyncio, sys, threading, time
from sharegroup.worker.executors.threads import HandlerThreads

def traced():
    sys.setprofile(lambda frame, event, argument: None)
    (lambda: None)()
    sys.setprofile(None)

async def main():
    threads = HandlerThreads(2)
    await threads.call(lambda: None)
    traced()
    began, go_on = threading.Event(), threading.Event()
    def blocked_in_c():
        began.set()
        go_on.wait()
        while True:
            pass
    call = asyncio.ensure_future(threads.call(blocked_in_c))
    await asyncio.to_thread(began.wait)
    call.cancel()
    await asyncio.sleep(0.2)
    traced()  # The thread still hangs.
    go_on.set()
    await asyncio.wait({call})
    assert call.cancelled()
    traced()
    print("traced")

asyncio.run(main())
"""


def test_interrupted_threads_do_not_block_a_program_under_a_profiler() -> None:
    """In CPython 3.11 a traced call never begins while an exception is pending for some thread."""
    done = subprocess.run(
        [sys.executable, "-c", TRACED], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.stdout, done.stderr) == ("traced\n", "")
