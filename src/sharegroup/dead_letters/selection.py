"""The selection of dead letters by conditions, all of which must hold."""

from __future__ import annotations

from dataclasses import dataclass, fields
from fnmatch import fnmatchcase

from sharegroup.dead_letters.expression import Expression
from sharegroup.dead_letters.letter import Letter
from sharegroup.dead_letters.reasons import DeadLetterReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Conditions for dead letters; a condition that is None or empty matches every letter."""

    error_class: str | None = None
    """``TimeoutError``, also with its module, or a pattern such as ``psycopg.*``."""
    reason: DeadLetterReason | str | None = None
    group: str | None = None
    handler: str | None = None
    since_ms: int | None = None
    """Written at this time or later, in milliseconds since 1970."""
    until_ms: int | None = None
    """Written before this time, in milliseconds since 1970."""
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """Required headers of the application; a content of None matches any content."""
    where: Expression | None = None
    places: frozenset[tuple[int, int]] = frozenset()
    """Partition and offset of each selected letter."""
    redriven: bool | None = None
    """Whether the letter was redriven before."""

    @property
    def is_everything(self) -> bool:
        """Whether there are no conditions, so every letter matches."""
        return all(getattr(self, condition.name) == condition.default for condition in fields(self))

    def matches(self, letter: Letter, *, redriven: bool) -> bool:
        """Whether all conditions hold.  Cheap conditions are checked first."""
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
    """Whether the pattern matches the full class name or its last part."""
    name = letter.death.error_class
    return fnmatchcase(name, pattern) or fnmatchcase(name.rpartition(".")[2], pattern)


def _has(letter: Letter, name: str, content: bytes | None) -> bool:
    return any(
        header_name == name and (content is None or header_content == content)
        for header_name, header_content in letter.headers
    )
