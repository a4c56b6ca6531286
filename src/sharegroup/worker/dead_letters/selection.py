"""Which letters are meant: every condition that is set must hold."""

from __future__ import annotations

from dataclasses import dataclass, fields
from fnmatch import fnmatchcase

from sharegroup.worker.dead_letters.expression import Expression
from sharegroup.worker.dead_letters.letter import Letter


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Conditions; None, or an empty one, asks for nothing."""

    error_class: str | None = None
    """``TimeoutError``, with its module, or a pattern as ``psycopg.*``."""
    reason: str | None = None
    group: str | None = None
    handler: str | None = None
    since_ms: int | None = None
    """Buried at this time or later, in milliseconds since 1970."""
    until_ms: int | None = None
    """Buried before this time."""
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """Own headers that must be there; None: with whatever content."""
    where: Expression | None = None
    places: frozenset[tuple[int, int]] = frozenset()
    """Partition and offset of single letters."""
    redriven: bool | None = None
    """Whether it was sent back before."""

    @property
    def is_everything(self) -> bool:
        """Whether nothing is asked for."""
        return all(getattr(self, one.name) == one.default for one in fields(self))

    def matches(self, letter: Letter, *, redriven: bool) -> bool:
        """Whether all conditions hold; the cheap ones are asked first."""
        return (
            (self.redriven is None or self.redriven == redriven)
            and (not self.places or (letter.partition, letter.offset) in self.places)
            and (self.since_ms is None or letter.timestamp_ms >= self.since_ms)
            and (self.until_ms is None or letter.timestamp_ms < self.until_ms)
            and (self.key is None or letter.key == self.key)
            and (self.group is None or letter.group == self.group)
            and (self.reason is None or letter.death.reason == self.reason)
            and (self.handler is None or fnmatchcase(letter.death.handler, self.handler))
            and (self.error_class is None or _is_of_class(letter, self.error_class))
            and all(_has(letter, name, content) for name, content in self.headers)
            and (self.where is None or self.where.holds(letter.value))
        )


EVERYTHING = Selection()


def _is_of_class(letter: Letter, pattern: str) -> bool:
    """By the whole name or its last part, as people say it."""
    name = letter.death.error_class
    return fnmatchcase(name, pattern) or fnmatchcase(name.rpartition(".")[2], pattern)


def _has(letter: Letter, name: str, content: bytes | None) -> bool:
    return any(
        one == name and (content is None or found == content) for one, found in letter.headers
    )
