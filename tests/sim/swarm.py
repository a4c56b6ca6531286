"""What happens in a run: every seed switches some faults and features on and others off.

A run in which everything goes wrong at once hides what goes wrong alone: with all faults on,
nothing lives long enough to meet the rarer ones (swarm testing).  So each seed draws its own
subset, and about one in eight has no faults at all: a healthy broker must pass the same checks.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

FAULTS = (
    "kill",
    "power",
    "power_at_operation",
    "restart",
    "pause",
    "clock_jump",
    "disk_slow",
    "disk_full",
    "sync_fails",
    "network_slow",
    "network_pieces",
    "network_down",
    "network_reset",
    "half_open",
)

FEATURES = (
    "grow",
    "recreate",
    "delete_records",
    "group_configs",
    "topic_configs",
    "offsets",
    "delete_groups",
    "retention",
)
"""What the administrator does now and then."""

JOBS = ("prune", "compact", "dead_letters", "transactions")
"""What the broker does by itself, if it is told to."""

CALM = 0.12
"""The part of seeds without faults."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a seed decides before the run begins."""

    seed: int
    faults: tuple[str, ...]
    features: tuple[str, ...]
    jobs: tuple[str, ...]
    chaos_s: float
    fault_pause_s: float
    topics: int
    groups: int
    members: int
    producers: int
    consumers: int
    own_clients: bool
    """Whether this project's own clients take part."""
    offset_reset: str
    lock_ms: int
    delivery_count_max: int
    locks_max: int
    updates_per_snapshot: int
    segment_bytes: int
    durability: str
    reads_committed: bool
    pipelines: bool
    """Whether workers read, process and write in transactions."""
    modern_members: int
    """Members of a consumer group of KIP-848."""
    spark_query: bool
    """Whether a Spark query reads the topics, in a group of its own."""
    by_key: bool
    """Whether share groups are ordered by key from the beginning."""
    delays: bool
    """Whether members name delays."""

    @property
    def delay_ms_max(self) -> int:
        """The longest delay; 0 where a wall clock that is set back makes a stored one of hours."""
        return 0 if "clock_jump" in self.faults else 2_500

    @property
    def completion_max(self) -> int:
        """The most records of a log batch that is completed above the limit of locks."""
        return {100: 0, 200: 20, 2_000: 10_000}[self.locks_max]

    def __str__(self) -> str:
        return (
            f"seed={self.seed} faults={','.join(self.faults) or 'none'} "
            f"features={','.join(self.features) or 'none'} jobs={','.join(self.jobs) or 'none'} "
            f"durability={self.durability} "
            f"topics={self.topics} groups={self.groups} members={self.members} "
            f"consumers={self.consumers} own_clients={self.own_clients} "
            f"pipelines={self.pipelines} modern_members={self.modern_members} "
            f"spark_query={self.spark_query} by_key={self.by_key} delays={self.delays} "
            f"lock_ms={self.lock_ms} deliveries={self.delivery_count_max}"
        )


def plan_of(seed: int) -> Plan:
    """The plan of a seed, the same one for ever."""
    chance = random.Random(f"plan {seed}")
    durability = "os" if chance.random() < 0.15 else "fsync"
    is_calm = chance.random() < CALM
    faults = () if is_calm else _some(chance, FAULTS)
    if durability == "os":  # It promises nothing to those who lose the power.
        faults = tuple(fault for fault in faults if not fault.startswith(("power", "sync_fails")))
    return Plan(
        seed=seed,
        faults=faults,
        features=_some(chance, FEATURES),
        jobs=_some(chance, JOBS),
        chaos_s=chance.uniform(4, 10),
        fault_pause_s=chance.choice((0.7, 1.5, 3.0)),
        topics=chance.choice((1, 1, 2)),
        groups=chance.choice((1, 2, 2)),
        members=chance.choice((1, 2, 3)),
        producers=chance.choice((1, 2, 3)),
        consumers=chance.choice((0, 0, 2)),
        own_clients=chance.random() < 0.4,
        offset_reset=chance.choice(("earliest", "earliest", "latest")),
        lock_ms=chance.choice((1_000, 2_000, 5_000)),
        delivery_count_max=chance.choice((2, 3, 5, 10)),
        locks_max=chance.choice((100, 200, 2_000)),
        updates_per_snapshot=chance.choice((0, 3, 20, 500)),
        segment_bytes=chance.choice((1_024, 4_096, 1 << 20)),
        durability=durability,
        reads_committed=chance.random() < 0.5,
        # Of a chance of its own: the rest of a seed's plan stays as it was before there were any.
        pipelines=random.Random(f"pipelines {seed}").random() < 0.4,
        modern_members=random.Random(f"modern {seed}").choice((0, 0, 2, 3)),
        spark_query=random.Random(f"spark {seed}").random() < 0.4,
        by_key=random.Random(f"by key {seed}").random() < 0.3,
        delays=random.Random(f"delays {seed}").random() < 0.4,
    )


def _some(chance: random.Random, names: tuple[str, ...]) -> tuple[str, ...]:
    """Each with a probability that is itself drawn, so that small and large subsets occur."""
    part = chance.choice((0.15, 0.3, 0.6))
    return tuple(name for name in names if chance.random() < part)
