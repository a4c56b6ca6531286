"""Which record this task, or this handler's thread, is about: for log lines and spans.

The lane that runs a handler sets it; whatever the handler calls finds it, so that a line logged
deep inside of it says which record it is about (`seeing.logs`).
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

CURRENT: ContextVar[Any] = ContextVar("sharegroup_record", default=None)
"""The `sharegroup.worker.Record` being handled; a batch handler's: the first of its batch."""
CURRENT_GROUP: ContextVar[str] = ContextVar("sharegroup_group", default="")
"""The group that it is handled for; each lane sets it once."""
