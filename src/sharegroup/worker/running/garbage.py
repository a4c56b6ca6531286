"""How often Python looks for garbage in a process that is nothing but a worker.

Records, deliveries and payloads make no cycles, so counting references frees them.  But each
thousand of them that are alive makes the collector look through all that are young, and in time
through all that there is: with handlers that wait, 4 us of the 15 that a record cost.  Cycles of
the application's own are found later than before, and are found.
"""

from __future__ import annotations

import gc

THRESHOLDS = (20_000, 20, 20)


def collect_seldom() -> None:
    """Leave alone what is there, and look for garbage less often; for a process of our own."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
