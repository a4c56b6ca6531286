"""A shop's broker with groups in every state, and a console before it, for tests and pictures.

    with shop(folder) as scene:
        open(scene.url)

`billing` works, holds records and has dead letters; `mailer` has no members; `search` has nothing
to do; `warehouse` is a consumer group.  There are ACLs, users, quotas and an open transaction.
`scene.work()` produces and settles a little more.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import Request, urlopen

from sharegroup.client import (
    AclBinding,
    AclOperation,
    AclResourceType,
    AlterConfig,
    ConfigResource,
    NewTopic,
    QuotaEntity,
    Record,
    ResourceType,
    ScramMechanism,
    TopicPartition,
    UserScramCredentialUpsertion,
)
from sharegroup.client.sync import AdminClient, Consumer, Producer, ShareConsumer
from tests.support.kafka_peer import free_ports
from tests.support.limits import HANGING_SECONDS
from tests.support.processes import ServeProcess

READY = re.compile(r"ready console=(\S+)\n")
TOPICS = {"orders": 4, "emails": 2, "page-views": 3, "dlq.orders": 1}
GROUPS = {
    "billing": {
        "share.auto.offset.reset": "earliest",
        "errors.deadletterqueue.topic.name": "dlq.orders",
        "errors.deadletterqueue.copy.record.enable": "true",
    },
    "mailer": {"share.auto.offset.reset": "earliest"},
    "search": {"share.auto.offset.reset": "earliest"},
}
HELD_MAX = 40
"""Records that a worker keeps in work."""
IN_FLIGHT_MAX = 2 * HELD_MAX + 60
LOCK_MS = "60000"
OPEN_MS = 900_000
"""How long the transaction may be open; 15 minutes are the most that brokers allow."""
ACLS = (
    ("billing", AclResourceType.TOPIC, "orders", AclOperation.READ),
    ("billing", AclResourceType.GROUP, "billing", AclOperation.READ),
    ("shop", AclResourceType.TOPIC, "orders", AclOperation.WRITE),
    ("shop", AclResourceType.TRANSACTIONAL_ID, "stock-", AclOperation.WRITE),
)
USERS = ("billing", "mailer", "shop")
CITIES = ("Lagos", "Quito", "Hanoi", "Oslo", "Perth")


@dataclass(frozen=True, slots=True)
class Scene:
    """The shop while it is open."""

    url: str
    broker: ServeProcess
    producer: Producer
    workers: tuple[ShareConsumer, ...]
    held: dict[str, list[Record]] = field(default_factory=dict)
    """The records that each worker holds, by its client id."""

    @property
    def bootstrap_servers(self) -> str:
        """The address of the broker."""
        return self.broker.bootstrap_servers

    def produce(self, topic: str, count: int) -> None:
        """Write records of the shop."""
        sent = [
            self.producer.send(
                topic,
                f'{{"order": {number}, "city": "{CITIES[number % len(CITIES)]}"}}'.encode(),
                key=f"customer-{number % 97}".encode(),
                headers=[("trace", f"{number:032x}".encode())],
            )
            for number in range(count)
        ]
        for record in sent:
            record.result(30)

    def add_group(self, group_id: str) -> None:
        """Make a share group without members."""
        with AdminClient(bootstrap_servers=self.bootstrap_servers) as admin:
            admin.alter_share_group_offsets(group_id, {TopicPartition("emails", 0): 0})

    def delete_group(self, group_id: str) -> None:
        """Delete a group without members."""
        with AdminClient(bootstrap_servers=self.bootstrap_servers) as admin:
            admin.delete_groups([group_id])

    def work(self) -> None:
        """Let each worker of the group billing take records: most succeed, some stay held."""
        for worker in self.workers:
            held = self.held.setdefault(worker.client_id, [])
            for number, record in enumerate(worker.poll(timeout=0.2, max_records=60)):
                if number % 19 == 7:
                    record.reject()
                elif number % 11 == 5:
                    record.release()
                elif number % 5 == 3:
                    held.append(record)
                else:
                    record.accept()
            for record in held[:-HELD_MAX]:
                record.accept()
            del held[:-HELD_MAX]
            worker.commit()


@contextmanager
def console(bootstrap_servers: str, *options: str, log: Path) -> Iterator[str]:
    """Run ``sharegroup console`` as a process, and yield its address."""
    command = [sys.executable, "-m", "sharegroup", "console", "--port", "0"]
    with open(log, "ab") as stderr:
        process = subprocess.Popen(
            [*command, "--bootstrap-server", bootstrap_servers, *options],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        ready = READY.fullmatch(line)
        assert ready is not None, f"expected the console's address, got {line!r}: {log.read_text()}"
        yield ready[1]
    finally:
        process.terminate()
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()


def wait_until_seen(url: str, *groups: str, headers: Mapping[str, str] | None = None) -> None:
    """Wait until the console has described these groups."""
    end = time.monotonic() + HANGING_SECONDS
    while time.monotonic() < end:
        rows = [
            row
            for page in ("groups", "consumer-groups")
            for row in json.load(
                urlopen(Request(f"{url}/api/v1/{page}", headers=dict(headers or {})))
            )["groups"]
        ]
        if set(groups) <= {row["group"] for row in rows if row["members"] is not None}:
            return
        time.sleep(0.1)
    raise TimeoutError(f"the console did not describe {groups}; it knows {rows}")


@contextmanager
def shop(folder: Path, *options: str) -> Iterator[Scene]:
    """Run the broker with its groups, and a console with these options on its metrics port."""
    (metrics_port,) = free_ports(1)
    settings = {
        "sharegroup.metrics.port": str(metrics_port),
        "group.share.record.lock.duration.ms": LOCK_MS,
        "group.share.assignment.interval.ms": "0",
        "group.consumer.assignment.interval.ms": "0",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with ExitStack() as stack:
        broker = stack.enter_context(ServeProcess(folder / "data", settings=settings))
        address = {"bootstrap_servers": broker.bootstrap_servers}
        _set_up(broker.bootstrap_servers)
        producer = stack.enter_context(Producer(**address))  # type: ignore[arg-type]
        workers = tuple(
            stack.enter_context(
                ShareConsumer(
                    "orders",
                    group_id="billing",
                    client_id=f"billing-worker-{number}",
                    share_acknowledgement_mode="explicit",
                    in_flight_max=IN_FLIGHT_MAX,
                    bootstrap_servers=broker.bootstrap_servers,
                )
            )
            for number in (1, 2)
        )
        url = stack.enter_context(
            console(
                broker.bootstrap_servers,
                *("--metrics", f"http://127.0.0.1:{metrics_port}", *options),
                log=folder / "console.log",
            )
        )
        scene = Scene(url, broker, producer, workers)
        for topic, count in (("orders", 3_000), ("emails", 1_240), ("page-views", 500)):
            scene.produce(topic, count)
        _visit(stack, broker.bootstrap_servers)
        stock = stack.enter_context(
            Producer(
                transactional_id="stock-sync",
                transaction_timeout_ms=OPEN_MS,
                bootstrap_servers=broker.bootstrap_servers,
            )
        )
        stack.enter_context(stock.transaction())
        stock.send("page-views", b"open").result(HANGING_SECONDS)
        scene.work()
        wait_until_seen(url, *GROUPS, "warehouse")
        yield scene


def _set_up(bootstrap_servers: str) -> None:
    with AdminClient(bootstrap_servers=bootstrap_servers) as admin:
        configs = {"dlq.orders": {"errors.deadletterqueue.group.enable": "true"}}
        admin.create_topics(
            [NewTopic(name, count, configs=configs.get(name, {})) for name, count in TOPICS.items()]
        )
        admin.incremental_alter_configs({
            ConfigResource(ResourceType.GROUP, group): [
                AlterConfig(name, value) for name, value in settings.items()
            ]
            for group, settings in GROUPS.items()
        })  # fmt: skip
        places = {TopicPartition("emails", number): 0 for number in range(TOPICS["emails"])}
        admin.alter_share_group_offsets("mailer", places)
        admin.create_acls(
            AclBinding(kind, name, f"User:{user}", operation)
            for user, kind, name, operation in ACLS
        )
        admin.alter_user_scram_credentials(
            UserScramCredentialUpsertion(user, f"of {user}", ScramMechanism.SCRAM_SHA_512)
            for user in USERS
        )
        admin.alter_client_quotas({QuotaEntity(user="shop"): {"producer_byte_rate": 1e6}})


def _visit(stack: ExitStack, bootstrap_servers: str) -> None:
    """Let the other groups join: one without work, and a consumer group that lags behind."""
    search = stack.enter_context(
        ShareConsumer("page-views", group_id="search", bootstrap_servers=bootstrap_servers)
    )
    taken = 0
    while taken < 500:
        taken += len(search.poll(timeout=1))
    search.commit()
    warehouse = stack.enter_context(
        Consumer(
            "orders",
            group_id="warehouse",
            auto_offset_reset="earliest",
            bootstrap_servers=bootstrap_servers,
        )
    )
    while not warehouse.poll(timeout=1):
        pass
    warehouse.commit()
