"""Share groups that nobody is in: what 1,000 of them, ten partitions each, cost a broker.

The groups are made as members make them, by a heartbeat that joins and one that leaves.  Then the
broker starts anew on their data, as after an update, and is left alone.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from tests.bench.alone.figure import Figure
from tests.bench.alone.topic import make_topic
from tests.spec.connection import Connection
from tests.spec.member import Member
from tests.support.processes import ServeProcess

GROUPS = 1_000
PARTITIONS = 10
SECONDS = 20.0


def measure(groups: int = GROUPS, seconds: float = SECONDS) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="bench-groups-") as folder:
        broker = ServeProcess(Path(folder) / "data", durability="os")
        with broker:
            topic = make_topic(broker, "orders", PARTITIONS)
            with Connection(broker.port) as connection:
                for number in range(groups):
                    member = Member(connection, f"group-{number}").join(topic)
                    assert len(member.assigned) == PARTITIONS
                    assert member.leave().error_code == 0
        with broker:
            time.sleep(min(2.0, seconds))  # The start's own work is another figure.
            before, began = broker.cpu_seconds(), time.monotonic()
            time.sleep(seconds)
            cpu = (broker.cpu_seconds() - before) / (time.monotonic() - began)
            pss = broker.pss_bytes() / 2**20
    what = f"{groups:,} share groups x {PARTITIONS} partitions, without members"
    return [
        Figure(what=what, unit="% of a core", value=100 * cpu, at_most=2),
        Figure(what=what, unit="MiB PSS", value=pss, at_most=400),
    ]
