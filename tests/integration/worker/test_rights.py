"""Workers with least privilege, and with less, on a real Kafka with an authorizer."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sharegroup.client import AdminClient, OffsetSpec, Producer, TopicPartition
from sharegroup.worker import App, Retry, ScheduledRun
from sharegroup.worker.infrastructure import apply, plan, prepare
from tests.integration.worker.conftest import SETTINGS
from tests.integration.worker.processes import WorkerProcess
from tests.integration.worker.secured import (
    GROUP,
    READ,
    TOPIC,
    WRITE,
    Right,
    Secured,
    of_worker,
    secured,
)
from tests.interop.secure_listeners import PASSWORD, USER, why_no_certificates
from tests.support.chosen_broker import LONG_WITH_A_JVM, SOONER
from tests.support.kafka_peer import why_missing

missing = why_missing() or why_no_certificates()
pytestmark = [
    LONG_WITH_A_JVM,
    pytest.mark.kafka,
    pytest.mark.skipif(missing is not None, reason=missing or ""),
]

WAIT_SECONDS = 120.0
"""Several workers start beside a JVM."""
TEXT = """
app = App({group!r}, bootstrap_servers={bootstrap!r}, client={client!r}, prepare={prepares})

@app.share_group(
    {group!r}, topics={topic!r}, retry=Retry(max_attempts=2, initial_delay="6s", jitter=0),
    steering={steering},
)
async def work(text: str) -> None:
    note(text)
    if text != "good":
        raise ValueError(text)
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("secured"), {**SOONER, **SETTINGS}) as there:
        yield there


async def made(broker: Secured, group: str, *, steering: bool = False) -> None:
    """An operator makes what the worker needs, and the records that it handles."""
    app = App(group, bootstrap_servers=broker.open_bootstrap)

    @app.share_group(
        group,
        topics=f"{group}.orders",
        retry=Retry(max_attempts=2, initial_delay="6s"),
        steering=steering,
    )
    async def work(text: str) -> None: ...

    async with AdminClient(bootstrap_servers=broker.open_bootstrap) as admin:
        await prepare(app, admin)


def worker(
    broker: Secured,
    folder: Path,
    group: str,
    *,
    prepares: bool = True,
    password: str = PASSWORD,
    without: Right | None = None,
    steering: bool = False,
) -> WorkerProcess:
    """A worker with all the rights that it needs but one."""
    asyncio.run(made(broker, group, steering=steering))
    rights = of_worker(group, f"{group}.orders")
    broker.grant(*(right for right in rights if right != without))
    client = broker.options(password)
    bootstrap = client.pop("bootstrap_servers")
    text = TEXT.format(
        group=group,
        bootstrap=bootstrap,
        client=client,
        topic=f"{group}.orders",
        prepares=prepares,
        steering=steering,
    )
    return WorkerProcess(folder / group, text, wait_seconds_max=WAIT_SECONDS)


def test_least_privilege_is_enough_for_handling_retries_and_dead_letters(
    broker: Secured, tmp_path: Path
) -> None:
    """A worker that finds all its topics needs no right on the cluster, and says so once."""

    async def send() -> None:
        async with Producer(bootstrap_servers=broker.open_bootstrap) as producer:
            for value in (b"good", b"bad"):
                await producer.send_and_wait("least.orders", value)

    async def letters() -> bool:
        async with AdminClient(bootstrap_servers=broker.open_bootstrap) as admin:
            where = TopicPartition("least.dead", 0)
            found: Any = (await admin.list_offsets({where: OffsetSpec.LATEST}))[where]
            return bool(found.offset == 1)

    with worker(broker, tmp_path, "least") as process:
        process.wait_ready()
        asyncio.run(send())
        process.wait_until(lambda: sorted(process.noted()) == ["bad", "bad", "good"], "a retry")
        process.wait_until(lambda: asyncio.run(letters()), "a dead letter")
        log = process.log.read_text()
    checked = process.run("check", "shop:app", "--json")
    assert checked.returncode == 1, "neither the same nor different: not known"
    assert {row["kind"] for row in json.loads(checked.stdout)} == {"unknown"}
    assert log.count("event=infrastructure.unknown") == 1
    assert log.count("needs DESCRIBE_CONFIGS on topic") == 1
    refusals = [line for line in log.splitlines() if "AuthorizationFailed" in line]
    assert all("level=info" in line for line in refusals), log


SCHEDULED = """
from sharegroup.worker import ScheduledRun

app = App("scheduled", bootstrap_servers={bootstrap!r}, client={client!r}, prepare=False)

@app.every("1s", missed="all")
@app.share_group("scheduled", topics="scheduled.runs", dead_letter=None)
async def work(run: ScheduledRun) -> None:
    note(run.id)
"""


