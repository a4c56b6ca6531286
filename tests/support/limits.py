"""How long a test waits for what must happen: a limit for what hangs, not for what is slow."""

from __future__ import annotations

HANGING_SECONDS = 300.0
"""Nothing that tests wait for takes so long, not even on one slow processor shared with others."""
