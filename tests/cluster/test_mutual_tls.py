"""Clients that log in by a certificate alone: a cluster with ``ssl.client.auth=required``.

The user is the certificate's distinguished name.  A certificate that the brokers refuse is one
error at once, everywhere: in TLS 1.3 a client hears of the refusal only after its handshake.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient as ConfluentAdmin,
    ResourcePatternType,
    ResourceType as AclResourceType,
)
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    NewTopic,
    Producer,
    ResourceType,
    ShareConsumer,
)
from sharegroup.errors import (
    GroupAuthorizationFailed,
    TlsHandshakeFailed,
    TopicAuthorizationFailed,
)
from tests.cluster.conftest import VERSION, all_of_it
from tests.cluster.traffic import LIMIT_SECONDS, Traffic
from tests.integration.cli.piping import sharegroup
from tests.integration.spark.conftest import spark as spark  # A fixture.
from tests.integration.worker.processes import WorkerProcess
from tests.interop.secure_listeners import Certificates, why_no_certificates
from tests.support.cluster_security import SUPER_USER, MutualTls
from tests.support.kafka_cluster import KafkaCluster, why_missing
from tests.support.limits import HANGING_SECONDS

pytestmark = all_of_it

TOPIC = "orders"
USER, STRANGER = "billing", "stranger"
REFUSED = ("none", "expired", "foreign")
HINT = "check ssl_certfile"
WORKER = """
app = App("shop", bootstrap_servers={bootstrap!r}, client={options!r}, prepare=False)

@app.share_group("orders.shop", topics="orders")
async def handle(value: bytes):
    note("handled")
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    missing = why_missing() or why_no_certificates()
    if missing is not None:
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("guarded")
    with KafkaCluster(folder, VERSION, security=MutualTls()) as cluster:
        certificates = _certificates(cluster)
        for name in (USER, STRANGER):
            certificates.client_named(name)
        certificates.client_named("expired", days=-1)
        certificates.client_named("foreign", authority="other-ca")
        _allow(cluster)
        yield cluster


def _certificates(cluster: KafkaCluster) -> Certificates:
    assert isinstance(cluster.security, MutualTls)
    assert cluster.security.certificates is not None
    return cluster.security.certificates


def _options(cluster: KafkaCluster, user: str) -> dict[str, Any]:
    """Options of our clients; "none" has no certificate."""
    assert cluster.security is not None
    options = cluster.security.client_options(user)
    if user == "none":
        del options["ssl_certfile"]
    return options


def _allow(cluster: KafkaCluster) -> None:
    """Everything on the names that begin with the topic's."""
    files = _options(cluster, SUPER_USER)
    admin = ConfluentAdmin(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "security.protocol": "SSL",
            "ssl.ca.location": files["ssl_cafile"],
            "ssl.certificate.location": files["ssl_certfile"],
            "ssl.key.location": files["ssl_certfile"],
        }
    )
    bindings = [
        AclBinding(
            kind, TOPIC, ResourcePatternType.PREFIXED, f"User:CN={USER}", "*",
            AclOperation.ALL, AclPermissionType.ALLOW,
        )
        for kind in (AclResourceType.TOPIC, AclResourceType.GROUP)
    ]  # fmt: skip
    for done in admin.create_acls(bindings).values():
        done.result(HANGING_SECONDS)


def test_user_by_certificate_works_while_a_broker_is_replaced(guarded: KafkaCluster) -> None:
    cluster = guarded

    async def run() -> None:
        admin = _options(cluster, SUPER_USER)
        async with Traffic(
            cluster, TOPIC, options=_options(cluster, USER), admin_options=admin
        ) as traffic:
            await traffic.goes_on()
            killed = await asyncio.to_thread(cluster.leader_of, TOPIC, 0)
            await asyncio.to_thread(cluster.kill, killed)
            seconds = [await traffic.goes_on()]
            await asyncio.to_thread(cluster.mend)
            seconds.append(await traffic.goes_on())
            account = await traffic.settled()
        print("goes on after", [round(span, 1) for span in seconds])
        assert not account.problems

    asyncio.run(run())


async def _list(options: dict[str, Any]) -> None:
    async with AdminClient(**options) as admin:
        await admin.list_topics()


async def _send(options: dict[str, Any]) -> None:
    async with Producer(**options) as producer:
        await producer.send_and_wait(TOPIC, b"one")


async def _take(options: dict[str, Any]) -> None:
    async with ShareConsumer(TOPIC, **options, group_id="orders.taken") as consumer:
        while True:
            await consumer.poll(timeout=1)


