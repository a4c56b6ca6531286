"""A user with few rights tries to write, create and aim by way of dead letters (B1 and B2).

The broker is a process with logins and an authorizer.  Eve has rights on her own topics, groups and
the dead-letter topic `dlq.shared`; the administrator may do everything.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sharegroup.broker.access.jaas import PLAIN_MODULE
from sharegroup.broker.configuration.authorizer_settings import STANDARD_AUTHORIZER
from sharegroup.client import (
    AdminClient,
    ListedOffset,
    NewTopic,
    Producer,
    QuotaEntity,
    ShareConsumer,
    TopicPartition,
)
from sharegroup.client.admin.types import (
    AclBinding,
    AlterConfig,
    ConfigResource,
)
from sharegroup.client.fetch.offsets import OffsetSpec
from sharegroup.errors import KafkaError, TopicAuthorizationFailed
from sharegroup.protocol_enums import (
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    ConfigOperation,
    ResourceType,
)
from sharegroup.wire.batches.batches import LETTER_PRODUCER_ID
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.attacks.target import produce_request, produced
from tests.faults.login import Login
from tests.faults.raw_connection import RawConnection
from tests.integration.cli.piping import sharegroup
from tests.support.processes import ServeProcess

ADMIN, EVE, SECRET = "admin", "eve", "its-secret"
LIMIT_SECONDS = 60.0
INVALID_RECORD = 87
VICTIM = "payments"
STORY = {
    "origin.topic": VICTIM.encode(), "origin.partition": b"0", "origin.offset": b"0",
    "origin.timestamp": b"1", "redrives": b"0", "dead.id": b"payments-workers/payments/0/0/0",
    "dead.reason": b"rejected", "dead.group": b"payments-workers",
}  # fmt: skip
FORGED = tuple((f"__sharegroup.{name}", content) for name, content in STORY.items())
"""The headers of a dead letter of the worker of payments."""


class Secured:
    """The broker, and its clients by user."""

    def __init__(self, process: ServeProcess, folder: Path) -> None:
        self.process = process
        self._folder = folder

    def options(self, user: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.process.bootstrap_servers,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": user,
            "sasl_plain_password": SECRET,
        }

    def admin(self, user: str) -> AdminClient:
        return AdminClient(**self.options(user))

    async def make(self, *topics: str, **configs: str) -> None:
        values = {name.replace("_", "."): value for name, value in configs.items()}
        async with self.admin(ADMIN) as admin:
            made = await admin.create_topics([NewTopic(name, 1, configs=values) for name in topics])
            assert set(made.values()) == {None}, made

    async def acl(
        self,
        operation: str,
        name: str,
        kind: AclResourceType = AclResourceType.TOPIC,
        *,
        prefixed: bool = False,
        denies: bool = False,
    ) -> None:
        binding = AclBinding(
            kind, name, f"User:{EVE}", AclOperation[operation],
            AclPermission.DENY if denies else AclPermission.ALLOW,
            AclPatternType.PREFIXED if prefixed else AclPatternType.LITERAL,
        )  # fmt: skip
        async with self.admin(ADMIN) as admin:
            await admin.create_acls([binding])

    async def set_group(self, user: str, group: str, **configs: str) -> KafkaError | None:
        changes = [
            AlterConfig(name.replace("_", "."), value, ConfigOperation.SET)
            for name, value in configs.items()
        ]
        async with self.admin(user) as admin:
            resource = ConfigResource(ResourceType.GROUP, group)
            return (await admin.incremental_alter_configs({resource: changes}))[resource]

    async def queue(self, group: str, topic: str) -> KafkaError | None:
        """Eve points a group of hers at a dead-letter topic."""
        return await self.set_group(
            EVE, group, errors_deadletterqueue_topic_name=topic,
            errors_deadletterqueue_copy_record_enable="true", share_auto_offset_reset="earliest",
        )  # fmt: skip

    async def send(self, topic: str, value: bytes, headers: Any = (), count: int = 1) -> None:
        async with Producer(**self.options(EVE), linger_ms=0) as producer:
            for _ in range(count):
                await producer.send_and_wait(topic, value, headers=headers)

    async def reject(self, group: str, topic: str, count: int = 1) -> None:
        """A member of Eve's rejects so many records."""
        async with ShareConsumer(
            topic, **self.options(EVE), group_id=group, share_acknowledgement_mode="explicit"
        ) as consumer:
            async with asyncio.timeout(LIMIT_SECONDS):
                while count > 0:
                    for record in await consumer.poll(timeout=1):
                        record.reject()
                        count -= 1
                    await consumer.commit()

    def records(self, topic: str) -> int:
        """The number of records in partition 0 of a topic."""

        async def end() -> int:
            partition = TopicPartition(topic, 0)
            async with self.admin(ADMIN) as admin:
                found = (await admin.list_offsets({partition: OffsetSpec.LATEST}))[partition]
            assert isinstance(found, ListedOffset), found
            return found.offset

        return asyncio.run(end())

    async def settled(self, group: str, topic: str, offset: int) -> None:
        """Wait until the broker has decided about the records below an offset."""
        async with self.admin(ADMIN) as admin, asyncio.timeout(LIMIT_SECONDS):
            while True:
                (found,) = (await admin.list_share_group_offsets({group: None})).values()
                starts = [at.start_offset for at in found.values() if at is not None]
                if starts and min(starts) >= offset:
                    return
                await asyncio.sleep(0.05)

    def dlq(self, *words: str) -> tuple[int, str]:
        """A command of the administrator."""
        properties = self._folder / "admin.properties"
        properties.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f"sasl.jaas.config={PLAIN_MODULE} required username={ADMIN} password={SECRET};\n"
        )
        login = ("--bootstrap-server", self.process.bootstrap_servers)
        done = sharegroup("dlq", *words, *login, "--command-config", str(properties))
        return done.code, done.out.decode() + done.err

    def log(self) -> str:
        return self.process.log_path.read_text()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Secured]:
    users = " ".join(f'user_{name}="{SECRET}"' for name in (ADMIN, EVE))
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {users};",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:{ADMIN}",
        "errors.deadletterqueue.auto.create.topics.enable": "true",
        "num.partitions": "10",
    }
    process = ServeProcess(tmp_path / "data", durability="os", settings=settings)
    process.start()
    secured = Secured(process, tmp_path)

    async def set_up() -> None:
        await secured.make(VICTIM, "payments-workers.retry", "eves", "eve-group.retry")
        await secured.make("dlq.shared", "dlq.payments", errors_deadletterqueue_group_enable="true")
        for operation in ("READ", "WRITE"):
            await secured.acl(operation, "eves")
        await secured.acl("WRITE", "dlq.shared")
        for operation in ("READ", "ALTER_CONFIGS", "DESCRIBE"):
            await secured.acl(operation, "eve-", AclResourceType.GROUP, prefixed=True)

    asyncio.run(set_up())
    try:
        yield secured
    finally:
        process.kill9()


