"""Who takes part in a run, and how the broker is set up for them."""

from __future__ import annotations

import random
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

from tests.sim.admins import ORDER_BY, Administrator, Reader
from tests.sim.board import Board
from tests.sim.checker import Checker
from tests.sim.consumers import Consumer
from tests.sim.loop import Process, SimLoop
from tests.sim.machine import Machine
from tests.sim.messages import ACCEPT, REJECT, RELEASE
from tests.sim.modern_members import ModernMember
from tests.sim.network import Network
from tests.sim.pipelines import PARTITIONS, Feeder, Pipelines, Worker
from tests.sim.producers import Producer
from tests.sim.real_clients import OwnConsumer, OwnProducer
from tests.sim.share_members import EVERY_KIND, KEEP, Habits, ShareMember
from tests.sim.spark_queries import SPARK_GROUP, SparkQuery
from tests.sim.swarm import Plan
from tests.sim.transactions import Transactor

SESSION_TIMEOUT_S = 3
READ_COMMITTED = 1

ONLY_ACCEPT = ((ACCEPT, 1.0),)
MOSTLY_RELEASE = ((ACCEPT, 2.0), (RELEASE, 3.0))
ANYTHING_BUT_ACCEPT = ((REJECT, 3.0), (RELEASE, 1.0), (KEEP, 2.0))
KEEP_ALL = ((KEEP, 1.0),)

Life = Coroutine[Any, Any, None]


@dataclass
class Cast:
    """All clients of a run, by name, each drawing from a chance of its own."""

    plan: Plan
    board: Board
    lives: dict[str, Life] = field(default_factory=dict)
    """What each of them does, until the run is over."""
    consumers: list[ShareMember | OwnConsumer | SparkQuery] = field(default_factory=list)
    """Those that must receive something once the faults are over (V2)."""

    modern_members: list[ModernMember] = field(default_factory=list)
    """Those that must share all partitions once the faults are over (V3)."""

    pipelines: Pipelines | None = None
    """Read, process, write in transactions, if the plan has it."""

    spark_query: SparkQuery | None = None

    def chance(self, name: str) -> random.Random:
        """The same for a name and a seed."""
        return random.Random(f"{name} {self.plan.seed}")

    def add_all(self, machine: Machine, loop: SimLoop, checker: Checker) -> None:
        self._add_those_who_look_after_it()
        self._add_producers()
        self._add_consumers()
        self._add_modern_members()
        if self.plan.own_clients:
            self._add_own_clients(checker)
        if self.plan.pipelines:
            self._add_pipelines(checker)
        if "transactions" in self.plan.jobs:
            chance = self.chance("transactor")
            transactor = Transactor(self.board, machine, loop, checker.logs, chance)
            self.lives["transactor"] = transactor.run()

    def _add_those_who_look_after_it(self) -> None:
        administrator = Administrator(
            self.board,
            self.chance("admin"),
            self.plan.features,
            group_settings_of(self.plan),
            self.plan.delay_ms_max,
        )
        self.lives["admin"] = administrator.run()
        for name, isolation in (("reader", 0), ("careful", READ_COMMITTED)):
            self.lives[name] = Reader(name, self.board, self.chance(name), isolation).run()

    def _add_producers(self) -> None:
        for number in range(self.plan.producers):
            name = f"producer-{number}"
            chance = self.chance(name)
            acks = chance.choice((-1, -1, 1, 0)) if number else -1
            is_idempotent = acks == -1 and chance.random() < 0.5
            producer = Producer(name, self.board, chance, acks=acks, is_idempotent=is_idempotent)
            self.lives[name] = producer.run()

    def _add_consumers(self) -> None:
        for number in range(self.plan.consumers):
            name = f"consumer-{number}"
            self.lives[name] = Consumer(name, self.board, self.chance(name)).run()
        for group in self._groups_of_members():
            for number in range(self.plan.members):
                name = f"{group}-{number}"
                chance = self.chance(name)
                habits = replace(
                    _habits(chance),
                    delay=0.5 if self.plan.delays else 0,
                    delay_ms_max=self.plan.delay_ms_max,
                )
                member = ShareMember(name, group, self.board, chance, habits)
                self.consumers.append(member)
                self.lives[name] = member.run()

    def _add_modern_members(self) -> None:
        """One of them may be static, and one may subscribe by a pattern."""
        for number in range(self.plan.modern_members):
            chance = self.chance(f"modern-{number}")
            name = f"modern-{number}{chance.choice(('', '', 'p'))}"
            instance_id = f"instance-{number}" if chance.random() < 0.3 else None
            member = ModernMember(name, self.board, chance, instance_id)
            self.modern_members.append(member)
            self.lives[name] = member.run()

    def _add_pipelines(self, checker: Checker) -> None:
        self.pipelines = Pipelines(self.board, checker.logs)
        self.lives["feeder"] = Feeder(self.pipelines, self.chance("feeder")).run()
        for index in range(PARTITIONS):
            for twin in "ab":
                name = f"worker-{index}{twin}"
                chance = self.chance(name)
                is_old = chance.random() < 0.4
                worker = Worker(name, index, self.pipelines, chance, is_old)
                self.lives[name] = worker.run()

    def _add_own_clients(self, checker: Checker) -> None:
        for group in self._groups_of_members():
            name = f"{group}-own"
            consumer = OwnConsumer(name, group, self.board, checker, self.chance(name))
            self.consumers.append(consumer)
            self.lives[name] = consumer.run()
        name = "producer-own"
        self.lives[name] = OwnProducer(name, self.board, checker, self.chance(name)).run()

    def add_spark_query(
        self, network: Network, loop: SimLoop, checker: Checker, processes: list[Process]
    ) -> None:
        """Add a query, whose drivers are among the run's ``processes``."""
        query = SparkQuery(
            SPARK_GROUP,
            SPARK_GROUP,
            self.board,
            checker,
            self.chance(SPARK_GROUP),
            loop,
            network,
            processes,
            self.plan.lock_ms,
            self.plan.delay_ms_max,
        )
        self.spark_query = query
        self.consumers.append(query)
        self.lives[query.name] = query.run()

    def _groups_of_members(self) -> list[str]:
        return [group for group in self.board.groups if group != SPARK_GROUP]