@pytest.mark.parametrize("certificate", REFUSED)
@pytest.mark.parametrize("use", [_list, _send, _take])
def test_certificate_that_is_refused_is_an_error_at_once(
    guarded: KafkaCluster, certificate: str, use: Callable[[Any], Coroutine[Any, Any, None]]
) -> None:
    """A limit of a minute: what is tried again goes on for longer than that."""
    options = {"bootstrap_servers": guarded.bootstrap_servers, **_options(guarded, certificate)}

    async def run() -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            await use({**options, "default_api_timeout_ms": 300_000})

    with pytest.raises(TlsHandshakeFailed, match=HINT):
        asyncio.run(run())


@pytest.mark.parametrize("certificate", REFUSED)
def test_worker_and_command_end_with_one_line(
    guarded: KafkaCluster, certificate: str, tmp_path: Path
) -> None:
    cluster = guarded
    options = _options(cluster, certificate)
    text = WORKER.format(bootstrap=cluster.bootstrap_servers, options=options)
    with WorkerProcess(tmp_path, text) as worker:
        assert worker.wait(LIMIT_SECONDS) == 1
    logged = worker.log.read_text()
    assert HINT in logged
    assert "Traceback" not in logged
    assert not worker.noted()
    lines = [f"security.protocol=SSL\nssl.truststore.location={options['ssl_cafile']}"]
    lines.append("ssl.truststore.type=PEM")
    if certificate != "none":
        lines.append(f"ssl.keystore.type=PEM\nssl.keystore.location={options['ssl_certfile']}")
    file = tmp_path / "client.properties"
    file.write_text("\n".join(lines))
    done = sharegroup(
        "topics",
        "list",
        "--bootstrap-server",
        cluster.bootstrap_servers,
        "--command-config",
        str(file),
    )
    assert done.code == 1
    assert done.err.startswith("Error: TlsHandshakeFailed: ")
    assert done.err.count("\n") == 1


def test_error_for_a_certificate_without_rights_names_them(guarded: KafkaCluster) -> None:
    options = {"bootstrap_servers": guarded.bootstrap_servers, **_options(guarded, STRANGER)}

    async def run(use: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            await use(options)

    with pytest.raises(TopicAuthorizationFailed, match=f"WRITE on topic '{TOPIC}'"):
        asyncio.run(run(_send))
    with pytest.raises(
        (GroupAuthorizationFailed, TopicAuthorizationFailed), match=r"READ on (group|topic)"
    ):
        asyncio.run(run(_take))


def _spark_options(cluster: KafkaCluster, user: str) -> dict[str, str]:
    """As the JVM's Kafka source takes them; "none" has no certificate."""
    files = _options(cluster, user)
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": files["ssl_cafile"],
    }
    if user != "none":
        options["kafka.ssl.keystore.type"] = "PEM"
        options["kafka.ssl.keystore.location"] = files["ssl_certfile"]
    return options


def test_spark_reads_and_writes_with_a_certificate(
    guarded: KafkaCluster, spark: SparkSession, tmp_path: Path
) -> None:
    """A stream through a share group and back by the sink, and a batch; executors log in, too."""
    topic, copy, group = "orders.spark", "orders.spark.copy", "orders.spark.group"
    from_the_start = AlterConfig("share.auto.offset.reset", "earliest")
    committed = AlterConfig("share.isolation.level", "read_committed")

    async def prepare() -> None:
        options = {"bootstrap_servers": guarded.bootstrap_servers, **_options(guarded, SUPER_USER)}
        async with AdminClient(**options) as admin:
            await admin.create_topics([NewTopic(name, 2, 3) for name in (topic, copy)])
            resource = ConfigResource(ResourceType.GROUP, group)
            await admin.incremental_alter_configs({resource: [from_the_start, committed]})
        async with Producer(**options) as producer:
            for number in range(20):
                await producer.send(topic, b"%d" % number)

    asyncio.run(prepare())
    options = _spark_options(guarded, USER)

    def read(name: str) -> DataFrame:
        frame = spark.read.format("kafka-share").options(**options).option("subscribe", name)
        return frame.load()

    assert read(topic).count() == 20
    query = (
        spark.readStream.format("kafka-share")
        .options(**options)
        .option("subscribe", topic)
        .option("share.group", group)
        .load()
        .writeStream.format("kafka-share")
        .options(**options)
        .option("topic", copy)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(int(LIMIT_SECONDS)), "the query does not end"
    finally:
        query.stop()
    assert sorted(int(row["value"]) for row in read(copy).collect()) == list(range(20))


@pytest.mark.parametrize("certificate", REFUSED)
def test_spark_with_a_certificate_that_is_refused_fails_at_once(
    guarded: KafkaCluster, spark: SparkSession, certificate: str
) -> None:
    frame = spark.read.format("kafka-share").options(**_spark_options(guarded, certificate))
    with pytest.raises(PySparkException, match=HINT):
        frame.option("subscribe", TOPIC).load().count()
