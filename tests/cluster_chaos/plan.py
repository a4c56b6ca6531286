"""The faults of a trial, from a seed: which kind, on which nodes, when, and for how long.

Faults come one after the other: the next one begins when the one before is undone.  Undone does
not mean recovered: a node that was started again may still be replaying its log, and replicas may
be out of sync.  Short losses of a majority and of the minimum of replicas in sync follow from
that, beside the kinds that cause them on purpose.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

NODES = (1, 2, 3)


class Kind(StrEnum):
    """What a fault does; all but the moves are undone after a while."""

    KILL = "kill"
    STOP = "stop"
    """SIGTERM: the broker hands over what it leads."""
    FREEZE = "freeze"
    ISOLATE = "isolate"
    """Cut from the other nodes in both directions; clients reach it."""
    ISOLATE_CLIENTS = "isolate-clients"
    """Cut from everyone."""
    ISOLATE_OUT = "isolate-out"
    """Other nodes do not receive what it sends."""
    ISOLATE_IN = "isolate-in"
    """It does not receive what other nodes send."""
    ISOLATE_PAIR = "isolate-pair"
    """Two nodes do not reach each other; both reach the third one."""
    RESET = "reset"
    """Cut from everyone, with connections reset instead of silent."""
    MOVE_LEADERS = "move-leaders"
    MOVE_COORDINATORS = "move-coordinators"
    KILL_TWO = "kill-two"
    FREEZE_TWO = "freeze-two"
    ISOLATE_ALL = "isolate-all"
    """No node reaches another one."""
    KILL_CLIENT = "kill-client"
    """A process with consumers or a worker; it is started again at once."""


OF_SIXTY: Mapping[Kind, int] = {
    Kind.KILL: 8,
    Kind.STOP: 5,
    Kind.FREEZE: 7,
    Kind.ISOLATE: 5,
    Kind.ISOLATE_CLIENTS: 4,
    Kind.ISOLATE_OUT: 4,
    Kind.ISOLATE_IN: 4,
    Kind.ISOLATE_PAIR: 3,
    Kind.RESET: 3,
    Kind.MOVE_LEADERS: 4,
    Kind.MOVE_COORDINATORS: 4,
    Kind.KILL_TWO: 2,
    Kind.FREEZE_TWO: 1,
    Kind.ISOLATE_ALL: 1,
    Kind.KILL_CLIENT: 5,
}
"""How many of sixty faults are of a kind."""

NODES_HIT: Mapping[Kind, int] = {
    Kind.MOVE_LEADERS: 0,
    Kind.MOVE_COORDINATORS: 0,
    Kind.KILL_CLIENT: 0,
    Kind.ISOLATE_PAIR: 2,
    Kind.KILL_TWO: 2,
    Kind.FREEZE_TWO: 2,
    Kind.ISOLATE_ALL: 3,
}
"""One, unless it stands here."""

AT_ONCE = frozenset({Kind.MOVE_LEADERS, Kind.MOVE_COORDINATORS, Kind.KILL_CLIENT})
"""Nothing is to be undone."""
WITHOUT_MAJORITY = frozenset({Kind.KILL_TWO, Kind.FREEZE_TWO, Kind.ISOLATE_ALL})
DIVIDING = frozenset(
    {
        Kind.FREEZE,
        Kind.FREEZE_TWO,
        Kind.ISOLATE,
        Kind.ISOLATE_CLIENTS,
        Kind.ISOLATE_OUT,
        Kind.ISOLATE_IN,
        Kind.ISOLATE_PAIR,
        Kind.ISOLATE_ALL,
        Kind.RESET,
    }
)
"""A leader that lives on may not know that it was replaced."""

SECONDS_MIN, SECONDS_MAX = 1.0, 8.0
SECONDS_MAX_WITHOUT_MAJORITY = 5.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: ``at`` in seconds since the first moment of the trial."""

    index: int
    kind: Kind
    nodes: tuple[int, ...]
    at: float
    seconds: float
    """Until it is undone."""
    draw: int
    """The seed of what is chosen when it comes: partitions, replicas, processes."""


def plan(seed: int, *, seconds: float, count: int) -> tuple[Fault, ...]:
    """The same arguments give the same plan; each slot of ``seconds / count`` has one fault."""
    assert count >= 1, count
    chance = random.Random(seed)
    deck = [kind for kind, share in OF_SIXTY.items() for _ in range(share)]
    kinds: list[Kind] = []
    while len(kinds) < count:
        kinds += chance.sample(deck, len(deck))
    slot = seconds / count
    return tuple(
        _fault(index, kind, index * slot, slot, chance) for index, kind in enumerate(kinds[:count])
    )


def _fault(index: int, kind: Kind, begin: float, slot: float, chance: random.Random) -> Fault:
    longest = SECONDS_MAX_WITHOUT_MAJORITY if kind in WITHOUT_MAJORITY else SECONDS_MAX
    seconds = chance.uniform(SECONDS_MIN, max(SECONDS_MIN, min(longest, slot)))
    nodes = tuple(chance.sample(NODES, NODES_HIT.get(kind, 1)))
    at = begin + chance.uniform(0, max(0.0, slot - seconds))
    draw = chance.randrange(1 << 30)
    return Fault(index, kind, nodes, at, 0.0 if kind in AT_ONCE else seconds, draw)