def settings_of(plan: Plan) -> dict[str, str]:
    """The broker's settings: everything is short and small, so that it happens."""
    settings = {
        "sharegroup.durability": plan.durability,
        "auto.create.topics.enable": "false",
        "log.segment.bytes": str(plan.segment_bytes),
        "offsets.topic.num.partitions": "2",
        "offsets.topic.segment.bytes": "4096",
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.segment.bytes": "4096",
        "share.coordinator.state.topic.num.partitions": "2",
        "share.coordinator.state.topic.segment.bytes": "4096",
        "share.coordinator.snapshot.update.records.per.snapshot": str(plan.updates_per_snapshot),
        "group.share.delivery.count.limit": str(plan.delivery_count_max),
        "group.share.record.lock.duration.ms": str(plan.lock_ms),
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.partition.max.record.locks": str(plan.locks_max),
        "sharegroup.share.partition.batch.completion.max.records": str(plan.completion_max),
        "group.share.session.timeout.ms": str(SESSION_TIMEOUT_S * 1000),
        "group.share.min.session.timeout.ms": "2000",
        "group.share.heartbeat.interval.ms": "500",
        "group.share.min.heartbeat.interval.ms": "500",
        "group.share.assignment.interval.ms": "0",
        "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_S * 1000),
        "group.consumer.min.session.timeout.ms": "2000",
        "group.consumer.heartbeat.interval.ms": "500",
        "group.consumer.min.heartbeat.interval.ms": "500",
        "group.consumer.assignment.interval.ms": "0",
        "group.initial.rebalance.delay.ms": "200",
        "group.min.session.timeout.ms": "1000",
        "errors.deadletterqueue.auto.create.topics.enable": "true",
        "log.retention.check.interval.ms": "700",
        # The clock of the broker jumps by hours, that of the producers does not.
        "log.message.timestamp.after.max.ms": str(2**63 - 1),
    }
    if "prune" in plan.jobs:
        settings["share.coordinator.state.topic.prune.interval.ms"] = "500"
        settings["share.coordinator.cold.partition.snapshot.interval.ms"] = "2000"
    if "compact" in plan.jobs:
        settings["log.cleaner.backoff.ms"] = "300"
        settings["log.cleaner.min.cleanable.ratio"] = "0"
    return settings


def group_settings_of(plan: Plan) -> dict[str, str]:
    """What the administrator sets for every group; its own name takes the place of the star."""
    settings = {"share.auto.offset.reset": plan.offset_reset}
    if plan.reads_committed:
        settings["share.isolation.level"] = "read_committed"
    if plan.by_key:
        settings[ORDER_BY] = "key"
    if "dead_letters" in plan.jobs:
        settings["errors.deadletterqueue.topic.name"] = "dlq.*"
        settings["errors.deadletterqueue.copy.record.enable"] = "true"
    return settings


def _habits(chance: random.Random) -> Habits:
    """Careful ones, clumsy ones, those that give most records back, and those that keep them."""
    kinds = chance.choice((ONLY_ACCEPT, EVERY_KIND, MOSTLY_RELEASE, ANYTHING_BUT_ACCEPT, KEEP_ALL))
    return Habits(acks=kinds, crash=chance.choice((0, 0.02)), think_s=chance.choice((0.1, 0.3, 1)))
