"""``sharegroup dlq`` with the least rights over SASL_SSL, while brokers restart one by one.

The rights are those that docs/clusters.md names.  Every letter is sent back exactly once: a redrive
that ends as it should knows what it has sent, whatever brokers do meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient as ConfluentAdmin,
    ResourcePatternType,
)

from sharegroup.client import AdminClient, NewTopic, Producer
from sharegroup.worker import App, DeadLetter, Reject
from tests.cluster.conftest import VERSION, all_of_it
from tests.cluster.traffic import LIMIT_SECONDS
from tests.integration.cli.piping import Piped, sharegroup
from tests.interop.guarded import KINDS, tables
from tests.support.cluster_security import Security
from tests.support.kafka_cluster import KafkaCluster, why_missing
from tests.support.limits import HANGING_SECONDS

pytestmark = all_of_it

CLERK = "clerk"
TOPIC, DEAD, GROUP = "orders", "orders.dead", "billing"
LETTERS = 300
AT_ONCE = 15
TABLE = "Dead letters"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    missing = why_missing()
    if missing is not None:
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("guarded")
    security = Security(users={CLERK: "its-secret"})
    with KafkaCluster(folder, VERSION, security=security) as cluster:
        yield cluster


def _allow(cluster: KafkaCluster) -> None:
    assert isinstance(cluster.security, Security)
    admin = ConfluentAdmin(
        {"bootstrap.servers": cluster.bootstrap_servers, **cluster.security.librdkafka_config()}
    )
    rights = {
        (right.operation, right.kind, right.name, right.pattern) for right in tables()[TABLE].rights
    }
    # For the first job of the cluster.
    rights.add(("CREATE", "topic", "__sharegroup.jobs", "literal"))
    bindings = [
        AclBinding(
            KINDS[kind], name, ResourcePatternType[pattern.upper()], f"User:{CLERK}", "*",
            AclOperation[operation], AclPermissionType.ALLOW,
        )
        for operation, kind, name, pattern in rights
    ]  # fmt: skip
    for done in admin.create_acls(bindings).values():
        done.result(HANGING_SECONDS)


async def _bury(cluster: KafkaCluster) -> None:
    """Records that a worker gives up at once; it is the administrator's."""
    assert isinstance(cluster.security, Security)
    options = cluster.security.client_options()
    app = App("burying", bootstrap_servers=cluster.bootstrap_servers, client=options)
    buried: Counter[str] = Counter()
    done = asyncio.Event()

    @app.share_group(GROUP, topics=TOPIC, dead_letter=DeadLetter(DEAD), retry=None)
    async def bill(text: str) -> None:
        buried[text] += 1
        if len(buried) == LETTERS:
            done.set()
        raise Reject(text)

    address = {"bootstrap_servers": cluster.bootstrap_servers, **options}
    async with AdminClient(**address) as admin:
        assert await admin.create_topics([NewTopic(TOPIC, 3, 3)]) == {TOPIC: None}
    await asyncio.to_thread(cluster.wait_until_whole)
    async with app, Producer(**address) as producer, asyncio.timeout(LIMIT_SECONDS):
        for number in range(LETTERS):
            await producer.send(TOPIC, str(number).encode())
        await done.wait()


class _Clerk:
    """Runs commands as the user with the least rights."""

    def __init__(self, cluster: KafkaCluster, folder: Path) -> None:
        assert isinstance(cluster.security, Security)
        self._file = folder / "client.properties"
        lines = cluster.security.kafka_properties(CLERK).items()
        self._file.write_text("".join(f"{key}={value}\n" for key, value in lines))
        self._bootstrap = cluster.bootstrap_servers

    def run(self, words: str) -> Piped:
        done = sharegroup(
            *words.split(), "--bootstrap-server", self._bootstrap,
            "--command-config", str(self._file),
        )  # fmt: skip
        assert done.code == 0, (words, done.code, done.err)
        return done


def _sent_back(cluster: KafkaCluster) -> Counter[str]:
    """The records in the topic that they came from, by text; each lies there once from before."""
    assert isinstance(cluster.security, Security)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            **cluster.security.librdkafka_config(),
            "group.id": "counting",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    found: Counter[str] = Counter()
    ended: set[int] = set()
    try:
        consumer.subscribe([TOPIC])
        while len(ended) < 3:
            message = consumer.poll(LIMIT_SECONDS)
            assert message is not None
            if message.error() is not None:
                ended.add(message.partition())
            else:
                found[(message.value() or b"").decode()] += 1
    finally:
        consumer.close()
    return found


def test_letters_are_listed_and_sent_back_once_while_brokers_restart(
    guarded: KafkaCluster, tmp_path: Path
) -> None:
    cluster = guarded
    asyncio.run(_bury(cluster))
    _allow(cluster)
    clerk = _Clerk(cluster, tmp_path)
    rolled = threading.Event()
    restarts: list[int] = []

    def roll() -> None:
        try:
            for node in cluster.nodes:
                cluster.stop(node)
                cluster.start(node)
                cluster.wait_until_whole()
                restarts.append(node)
        finally:
            rolled.set()

    def redrive() -> int:
        done = clerk.run(
            f"dlq redrive {DEAD} --to original --confirm {TOPIC} --limit {AT_ONCE} --json"
        )
        return sum(json.loads(done.out)["sent"].values())

    # The first one creates a topic, for which all three brokers have to be there.
    runs, sent = 0, redrive()
    rolling = threading.Thread(target=roll)
    rolling.start()
    try:
        while not rolled.is_set() or sent < LETTERS:
            (row,) = json.loads(clerk.run(f"dlq list {DEAD} --json").out)
            assert (row["letters"], row["redriven"]) == (LETTERS, sent)
            runs += 1
            sent += redrive()
            clerk.run(f"dlq show {DEAD} --limit 3 --json")
    finally:
        rolling.join()
    print("runs", runs, "sent", sent)
    assert restarts == list(cluster.nodes)
    assert sent == LETTERS
    assert _sent_back(cluster) == Counter({str(number): 2 for number in range(LETTERS)})
