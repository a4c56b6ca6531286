"""The rows of the state topic: see `tests.bench.share_state`."""

from __future__ import annotations

import asyncio
import tempfile

from tests.bench import share_state
from tests.bench.alone.figure import Figure

ACKNOWLEDGEMENTS = 1_000_000
SHARE_PARTITIONS = 100


def measure(acknowledgements: int = ACKNOWLEDGEMENTS) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="bench-state-") as root:
        found = asyncio.run(share_state.measure(root, acknowledgements, SHARE_PARTITIONS))
    return [
        Figure(
            what=f"load {acknowledgements:,} state records at start",
            unit="s",
            value=found.load_seconds,
            at_most=10,
        ),
        Figure(
            what=f"state topic after {acknowledgements:,} acknowledgements on {SHARE_PARTITIONS} "
            "share partitions and a prune",
            unit="MiB",
            value=found.pruned_mebibytes,
            at_most=round(found.allowed_mebibytes, 2),
        ),
    ]
