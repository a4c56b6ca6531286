"""The steps that end a handler run: `decide` chooses one, and `running.settlement` carries it out.

Accept       the record is accepted
Redeliver    the record is released, and so delivered again to any member
Hold         the record stays locked here and runs again; its worker slot is free meanwhile
Postpone     the record is written to a retry topic, and accepted when the write is acknowledged
Bury         the record is written to the dead letters, and rejected when that is acknowledged
"""

from __future__ import annotations

from dataclasses import dataclass

from sharegroup.dead_letters.reasons import DeadLetterReason
from sharegroup.dead_letters.story import Story


@dataclass(frozen=True, slots=True)
class Accept:
    """Accept the record."""


@dataclass(frozen=True, slots=True)
class Redeliver:
    """Release the record, so that it is delivered again."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Hold the record under its lock, and run it again in this process at ``story.due_ms``."""

    story: Story


@dataclass(frozen=True, slots=True)
class Postpone:
    """Write the record to a retry topic; any worker runs it again at ``story.due_ms``."""

    story: Story


@dataclass(frozen=True, slots=True)
class Bury:
    """Reject the record and, if ``is_kept``, write it to the dead letters; it never runs again."""

    story: Story
    reason: DeadLetterReason
    error: BaseException | None = None
    is_kept: bool = True
    """False if it is rejected without a dead letter, even if the route has a dead-letter topic.

    Used for ``unreadable="reject"``.
    """


Step = Accept | Redeliver | Hold | Postpone | Bury
