"""Context variables with the record that the current task or thread handles.

The slot that runs a handler sets them.  Log lines of all functions that the handler calls name
the record (`telemetry.logs`).
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

CURRENT: ContextVar[Any] = ContextVar("sharegroup_record", default=None)
"""The `sharegroup.worker.Record` being handled; in a batch handler the first of the batch."""
CURRENT_SLOT: ContextVar[Any] = ContextVar("sharegroup_slot", default=None)
"""The `HandlerSlot` that runs the handler, whose time is limited; each slot's task sets it once."""
CURRENT_GROUP: ContextVar[str] = ContextVar("sharegroup_group", default="")
"""The group for which the record is handled; each handler slot sets it once."""
