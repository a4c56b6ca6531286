"""A broker imports what share groups need soon after its start, and not all at once."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import asyncio, builtins, sys

compiled, original = [], builtins.compile

def counting(source, filename, *arguments, **options):
    compiled.append(str(filename))
    return original(source, filename, *arguments, **options)

builtins.compile = counting

from sharegroup.broker.warm_up import REQUESTS
from sharegroup.testing import ManualClock, broker

NEEDED = [
    f"kio.schema.{name}.v{version}.{direction}"
    for name, version in [
        ("find_coordinator", 2), ("find_coordinator", 6), ("share_group_heartbeat", 1),
        ("share_fetch", 1), ("share_fetch", 2), ("share_acknowledge", 1), ("share_acknowledge", 2),
    ]
    for direction in ("request", "response")
]

def known():
    return sum(name in sys.modules for name in NEEDED)

async def main():
    clock = ManualClock()
    async with broker(clock=clock) as b:
        await asyncio.sleep(0)
        counts = [known()]
        for _ in range(len(REQUESTS) + 10):
            clock.advance(0.2)
            for _ in range(3):
                await asyncio.sleep(0)
            counts.append(known())
        records = sum(name.endswith(("Key>", "Value>")) for name in compiled)
    most_at_once = max(after - before for before, after in zip(counts, counts[1:]))
    print(records, counts[0], counts[-1], most_at_once)

asyncio.run(main())
"""


def test_share_group_codecs_are_prepared_one_by_one() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.stderr == ""
    records, at_start, in_the_end, most_at_once = map(int, done.stdout.split())
    assert (at_start, in_the_end) == (0, 14)
    assert most_at_once <= 4
    assert records == 14, "keys and values of six kinds of group records, and of a state"
