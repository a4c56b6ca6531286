"""Plans, creates and compares the topics and settings that an application's routes require."""

from sharegroup.worker.infrastructure.applying import Applied, apply, plan, prepare
from sharegroup.worker.infrastructure.changes import Change, ChangeKind

__all__ = ["Applied", "Change", "ChangeKind", "apply", "plan", "prepare"]
