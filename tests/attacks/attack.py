"""What an attack is: a name, its rounds, and the bounds of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tests.attacks.target import Target

Round = Callable[[Target], Iterator[None]]
"""One round: everything before the ``yield`` is the attack, everything behind it lets go.

The harness looks at the broker while the round stands at its ``yield``, with all its connections
open."""


def _nothing(target: Target) -> None:
    """Prepare nothing."""


def _no_problem(target: Target) -> list[str]:
    return []


@dataclass(frozen=True)
class Attack:
    """One row of the list of attacks."""

    name: str
    what: str
    round: Round
    prepare: Callable[[Target], None] = _nothing
    """Runs before memory and the probe are measured."""
    during: Callable[[Target], list[str]] = _no_problem
    """Problems that an honest client sees while the round holds."""
    after: Callable[[Target], list[str]] = _no_problem
    """Problems that an honest client sees behind the round."""
    settings: Mapping[str, str] = field(default_factory=dict)
    descriptors_max: int | None = None
    budget_mib: int = 512
    """Memory that the broker may use for this during the attack, beside idle and 100 MiB."""
    kept_mib: int = 512
    """Memory that it may keep behind the attack, and load at a restart, in the same way."""
    slow: bool = False
    """It takes more than 10 s, so `make test` never runs it."""
    soak: bool = False
    """It can be repeated every 5 s beside honest load."""