def nothing_reached_the_victim(broker: Secured) -> bool:
    return broker.records(VICTIM) == broker.records("payments-workers.retry") == 0


def test_eve_cannot_point_her_group_at_the_queue_of_payments(broker: Secured) -> None:
    async def attack() -> None:
        await broker.acl("WRITE", "dlq.payments", denies=True)
        refused = await broker.queue("eve-group", "dlq.payments")
        assert isinstance(refused, TopicAuthorizationFailed)
        assert "WRITE on TOPIC 'dlq.payments'" in str(refused)
        await broker.set_group(EVE, "eve-group", share_auto_offset_reset="earliest")
        await broker.send("eves", b"evil", FORGED, count=30)
        await broker.reject("eve-group", "eves", 30)
        await broker.settled("eve-group", "eves", 30)

    asyncio.run(attack())
    assert broker.records("dlq.payments") == 0
    assert broker.dlq("redrive", "dlq.payments")[1].startswith("sent nothing back")
    assert nothing_reached_the_victim(broker)


@pytest.mark.slow
def test_forged_story_in_a_shared_queue_does_not_aim_the_administrator(broker: Secured) -> None:
    async def attack() -> None:
        assert await broker.queue("eve-group", "dlq.shared") is None
        await broker.send("eves", b"evil", FORGED)
        await broker.reject("eve-group", "eves")
        await broker.settled("eve-group", "eves", 1)

    asyncio.run(attack())
    code, shown = broker.dlq("show", "dlq.shared")
    assert code == 0
    assert VICTIM not in shown
    for to in ("own", "original"):
        assert broker.dlq("redrive", "dlq.shared", "--to", to, "--again")[0] == 0
    assert nothing_reached_the_victim(broker)
    assert broker.records("eve-group.retry") > 0


