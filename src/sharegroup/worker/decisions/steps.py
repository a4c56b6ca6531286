"""What is done with a record after its handler ended: decided by `decide`, done by `running`.

Accept       acknowledged as done
GiveBack     released: delivered again, to anyone
Hold         stays locked here, renewed, and runs again; its worker slot is free
Postpone     written to a retry topic; accepted when that is acknowledged
Bury         written to the dead letters; rejected when that is acknowledged
"""

from __future__ import annotations

from dataclasses import dataclass

from sharegroup.worker.records.story import Story


@dataclass(frozen=True, slots=True)
class Accept:
    """Done."""


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Not done, here and now."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Run it again at ``story.due_ms``, from here."""

    story: Story


@dataclass(frozen=True, slots=True)
class Postpone:
    """Run it again at ``story.due_ms``, from anywhere."""

    story: Story


@dataclass(frozen=True, slots=True)
class Bury:
    """Never run it again."""

    story: Story
    reason: str
    """One of the words of `sharegroup.worker.decisions.reasons`."""
    error: BaseException | None = None
    is_kept: bool = True
    """False: rejected, and written nowhere, whatever the dead letters are (``unreadable``)."""


Step = Accept | GiveBack | Hold | Postpone | Bury
