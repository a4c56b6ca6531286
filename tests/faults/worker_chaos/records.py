"""What is sent: the number of a record says what its handler does, and so how it must end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

ATTEMPTS = 4
"""Runs of a handler, at most."""
HANDLING_SECONDS_MAX = 2.0
"""Longer ones are interrupted."""
JOBS, CRUNCH, DEAD, GROUP = "jobs", "crunch", "chaos.dead", "chaos"


class Kind(StrEnum):
    """What becomes of a record in its handler."""

    GOOD = "good"
    """It returns at once."""
    SLOW = "slow"
    """It returns after a few hundredths of a second."""
    FLAKY = "flaky"
    """It fails once or twice, and returns then."""
    HANGING = "hanging"
    """The first run never ends by itself; the second returns."""
    STUBBORN = "stubborn"
    """It fails in each run."""
    FATAL = "fatal"
    """It fails with an error that is not tried again."""
    REFUSED = "refused"
    """It raises Reject."""
    GARBLED = "garbled"
    """Its bytes are no JSON."""
    CRUNCHED = "crunched"
    """It returns, in a process of its own."""
    CRASHING = "crashing"
    """It ends the interpreter of its own process, in each run."""
    EXITING = "exiting"
    """It ends the interpreter of the whole worker, in each delivery."""


IN_A_THOUSAND: Mapping[Kind, int] = {
    Kind.SLOW: 60,
    Kind.FLAKY: 60,
    Kind.HANGING: 6,
    Kind.STUBBORN: 10,
    Kind.FATAL: 10,
    Kind.REFUSED: 10,
    Kind.GARBLED: 10,
    Kind.CRUNCHED: 30,
    Kind.CRASHING: 2,
}
"""The rest is good."""

ENDS_DEAD: Mapping[Kind, str] = {
    Kind.STUBBORN: "attempts-exhausted",
    Kind.FATAL: "not-retried",
    Kind.REFUSED: "rejected",
    Kind.GARBLED: "unreadable",
    Kind.CRASHING: "attempts-exhausted",
    Kind.EXITING: "deliveries-exhausted",
}
"""Kinds that must end with the dead letters, and the reason that must stand there.

No other record may end there, although each may be delivered often, to processes that are killed
while they hold it: that says nothing about its handler."""


class Sent(NamedTuple):
    """One record as it is sent."""

    number: int
    kind: Kind

    @property
    def topic(self) -> str:
        """Where to."""
        return CRUNCH if self.kind in {Kind.CRUNCHED, Kind.CRASHING} else JOBS

    @property
    def key(self) -> bytes:
        """Its number: what identifies it in topics and letters."""
        return str(self.number).encode()

    @property
    def value(self) -> bytes:
        """What the handler reads."""
        if self.kind is Kind.GARBLED:
            return b"{" + self.key
        return json.dumps({"number": self.number, "kind": self.kind}).encode()

    @property
    def failures(self) -> int:
        """How often a flaky one fails."""
        return 1 + self.number % 2


def records(count: int, exiting: int) -> list[Sent]:
    """All records, in the order in which they are sent; ``exiting`` of them evenly spread."""
    bounds: list[Kind] = [kind for kind, share in IN_A_THOUSAND.items() for _ in range(share)]
    found = []
    exits = {(2 * index + 1) * count // (2 * exiting) for index in range(exiting)}
    for number in range(count):
        # A step without a common factor: each thousand has its share, and neighbours differ.
        place = number * 379 % 1000
        kind = bounds[place] if place < len(bounds) else Kind.GOOD
        found.append(Sent(number, Kind.EXITING if number in exits else kind))
    return found
