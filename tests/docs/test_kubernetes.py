"""The manifests of ``examples/kubernetes``: their schemas take them, and they belong together.

They were never applied to a cluster of Kubernetes.  What can be run of them without one is: the
commands of the containers, with their probes.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml
from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from sharegroup.client import AdminClient, NewTopic, Producer
from sharegroup.testing import run_broker
from sharegroup.worker.telemetry.prometheus import LAG
from tests.interop.guarded import tables
from tests.interop.secure_listeners import (
    PASSWORD,
    USER,
    Certificates,
    SecureKafka,
    why_no_certificates,
)
from tests.support import confluent_calls
from tests.support.chosen_broker import KAFKA as KAFKA_BROKER, LONG_WITH_A_JVM, chosen
from tests.support.kafka_peer import free_ports, why_missing
from tests.support.kubernetes_schemas import STRIMZI_VERSION, check, why_no_strimzi
from tests.support.limits import HANGING_SECONDS

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "kubernetes"
FILES = ("cluster.yaml", "orders.yaml", "scaling.yaml", "worker.yaml")
MANIFESTS: dict[tuple[str, str], dict[str, Any]] = {
    (manifest["kind"], manifest["metadata"]["name"]): manifest
    for file in FILES
    for manifest in yaml.safe_load_all((FOLDER / file).read_text())
}
STRIMZI = [
    key for key, manifest in MANIFESTS.items() if manifest["apiVersion"].startswith("kafka.")
]
KUBERNETES = [key for key in MANIFESTS if key not in STRIMZI]
KAFKA = MANIFESTS["Kafka", "queue"]["spec"]["kafka"]
DEPLOYMENT = MANIFESTS["Deployment", "billing"]["spec"]["template"]["spec"]
JOB = MANIFESTS["Job", "billing-apply"]["spec"]["template"]["spec"]
WORKER, APPLY = DEPLOYMENT["containers"][0], JOB["containers"][0]

no_kafka = why_missing() or why_no_certificates()
if chosen() != KAFKA_BROKER:
    no_kafka = "make interop-kafka runs it"
needs_strimzi = pytest.mark.skipif(why_no_strimzi() is not None, reason=why_no_strimzi() or "")


def test_all_manifests_are_checked() -> None:
    assert {path.name for path in FOLDER.glob("*.y*ml")} == set(FILES)
    assert len(MANIFESTS) == 10


@pytest.mark.parametrize("key", KUBERNETES, ids="-".join)
def test_manifest_is_valid_for_kubernetes(key: tuple[str, str]) -> None:
    check(MANIFESTS[key])


@needs_strimzi
@pytest.mark.parametrize("key", STRIMZI, ids="-".join)
def test_manifest_is_valid_for_strimzi(key: tuple[str, str]) -> None:
    check(MANIFESTS[key])


def test_a_mistake_in_a_manifest_of_kubernetes_is_seen() -> None:
    worker = deepcopy(MANIFESTS["Deployment", "billing"])
    worker["spec"]["template"]["spec"]["containers"][0]["livenessprobe"] = {}
    with pytest.raises(AssertionError, match="read as"):
        check(worker)
    worker = deepcopy(MANIFESTS["Deployment", "billing"])
    worker["spec"]["replicas"] = "three"
    with pytest.raises(msgspec.ValidationError, match=r"spec\.replicas"):
        check(worker)


@needs_strimzi
def test_a_mistake_in_a_manifest_of_strimzi_is_seen() -> None:
    for change in ({"replica": 3}, {"roles": ["leader"]}, {"replicas": -1}):
        pool = deepcopy(MANIFESTS["KafkaNodePool", "broker"])
        pool["spec"] |= change
        with pytest.raises(jsonschema.ValidationError):
            check(pool)


def test_brokers_have_share_groups_and_their_state_has_replicas() -> None:
    version, metadata = KAFKA["version"], KAFKA["metadataVersion"]
    assert tuple(map(int, version.split("."))) >= (4, 2, 1)
    assert metadata.partition("-")[0] == version.rpartition(".")[0]
    config = KAFKA["config"]
    brokers = MANIFESTS["KafkaNodePool", "broker"]["spec"]["replicas"]
    factors = {name: value for name, value in config.items() if name.endswith("replication.factor")}
    assert (len(factors), set(factors.values())) == (4, {brokers})
    isrs = {config[name] for name in config if name.endswith(("min.isr", "insync.replicas"))}
    assert isrs == {brokers - 1}


def test_users_have_the_rights_of_the_page() -> None:
    page = tables()
    bare = "A worker with `--no-prepare`, without retries and dead letters"
    of_worker = [bare, "Its retries", "Its dead letters"]
    of_operator = [
        "A user who runs `worker plan` or `worker check`",
        "A user who runs `worker apply`, in addition",
    ]
    for user, titles in (("billing", of_worker), ("billing-operator", of_operator)):
        expected = {right[:4] for title in titles for right in page[title].rights}
        assert set(rights_of(MANIFESTS["KafkaUser", user])) == expected


def rights_of(user: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for rule in user["spec"]["authorization"]["acls"]:
        resource = rule["resource"]
        pattern = {"literal": "literal", "prefix": "prefixed"}[resource["patternType"]]
        for operation in rule["operations"]:
            name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper()
            yield name, resource["type"], resource["name"], pattern


def test_references_between_manifests_exist() -> None:
    clusters = {
        manifest["metadata"]["labels"]["strimzi.io/cluster"]
        for key, manifest in MANIFESTS.items()
        if key in STRIMZI and key[0] != "Kafka"
    }
    assert clusters == {"queue"}
    (listener,) = KAFKA["listeners"]
    for pod, container, user in ((DEPLOYMENT, WORKER, "billing"), (JOB, APPLY, "billing-operator")):
        surroundings = {variable["name"]: variable for variable in container["env"]}
        bootstrap = f"queue-kafka-bootstrap:{listener['port']}"
        assert surroundings["KAFKA_BOOTSTRAP"]["value"] == bootstrap
        assert surroundings["KAFKA_USER"]["value"] == user
        secret = surroundings["KAFKA_PASSWORD"]["valueFrom"]["secretKeyRef"]
        assert secret == {"name": user, "key": "password"}
        assert ("KafkaUser", user) in MANIFESTS
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert surroundings["KAFKA_CA"]["value"] == f"{mounts['ca']}/ca.crt"
        assert set(mounts) == {volume["name"] for volume in pod["volumes"]}
        assert pod["volumes"][0]["secret"]["secretName"] == "queue-cluster-ca-cert"
    labels = MANIFESTS["Deployment", "billing"]["spec"]["template"]["metadata"]["labels"]
    assert MANIFESTS["PodDisruptionBudget", "billing"]["spec"]["selector"]["matchLabels"] == labels
    assert MANIFESTS["Deployment", "billing"]["spec"]["selector"]["matchLabels"] == labels


def test_time_to_stop_has_room_for_the_grace() -> None:
    """Beyond its grace a worker takes up to 13 s: to cancel handlers, to leave, to close."""
    (grace,) = (int(word[8:-1]) for word in WORKER["command"] if word.startswith("--grace="))
    period = DEPLOYMENT["terminationGracePeriodSeconds"]
    assert grace + 13 <= period
    (patience,) = (
        int(word[10:])
        for word in WORKER["lifecycle"]["preStop"]["exec"]["command"]
        if word.startswith("--timeout=")
    )
    assert grace + 13 <= patience < period


def test_scaling_uses_a_metric_that_exists_and_its_rule_is_on_the_page() -> None:
    spec = MANIFESTS["HorizontalPodAutoscaler", "billing"]["spec"]
    target = spec["scaleTargetRef"]
    assert (target["kind"], target["name"]) in MANIFESTS
    (metric,) = (entry["external"]["metric"] for entry in spec["metrics"])
    assert (metric["name"], metric["selector"]["matchLabels"]) == (LAG.name, {"group": "billing"})
    page = (FOLDER.parents[1] / "docs" / "deployment.md").read_text()
    (block,) = re.findall(r"```yaml\n(.+?)```", page, re.DOTALL)
    (rule,) = yaml.safe_load(block)["rules"]["external"]
    assert rule["seriesQuery"].startswith(LAG.name)
    assert rule["metricsQuery"].startswith("max by (group)")


def test_memory_of_the_container_has_room_for_its_processes() -> None:
    options = dict(word.split("=", 1) for word in WORKER["command"] if "=" in word)
    processes = int(options["--processes"])
    soft, hard = options["--max-memory"], WORKER["resources"]["limits"]["memory"]
    assert processes * int(soft.removesuffix("MiB")) + 100 <= int(hard.removesuffix("Mi"))


def test_dockerfile_copies_existing_files() -> None:
    copied = re.findall(r"^COPY (\S+) (\S+)$", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
    assert copied == [(".", "/source"), ("examples/kubernetes/orders.py", "/app/orders.py")]
    assert (FOLDER / "orders.py").is_file()


@pytest.mark.slow
def test_commands_of_the_containers_run(tmp_path: Path) -> None:
    with run_broker() as broker:
        asyncio.run(make_orders(broker.bootstrap_servers))
        run_containers(tmp_path, {"KAFKA_BOOTSTRAP": broker.bootstrap_servers})


@LONG_WITH_A_JVM
@pytest.mark.kafka
@pytest.mark.skipif(no_kafka is not None, reason=no_kafka or "")
def test_commands_of_the_containers_run_with_a_login(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")
    with SecureKafka(tmp_path / "kafka", certificates) as kafka:
        upsertion = UserScramCredentialUpsertion(
            USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), PASSWORD.encode()
        )
        admin = confluent_calls.admin(kafka.bootstrap_servers)
        admin.alter_user_scram_credentials([upsertion])[USER].result(HANGING_SECONDS)
        confluent_calls.admin.cache_clear()
        asyncio.run(make_orders(kafka.bootstrap_servers))
        login = {
            "KAFKA_BOOTSTRAP": kafka.at(kafka.sasl_tls_port),
            "KAFKA_CA": str(certificates.authority),
            "KAFKA_USER": USER,
            "KAFKA_PASSWORD": PASSWORD,
        }
        assert set(login) == {variable["name"] for variable in WORKER["env"]}
        run_containers(tmp_path, login)


def run_containers(tmp_path: Path, given: dict[str, str]) -> None:
    """The job makes everything, the worker gets ready for its probes, and ends by the preStop."""
    environment = {
        **os.environ,
        **given,
        "XDG_RUNTIME_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")]),
    }

    def start(command: list[str]) -> subprocess.Popen[str]:
        assert command[0] == "sharegroup"
        words = [sys.executable, "-m", "sharegroup", *command[1:]]
        with (tmp_path / "log").open("a") as log:
            return subprocess.Popen(
                words, env=environment, cwd=FOLDER, stdout=log, stderr=log, text=True
            )

    assert start(APPLY["command"]).wait(HANGING_SECONDS) == 0
    (port,) = free_ports(1)
    (container_port,) = WORKER["ports"]
    ours = [
        word.replace(f"={container_port['containerPort']}", f"={port}").replace(
            "0.0.0.0", "127.0.0.1"
        )
        for word in WORKER["command"]
    ]
    worker = start(ours)
    try:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            path = WORKER[probe]["httpGet"]["path"]
            assert WORKER[probe]["httpGet"]["port"] == container_port["name"]
            until(lambda path=path: answers(port, path), f"{probe} at {path}")
        until(lambda: "billed Order" in (tmp_path / "log").read_text(), "the order is billed")
        assert start(WORKER["lifecycle"]["preStop"]["exec"]["command"]).wait(HANGING_SECONDS) == 0
        assert worker.wait(HANGING_SECONDS) == 0
    finally:
        if worker.poll() is None:
            worker.kill()
            worker.wait()


async def make_orders(bootstrap: str) -> None:
    spec = MANIFESTS["KafkaTopic", "orders"]["spec"]
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic("orders", spec["partitions"])])
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await producer.send_and_wait("orders", b'{"id": 1, "total": 30}')


def until(happens: Callable[[], bool], what: str) -> None:
    limit = time.monotonic() + HANGING_SECONDS
    while not happens():
        assert time.monotonic() < limit, what
        time.sleep(0.02)


def answers(port: int, path: str) -> bool:
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}{path}", timeout=HANGING_SECONDS
        ) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_page_names_every_file() -> None:
    page = (FOLDER.parent.parent / "docs" / "clusters.md").read_text()
    assert all(f"`{path.name}`" in page for path in FOLDER.iterdir() if path.is_file())
    assert f"Strimzi {STRIMZI_VERSION}" in page
