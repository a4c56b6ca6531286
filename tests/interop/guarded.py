"""A Kafka whose users may only what the tables of docs/clusters.md and docs/spark.md say.

`tables` reads the rights out of the pages.  A `Guarded` node has an authorizer and a hundred users
without rights; `Guarded.visitor` takes one of them, grants it rights, and gives its names a prefix
of its own, so that every try of a table begins with topics and groups that nobody touched.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from sharegroup.client import (
    AdminClient as OurAdmin,
    AlterConfig,
    ConfigResource,
    NewTopic,
    Producer,
    ResourceType as OurType,
    ToEarliest,
    TopicPartition,
    new_offsets,
)
from sharegroup.testing import run_broker
from tests.authorization.kafka_broker import guarded_settings
from tests.support.chosen_broker import KAFKA, chosen
from tests.support.kafka_peer import KafkaPeer, free_ports
from tests.support.limits import HANGING_SECONDS

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = (DOCS / "clusters.md", DOCS / "spark.md")
HEADER = ("needs", "on", "name", "pattern")
KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.BROKER,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}
CLUSTER = "kafka-cluster"
USERS = 200
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"

SOONER = {
    "group.share.heartbeat.interval.ms": "200",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.heartbeat.interval.ms": "100",
}
"""A group has its partitions as soon as its member came."""


class Right(NamedTuple):
    """One operation on what one pattern names."""

    operation: str
    kind: str
    name: str
    pattern: str
    without: str = "fails"
    """What the table says of who does not have it; "is left out" is said of what is listed."""

    def missing(self, user: str, prefix: str) -> re.Pattern[str]:
        """What an error says where this right alone is missing."""
        kind, name = self.kind, re.escape(self.of(prefix))
        where = rf"{kind}s? (?:'[^']*', )*'{name}" + ("'" if self.pattern == "literal" else "")
        if kind == "cluster":
            where = "the cluster"
        # One sentence may name several: User:ann needs READ and WRITE on topics 'a', 'b'; ...
        operations = rf"(?:\w+ and )*{self.operation}(?: and \w+)*"
        return re.compile(rf"User:{user} needs (?:[^()]*; )?{operations} on {where}")

    def of(self, prefix: str) -> str:
        """The name among those of one visitor; all share the cluster, its `__` topics and jobs."""
        is_common = self.kind == "cluster" or self.name.startswith(("__", "sharegroup.job."))
        return self.name if is_common else prefix + self.name


class Table(NamedTuple):
    """Rights, by the command or what else stands before them in their rows."""

    title: str
    rows: Mapping[tuple[str, ...], Sequence[Right]]

    @property
    def rights(self) -> Sequence[Right]:
        """All of them."""
        return [right for rights in self.rows.values() for right in rights]


def tables() -> dict[str, Table]:
    """The tables of rights, by the text before them, such as ``A share consumer``."""
    lines = [line for page in PAGES for line in page.read_text().splitlines()]
    return {table.title: table for table in _tables(lines)}


def _tables(lines: Sequence[str]) -> Iterator[Table]:
    title, head = "", 0
    rows: dict[tuple[str, ...], list[Right]] = {}
    for line in [*lines, ""]:
        cells = tuple(cell.strip() for cell in line.strip("|").split("|"))
        if not line.startswith("|"):
            if rows:
                yield Table(title, rows)
            title, head, rows = line.rstrip(":") or title, 0, {}
        elif "needs" in cells and not rows:
            head = cells.index("needs")
            assert cells[head : head + 4] == HEADER, cells
            rows = {}
        elif head + 3 < len(cells) and cells[head + 3] in ("literal", "prefixed"):
            operations, kind, name, pattern = cells[head : head + 4]
            key = cells[:head] if any(cells[:head]) else next(reversed(rows), ())
            assert (kind in KINDS, name[:1] + name[-1:]) == (True, "``"), line
            rows.setdefault(key, []).extend(
                Right(operation, kind, name.strip("`"), pattern, *cells[head + 4 :])
                for operation in operations.split(", ")
            )


@dataclass(frozen=True, slots=True)
class Visitor:
    """A user with a few rights, and what a test needs to be this user."""

    name: str
    password: str
    bootstrap_servers: str
    open_door: str
    """Where everybody may everything: for what is there before the visitor comes."""

    @property
    def prefix(self) -> str:
        return f"{self.name}."

    @property
    def options(self) -> dict[str, Any]:
        """Of a client of ours; it is impatient, because nothing here passes by waiting."""
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": self.name,
            "sasl_plain_password": self.password,
            "default_api_timeout_ms": 15_000,
        }

    def properties(self, folder: Path) -> Path:
        """A file for ``--command-config``."""
        login = f'{JAAS} username="{self.name}" password="{self.password}";'
        file = folder / f"{self.name}.properties"
        file.write_text(
            f"bootstrap.servers={self.bootstrap_servers}\nsecurity.protocol=SASL_PLAINTEXT\n"
            f"sasl.mechanism=PLAIN\nsasl.jaas.config={login}\n"
        )
        return file


class Guarded:
    """A broker with an open door for the test itself, and a guarded one for its visitors."""

    def __init__(self, open_door: str, guarded_door: str) -> None:
        self.bootstrap_servers = open_door
        self._guarded_door = guarded_door
        self._visitors = iter(range(USERS))
        self._admin: AdminClient | None = None

    def visitor(self, rights: Iterable[Right]) -> Visitor:
        """Somebody who was never here before, and may this from now on."""
        number = next(self._visitors)
        visitor = Visitor(
            _name(number),
            _password(number),
            self._guarded_door,
            self.bootstrap_servers,
        )
        self._grant(visitor, set(rights))
        return visitor

    def _grant(self, visitor: Visitor, rights: set[Right]) -> None:
        self._admin = self._admin or AdminClient({"bootstrap.servers": self.bootstrap_servers})
        principal = f"User:{visitor.name}"
        if not rights:
            return
        bindings = [
            AclBinding(
                KINDS[right.kind],
                right.of(visitor.prefix),
                ResourcePatternType[right.pattern.upper()],
                principal,
                "*",
                AclOperation[right.operation],
                AclPermissionType.ALLOW,
            )
            for right in rights
        ]
        for created in self._admin.create_acls(bindings).values():
            created.result(HANGING_SECONDS)
        # The controller answers, and the broker hears of it a moment later.
        everything = AclBindingFilter(
            *(ResourceType.ANY, None, ResourcePatternType.ANY),
            *(principal, None, AclOperation.ANY, AclPermissionType.ANY),
        )
        limit = time.monotonic() + HANGING_SECONDS
        while len(self._admin.describe_acls(everything).result(HANGING_SECONDS)) < len(bindings):
            assert time.monotonic() < limit, f"{principal}: rights do not arrive"


@contextmanager
def guarded(folder: Path) -> Iterator[Guarded]:
    """Run the chosen broker with an authorizer, and with users who have no rights."""
    open_port, guarded_port = free_ports(2)
    settings = guarded_settings({_name(number): _password(number) for number in range(USERS)})
    listener = f",SASL_PLAINTEXT://127.0.0.1:{guarded_port}"
    if chosen() != KAFKA:
        settings["listeners"] = f"PLAINTEXT://127.0.0.1:{open_port}{listener}"
        with run_broker(settings):
            yield Guarded(f"127.0.0.1:{open_port}", f"127.0.0.1:{guarded_port}")
        return
    node = KafkaPeer(folder, SOONER | settings, heap="384m")
    node.properties["listeners"] += listener
    node.properties["advertised.listeners"] += listener
    node.properties["listener.security.protocol.map"] += ",SASL_PLAINTEXT:SASL_PLAINTEXT"
    with node:
        yield Guarded(node.bootstrap_servers, f"127.0.0.1:{guarded_port}")


def _name(number: int) -> str:
    return f"visitor{number}"


def _password(number: int) -> str:
    return f"password-{number}"


def each_missing(rights: Sequence[Right]) -> Iterator[tuple[Right, list[Right]]]:
    """Each right, and all the others."""
    for missing in rights:
        yield missing, [right for right in rights if right != missing]


async def furnish(visitor: Visitor) -> None:
    """A topic with two orders, and a group that begins with the first."""
    orders, billing = visitor.prefix + "orders", visitor.prefix + "billing"
    async with (
        OurAdmin(bootstrap_servers=visitor.open_door) as admin,
        Producer(bootstrap_servers=visitor.open_door) as producer,
    ):
        assert await admin.create_topics([NewTopic(orders, 1)]) == {orders: None}
        group = ConfigResource(OurType.GROUP, billing)
        earliest = AlterConfig("share.auto.offset.reset", "earliest")
        assert await admin.incremental_alter_configs({group: [earliest]}) == {group: None}
        for value in (b"one", b"two"):
            await producer.send_and_wait(orders, value)
        # After a record was written the broker knows of the topic.
        first = TopicPartition(orders, 0)
        plan = await admin.reset_group_offsets(billing, ToEarliest(), partitions=[first])
        assert new_offsets(plan) == {first: 0}
