"""Topics and settings that an application's routes need: planned, made, and compared."""

from sharegroup.worker.infrastructure.applying import Applied, apply, plan, prepare
from sharegroup.worker.infrastructure.changes import Change, Kind

__all__ = ["Applied", "Change", "Kind", "apply", "plan", "prepare"]
