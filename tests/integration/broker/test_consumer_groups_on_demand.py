"""Who serves share groups alone imports nothing of consumer groups.

That a broker finds the consumer groups of an earlier life again, and refuses their ids to share
groups, is in `test_consumer_group_requests`.
"""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import asyncio, sys
from sharegroup.testing import broker

async def main():
    async with broker() as b:
        assert "sharegroup.core.groups.classic.consumer_groups" not in sys.modules, "at the start"
        consumer_groups = b.running.parts.consumer_groups
        consumer_groups.agree()
        consumer_groups.connection_closed(1)
        consumer_groups.stop()
        assert "sharegroup.broker.groups.consumer_group_coordinator" not in sys.modules, "no use"
        assert b.running.parts.consumer_group_coordinator is consumer_groups.coordinator()
        assert consumer_groups.coordinator().list_groups() == ()
    print("made once")

asyncio.run(main())
"""


def test_consumer_group_coordinator_is_created_at_its_first_request() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.stdout.strip(), done.stderr) == ("made once", "")
