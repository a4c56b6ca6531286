"""How long a test waits for what must happen: a limit for what hangs, not for what is slow.

And how much of a long sweep `make test` runs.
"""

from __future__ import annotations

import os

HANGING_SECONDS = 300.0
"""Nothing that tests wait for takes so long, not even on one slow processor shared with others."""

ALL_DAMAGE = os.environ.get("DAMAGE") == "all"
"""`make damage`: every flipped bit and many disks that lose power.  `make test` takes a sample."""