def test_the_acls_of_a_plan_are_enough_for_schedules(broker: Secured, tmp_path: Path) -> None:
    app = App("scheduled", bootstrap_servers=broker.open_bootstrap)

    @app.every("1s", missed="all")
    @app.share_group("scheduled", topics="scheduled.runs", dead_letter=None)
    async def work(run: ScheduledRun) -> None: ...

    async def grant() -> None:
        async with AdminClient(bootstrap_servers=broker.open_bootstrap) as admin:
            changes = await plan(app, admin, acls_for=f"User:{USER}")
            results = await apply(admin, changes)
            assert {error for _, error in results} == {None}

    asyncio.run(grant())
    client = broker.options()
    text = SCHEDULED.format(bootstrap=client.pop("bootstrap_servers"), client=client)
    process = WorkerProcess(tmp_path / "scheduled", text, wait_seconds_max=WAIT_SECONDS)
    with process:
        process.wait_ready()
        process.wait_until(lambda: len(process.noted()) >= 3, "runs")
        log = process.log.read_text()
    refusals = [line for line in log.splitlines() if "AuthorizationFailed" in line]
    assert all("level=info" in line for line in refusals), log
    assert len(set(process.noted())) == len(process.noted())


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "closed": (
        {"without": (READ, TOPIC, "closed.orders")},
        "TopicAuthorizationFailed: ... (User:billing needs READ on topic 'closed.orders'; or",
    ),
    "closed2": (
        {"without": (READ, TOPIC, "closed2.orders"), "prepares": False},
        "TopicAuthorizationFailed: ... (User:billing needs READ on topic 'closed2.orders');",
    ),
    "letters": (
        {"without": (WRITE, TOPIC, "letters.dead"), "prepares": False},
        "TopicAuthorizationFailed: ... (User:billing needs WRITE on topic 'letters.dead');",
    ),
    "tiers": (
        {"without": (WRITE, TOPIC, "tiers.retry.*")},
        "TopicAuthorizationFailed: ... (User:billing needs WRITE on topic 'tiers.retry.10m', ",
    ),
    "member": (
        {"without": (READ, GROUP, "member")},
        "GroupAuthorizationFailed: ... (User:billing needs READ on group 'member');",
    ),
    "mover": (
        {"without": (READ, GROUP, "mover.retry-scheduler")},
        "GroupAuthorizationFailed: ... (User:billing needs READ on group 'mover.retry-scheduler');",
    ),
    "mover2": (
        {"steering": True},
        "TransactionalIdAuthorizationFailed: ... needs WRITE on transactional ids that begin with ",
    ),
    "stranger": (
        {"password": "wrong", "prepares": False},
        "SaslAuthenticationFailed: broker 127.0.0.1:",
    ),
}


def test_worker_without_permissions_ends_with_one_line_and_no_ready(
    broker: Secured, tmp_path: Path
) -> None:
    """All cases run concurrently, because most of the time interpreters start."""
    running = {name: worker(broker, tmp_path, name, **how) for name, (how, _) in CASES.items()}
    try:
        for process in running.values():
            process.start()
        codes = {name: process.wait(WAIT_SECONDS) for name, process in running.items()}
    finally:
        for process in running.values():
            process.__exit__(None, None, None)
    for name, process in running.items():
        lines = process.log.read_text().splitlines()
        # On a slow machine a start says that it goes on.
        told = ("level=info", "event=starting")
        errors = [line for line in lines if not any(words in line for words in told)]
        assert (codes[name], process.printed(), len(errors)) == (1, "", 1), process.told()
        kind, _, text = CASES[name][1].partition(" ... ")
        assert errors[0].startswith(f"Error: {kind}"), errors
        assert text in errors[0], errors


def test_produce_without_write_names_write_and_the_topic(broker: Secured, tmp_path: Path) -> None:
    asyncio.run(made(broker, "silent"))
    broker.grant((READ, TOPIC, "silent.orders"))
    options = broker.options()
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_SSL\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={options['ssl_cafile']}\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{options["sasl_plain_username"]}" password="{PASSWORD}";\n'
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "sharegroup", "produce", "silent.orders"),
            *("--bootstrap-server", options["bootstrap_servers"]),
            *("--command-config", str(properties)),
        ],
        input="a\n",
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )
    assert done.returncode == 1
    assert "User:billing needs WRITE on topic 'silent.orders'" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert "InitProducerId" not in done.stderr
