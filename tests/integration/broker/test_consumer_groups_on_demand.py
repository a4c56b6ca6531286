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
        assert "sharegroup.core.groups.classic.classic_groups" not in sys.modules, "at the start"
        host, port = b.bootstrap_servers.split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        while not b.running.server.connection_count:
            await asyncio.sleep(0.01)
        writer.close()
        while b.running.server.connection_count:
            await asyncio.sleep(0.01)
    assert "sharegroup.broker.groups.classic_group_coordinator" not in sys.modules, "no use"
    async with broker() as b:
        parts = b.running.parts
        assert parts.classic_group_coordinator is parts.classic_groups()
        assert parts.classic_group_coordinator.list_groups() == ()
    print("made once")

asyncio.run(main())
"""


def test_consumer_group_coordinator_is_created_at_its_first_request() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.stdout.strip(), done.stderr) == ("made once", "")