def test_letter_that_eve_writes_herself_is_a_claim(broker: Secured) -> None:
    kafkas = tuple(
        (f"__dlq.errors.{name}", content)
        for name, content in (
            ("topic", VICTIM.encode()), ("partition", b"0"), ("offset", b"0"),
            ("group", b"payments-workers"), ("delivery.count", b"1"),
            ("message", b"Offset rejected by client."),
        )
    )  # fmt: skip
    for headers in (FORGED, kafkas, (*FORGED, *kafkas)):
        asyncio.run(broker.send("dlq.shared", b"evil", headers))
    for to in ("own", "original"):
        code, said = broker.dlq("redrive", "dlq.shared", "--to", to)
        assert code == 1
        assert "confirm it by name" in said
    assert nothing_reached_the_victim(broker)
    assert "claimed" in broker.dlq("show", "dlq.shared")[1]


@pytest.mark.parametrize(("producer_id", "sequence"), [(LETTER_PRODUCER_ID, -1), (-2, -1), (7, -1)])
def test_nobody_can_write_the_mark(broker: Secured, producer_id: int, sequence: int) -> None:
    batch = encode_batch(
        [SimpleRecord(None, b"evil", 1, FORGED)],
        producer_id=producer_id, producer_epoch=0, base_sequence=sequence,
    )  # fmt: skip
    for user in (EVE, ADMIN):
        login = Login("", user, SECRET)
        with RawConnection(broker.process.port, login=login) as connection:
            code = produced(connection.ask(produce_request("dlq.shared", bytes(batch))))
        assert code == INVALID_RECORD
    assert broker.records("dlq.shared") == 0


def test_right_that_is_taken_away_ends_the_letters(broker: Secured) -> None:
    async def attack() -> None:
        assert await broker.queue("eve-group", "dlq.shared") is None
        await broker.acl("WRITE", "dlq.shared", denies=True)
        await broker.send("eves", b"evil", count=30)
        await broker.reject("eve-group", "eves", 30)
        await broker.settled("eve-group", "eves", 30)

    asyncio.run(attack())
    assert broker.records("dlq.shared") == 0
    assert "event=dead_letters_refused group='eve-group' principal='User:eve'" in broker.log()


def test_twenty_groups_write_no_more_than_the_quota_of_their_user(broker: Secured) -> None:
    """Each group rejects one record of 500 KB; without the quota that is 10 MB in two seconds."""
    groups = [f"eve-{number}" for number in range(20)]

    async def attack() -> float:
        for group in groups:
            assert await broker.queue(group, "dlq.shared") is None
        await broker.send("eves", bytes(500_000))
        async with broker.admin(ADMIN) as admin:
            limited = QuotaEntity(user=EVE)
            limits = {limited: {"producer_byte_rate": 10_000.0}}
            assert await admin.alter_client_quotas(limits) == {limited: None}
        began = time.monotonic()
        for group in groups:
            await broker.reject(group, "eves")
        return time.monotonic() - began

    seconds = asyncio.run(attack())
    # The first letter passes and the next one waits for 50 s; the average is over 11 s.
    assert 1 <= broker.records("dlq.shared") <= 2 + seconds // 30


def test_user_without_create_gets_no_topics_by_way_of_dead_letters(broker: Secured) -> None:
    async def attack() -> list[KafkaError | None]:
        await broker.acl("WRITE", "dlq.eve-", prefixed=True)
        answers = [await broker.queue(f"eve-{number}", f"dlq.eve-{number}") for number in range(19)]
        await broker.set_group(EVE, "eve-0", share_auto_offset_reset="earliest")
        await broker.send("eves", b"x")
        await broker.reject("eve-0", "eves")
        await broker.settled("eve-0", "eves", 1)
        async with broker.admin(ADMIN) as admin:
            names = await admin.list_topics()
            assert not [name for name in names if name.startswith("dlq.eve")]
        return answers

    answers = asyncio.run(attack())
    assert all(isinstance(answer, TopicAuthorizationFailed) for answer in answers)
    assert all("CREATE on TOPIC" in str(answer) for answer in answers)
