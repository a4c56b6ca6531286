"""The rights that docs/clusters.md names suffice, and without any one of them an error names it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    ConsumerGroupMetadata,
    NewTopic,
    OffsetSpec,
    Producer,
    ResourceType,
    ShareConsumer,
    ToEarliest,
    TopicPartition,
)
from sharegroup.client.sync import ShareConsumer as SyncShareConsumer
from sharegroup.errors import KafkaError
from tests.integration.cli.piping import sharegroup
from tests.interop.guarded import Guarded, Right, Visitor, each_missing, furnish, guarded, tables
from tests.support.chosen_broker import KAFKA, LONG_WITH_A_JVM, ON_KAFKA, chosen
from tests.support.limits import HANGING_SECONDS

pytestmark = ON_KAFKA if chosen() == KAFKA else []

TABLES = tables()
COMMANDS = TABLES["Commands, and calls of `AdminClient`"].rows


@dataclass(frozen=True)
class Names:
    """What a visitor's calls are about."""

    prefix: str
    words: str
    """Of the command that does the same."""

    @property
    def orders(self) -> str:
        return self.prefix + "orders"

    @property
    def parcels(self) -> str:
        return self.prefix + "parcels"

    @property
    def billing(self) -> str:
        return self.prefix + "billing"

    @property
    def first(self) -> TopicPartition:
        return TopicPartition(self.orders, 0)

    @property
    def resource(self) -> ConfigResource:
        if "--broker" in self.words:
            return ConfigResource(ResourceType.BROKER, "1")
        if "--group" in self.words:
            return ConfigResource(ResourceType.GROUP, self.billing)
        return ConfigResource(ResourceType.TOPIC, self.orders)

    @property
    def change(self) -> AlterConfig:
        name, value = self.words.partition("--set ")[2].split("=")
        return AlterConfig(name, value)


NAMES = re.compile(r"\b(orders|parcels|billing)\b")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("guarded")) as node:
        yield node


async def consume(visitor: Visitor) -> None:
    async with (
        asyncio.timeout(HANGING_SECONDS),
        ShareConsumer(
            visitor.prefix + "orders", group_id=visitor.prefix + "billing", **visitor.options
        ) as consumer,
    ):
        async for record in consumer:
            assert record.value == b"one"
            break


async def produce(visitor: Visitor, *, idempotent: bool = True) -> None:
    async with (
        asyncio.timeout(HANGING_SECONDS),
        Producer(idempotent=idempotent, **visitor.options) as producer,
    ):
        await producer.send_and_wait(visitor.prefix + "orders", b"three")


async def produce_without_numbers(visitor: Visitor) -> None:
    await produce(visitor, idempotent=False)


async def transact(visitor: Visitor) -> None:
    orders = visitor.prefix + "orders"
    options = {**visitor.options, "transactional_id": visitor.prefix + "billing"}
    member = ConsumerGroupMetadata(visitor.prefix + "audit")
    async with (
        asyncio.timeout(HANGING_SECONDS),
        Producer(**options) as producer,
        producer.transaction() as transaction,
    ):
        await producer.send_and_wait(orders, b"three")
        await transaction.send_offsets({TopicPartition(orders, 0): 1}, member)


CLIENTS = {
    "A share consumer": [consume],
    "A producer, idempotent or not": [produce, produce_without_numbers],
    "A producer with transactions that commits offsets of a consumer group": [transact],
}


@pytest.mark.parametrize("title", CLIENTS)
def test_client(kafka: Guarded, title: str) -> None:
    rights = TABLES[title].rights

    async def scenario(use: Callable[[Visitor], Awaitable[None]]) -> None:
        visitor = kafka.visitor(rights)
        await furnish(visitor)
        await use(visitor)
        for absent, others in each_missing(rights):
            visitor = kafka.visitor(others)
            await furnish(visitor)
            with pytest.raises(KafkaError) as refused:
                await use(visitor)
            assert absent.missing(visitor.name, visitor.prefix).search(str(refused.value))

    for use in CLIENTS[title]:
        asyncio.run(scenario(use))


