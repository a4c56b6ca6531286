"""The result of a redrive: the copies sent, the letters left, and the letters refused.

Many groups may share a dead-letter topic, and every producer with access to it can name any
group.  So a letter that cannot be sent does not end a redrive.  It stays and is reported at the
end, by target topic and reason (`Refusals`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

ALREADY = "redriven-before"
LOOPING = "redrives-exhausted"
GONE = "record-gone"
NO_LETTER = "no-dead-letter"
RAW_BATCH = "unreadable-batch"

WHY_LEFT: Mapping[str, str] = {
    ALREADY: "sent back before (--again sends them once more)",
    LOOPING: "sent back as often as --max-redrives allows",
    GONE: "without a copy of their record, which no longer exists in its topic",
    NO_LETTER: "not dead letters: they contain no group and no record",
    RAW_BATCH: "of batches that cannot be read: they contain bytes of the log and no record",
}
"""Reasons for which a matching letter is not sent, with their texts."""


TARGETS_MAX = 100
"""Targets counted separately; letters for further targets are counted together."""

RUNS_MAX = 100
"""Runs of consecutive letters reported for one target; further letters are only counted."""

OTHER_TARGETS = "(other topics)"
SEVERAL_REASONS = (
    "several reasons; to see each reason, select these dead letters with --group or --at"
)


@dataclass(slots=True)
class Refused:
    """Letters for one target that were not sent for one reason."""

    target: str
    reason: str
    letters: int = 0
    runs: list[tuple[int, int, int]] = field(default_factory=list)
    """Partition, first offset and end offset of consecutive letters."""

    def add(self, partition: int, offset: int) -> None:
        """Count a letter; must be called in the order of offsets."""
        self.letters += 1
        if self.runs and self.runs[-1][0] == partition and self.runs[-1][2] == offset:
            self.runs[-1] = (partition, self.runs[-1][1], offset + 1)
        elif len(self.runs) < RUNS_MAX:
            self.runs.append((partition, offset, offset + 1))

    def places(self) -> Iterator[str]:
        """The letters as ``partition:offset`` or ``partition:first-last``."""
        for partition, first, end in self.runs:
            yield f"{partition}:{first}" + (f"-{end - 1}" if end - first > 1 else "")

    @property
    def all_told(self) -> bool:
        """Whether `places` names every letter."""
        return sum(end - first for _, first, end in self.runs) == self.letters


class Refusals:
    """All letters that one redrive could not send."""

    __slots__ = ("_by_target",)

    def __init__(self) -> None:
        self._by_target: dict[tuple[str, str], Refused] = {}

    def add(self, target: str, reason: str, partition: int, offset: int) -> None:
        """Count a letter that stays where it is."""
        key = (target, reason)
        if key not in self._by_target and len(self._by_target) >= TARGETS_MAX:
            key = (OTHER_TARGETS, SEVERAL_REASONS)
        refused = self._by_target.get(key)
        if refused is None:
            refused = self._by_target[key] = Refused(*key)
        refused.add(partition, offset)

    def put(self, refused: Refused) -> None:
        """Add the count of a target and a reason, to go on with it."""
        self._by_target[refused.target, refused.reason] = refused

    def __iter__(self) -> Iterator[Refused]:
        return iter(self._by_target.values())

    def __bool__(self) -> bool:
        return bool(self._by_target)

    @property
    def letters(self) -> int:
        """The number of letters that were refused."""
        return sum(refused.letters for refused in self)


@dataclass(slots=True)
class Redriven:
    """The result of a redrive."""

    sent: Counter[str] = field(default_factory=Counter)
    """The number of records sent to each topic."""
    left: Counter[str] = field(default_factory=Counter)
    """The number of matching letters that were not sent, by reason."""
    without_headers: int = 0
    """Sent records whose own headers are lost, from letters that a broker wrote."""
    refused: Refusals = field(default_factory=Refusals)
    """Matching letters that could not be sent."""
    interrupted: bool = False