Way = Callable[[Visitor], tuple[str, str]]
"""Something that a visitor does: what was said, and how it failed."""
Call = Callable[[AdminClient, Names], Awaitable[object]]
CALLS: dict[str, Call] = {
    "list_topics": lambda admin, _: admin.list_topics(),
    "describe_topics": lambda admin, names: admin.describe_topics([names.orders]),
    "list_offsets": lambda admin, names: admin.list_offsets({names.first: OffsetSpec.LATEST}),
    "create_topics": lambda admin, names: admin.create_topics([NewTopic(names.parcels, 1)]),
    "create_partitions": lambda admin, names: admin.create_partitions({names.orders: 2}),
    "delete_topics": lambda admin, names: admin.delete_topics([names.orders]),
    "delete_records": lambda admin, names: admin.delete_records({names.first: 1}),
    "describe_configs": lambda admin, names: admin.describe_configs([names.resource]),
    "incremental_alter_configs": lambda admin, names: admin.incremental_alter_configs(
        {names.resource: [names.change]}
    ),
    "list_groups": lambda admin, _: admin.list_groups(),
    "list_share_groups": lambda admin, _: admin.list_share_groups(),
    "list_share_group_offsets": lambda admin, names: admin.list_share_group_offsets(
        {names.billing: None}
    ),
    "describe_share_groups": lambda admin, names: admin.describe_share_groups([names.billing]),
    "reset_group_offsets": lambda admin, names: admin.reset_group_offsets(
        names.billing, ToEarliest(), partitions=[names.orders]
    ),
    "delete_share_group_offsets": lambda admin, names: admin.delete_share_group_offsets(
        names.billing, [names.orders]
    ),
    "delete_share_groups": lambda admin, names: admin.delete_share_groups([names.billing]),
}


def call(name: str, words: str) -> Way:
    """A call, for the resource that the command is for: what it says, and how it failed."""

    async def ask(visitor: Visitor) -> tuple[str, str]:
        async with AdminClient(**visitor.options) as admin:
            try:
                said = await CALLS[name](admin, Names(visitor.prefix, words))
            except KafkaError as error:
                return "", str(error)
        return str(said), "\n".join(map(str, _errors(said)))

    return lambda visitor: asyncio.run(ask(visitor))


def _errors(said: object) -> Iterator[KafkaError]:
    """Errors among results by item, also where an item has items."""
    if isinstance(said, KafkaError):
        yield said
    elif isinstance(said, Mapping):
        for answer in said.values():
            yield from _errors(answer)


def command(words: str, folder: Path) -> Way:
    """A command line: what it prints, and how it failed."""

    def run(visitor: Visitor) -> tuple[str, str]:
        named = NAMES.sub(visitor.prefix + r"\1", words).split()
        login = ("--command-config", str(visitor.properties(folder)))
        done = sharegroup(*named, *login, stdin=b"three\n" if named[0] == "produce" else b"")
        assert done.code in (0, 1)
        return done.out.decode(), done.err if done.code else ""

    return run


def ways(row: tuple[str, ...], folder: Path) -> Iterator[Way]:
    """The command of a row, and the calls of the admin client that stand beside it."""
    words, calls = row[0].strip("`"), re.findall(r"`(\w+)`", row[1])
    yield command(words, folder)
    for name in calls:
        if name not in ("Producer", "ShareConsumer"):  # They have tables of their own.
            yield call(name, words)


@LONG_WITH_A_JVM
@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row[0].strip("`"))
def test_command(kafka: Guarded, row: tuple[str, ...], tmp_path: Path) -> None:
    rights = COMMANDS[row]

    def attempt(way: Way, given: Sequence[Right]) -> tuple[Visitor, str, str]:
        visitor = kafka.visitor(given)
        asyncio.run(furnish(visitor))
        with membership(visitor) if "--members" in row[0] else nullcontext():
            return visitor, *way(visitor)

    for way in ways(row, tmp_path):
        assert attempt(way, rights)[2] == ""
        for absent, others in each_missing(rights):
            visitor, said, error = attempt(way, others)
            if absent.without == "is left out":
                assert error == ""
                assert absent.of(visitor.prefix) not in said
                continue
            if absent.operation != "DESCRIBE" and "needs DESCRIBE on" in error:
                # It asks in two steps, the first of which is all that it was refused so far.
                describe = absent._replace(operation="DESCRIBE")
                visitor, said, error = attempt(way, [*others, describe])
            if "members" in absent.without:
                each = f"needs DESCRIBE on each topic of group '{visitor.prefix}billing'"
                assert f"(User:{visitor.name} {each})" in error
            else:
                assert absent.missing(visitor.name, visitor.prefix).search(error), error


@contextmanager
def membership(visitor: Visitor) -> Iterator[None]:
    """Somebody else is a member of the group meanwhile."""
    with SyncShareConsumer(
        visitor.prefix + "orders",
        group_id=visitor.prefix + "billing",
        bootstrap_servers=visitor.open_door,
    ) as consumer:
        assert consumer.poll(timeout=30)
        yield
