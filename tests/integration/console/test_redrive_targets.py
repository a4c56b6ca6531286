"""A redrive goes to no topic outside of the grants of its user, whatever a letter says.

dlq.shared    letters of the group billing, from orders, and of spies, from secrets
ada           operator of the group billing, of orders and dlq.shared
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    NewTopic,
    Producer,
    ResourceType,
    ShareConsumer,
)
from sharegroup.console.access.roles import Grant, Role, Roles, UserGrant
from sharegroup.dead_letters.queue import DeadLetterQueue
from sharegroup.dead_letters.redrive_copies import OTHER_TARGET
from sharegroup.jobs import Job, Jobs, JobState
from sharegroup.testing import AsyncTestBroker, broker
from tests.integration.console.access_scene import TOKENS, Browser, Scene, with_tokens
from tests.support.limits import HANGING_SECONDS

DEAD = "dlq.shared"
GROUPS = {"billing": "orders", "spies": "secrets"}
ROLES = Roles(
    grants=(
        UserGrant(
            users=("ada",),
            grant=Grant(role=Role.OPERATOR, groups=("billing",), topics=("orders", DEAD)),
        ),
        UserGrant(users=("ada",), grant=Grant(topics=("secrets",))),
        UserGrant(users=("bob",), grant=Grant(role=Role.OPERATOR)),
    )
)
ALL = {"kind": "redrive", "topic": DEAD, "everything": "yes", "target": "original"}


async def with_letters(there: AsyncTestBroker) -> None:
    """Let the broker write a letter of each group, for which it vouches."""
    async with AdminClient(bootstrap_servers=there.bootstrap_servers) as admin:
        configs = {"errors.deadletterqueue.group.enable": "true"}
        names = (*GROUPS.values(), "billing.retry", "spies.retry")
        await admin.create_topics(
            [NewTopic(DEAD, 1, configs=configs), *(NewTopic(name, 1) for name in names)]
        )
        settings = {
            "errors.deadletterqueue.topic.name": DEAD,
            "errors.deadletterqueue.copy.record.enable": "true",
        }
        await admin.incremental_alter_configs({
            ConfigResource(ResourceType.GROUP, group): [
                AlterConfig(name, value) for name, value in settings.items()
            ]
            for group in GROUPS
        })  # fmt: skip
    for group, topic in GROUPS.items():
        await there.produce(topic, "x")
        async with ShareConsumer(
            topic,
            bootstrap_servers=there.bootstrap_servers,
            group_id=group,
            start_from="earliest",
            share_acknowledgement_mode="explicit",
        ) as consumer:
            for record in await consumer.poll(timeout=HANGING_SECONDS):
                record.reject()
            await consumer.commit()
    await there.wait_until(records=len(GROUPS), topic=DEAD)
    async with DeadLetterQueue(DEAD, bootstrap_servers=there.bootstrap_servers) as queue:
        letters = [letter async for chunk in queue.chunks() for letter in chunk.letters]
    assert [letter.is_vouched for letter in letters] == [True, True]


@asynccontextmanager
async def scene() -> AsyncIterator[tuple[AsyncTestBroker, Scene]]:
    async with broker() as there:
        await with_letters(there)
        async with with_tokens(there, roles=ROLES, allow_changes=True) as console:
            yield there, console


async def start(browser: Browser, **fields: Any) -> tuple[int, Any]:
    answer = await browser.http.post("/api/v1/jobs/start-redrive", json=fields)
    return answer.status_code, answer.json()


async def ended(there: AsyncTestBroker, job_id: str) -> Job:
    async with (
        Jobs(bootstrap_servers=there.bootstrap_servers) as jobs,
        asyncio.timeout(HANGING_SECONDS),
    ):
        while not (job := await jobs.show(job_id)).state.is_end:
            await asyncio.sleep(0.05)
        return job


def test_letter_of_a_broker_for_a_topic_outside_of_the_grant_is_not_sent_back() -> None:
    async def run() -> None:
        async with scene() as (there, console):
            ada = await console.browser(token=TOKENS["ada"])
            plan = await ada.data("/plan", **ALL)
            assert (plan["targets"], plan["outside_of_grants"]) == (
                ["orders", "secrets"],
                ["secrets"],
            )
            page = (await ada.get("/plan", **ALL)).text
            assert "Letters would go to &#39;secrets&#39;, for which you have no grant" in page
            assert "/jobs/start-redrive" not in page
            status, answer = await start(ada, **ALL, targets="orders,secrets")
            assert (status, "'secrets'" in answer["error"]) == (403, True)
            status, answer = await start(ada, **ALL)
            assert (status, "targets: expected" in answer["error"]) == (400, True)
            # What a plan does not have, such as a letter that is written after it, stays.
            status, answer = await start(ada, **ALL, targets="orders")
            assert status == 200, answer
            job = await ended(there, answer["id"])
            assert (job.state, job.result["sent"]) == (JobState.DONE, {"orders": 1})
            (refused,) = job.result["refused"]
            assert (refused["target"], refused["reason"]) == ("secrets", OTHER_TARGET)
            assert len(await there.records("secrets")) == 1

    asyncio.run(run())


@pytest.mark.parametrize(
    ("group", "outside"), [("billing", []), ("spies", ["spies.retry"]), ("", ["spies.retry"])]
)
def test_retry_topic_is_the_matter_of_its_group(group: str, outside: list[str]) -> None:
    async def run() -> None:
        async with scene() as (there, console):
            ada = await console.browser(token=TOKENS["ada"])
            own = {**ALL, "target": "own", **({"group": group} if group else {})}
            plan = await ada.data("/plan", **own)
            assert plan["outside_of_grants"] == outside
            status, answer = await start(ada, **own, targets=",".join(plan["targets"]))
            assert (status, "'spies" in str(answer)) == ((403, True) if outside else (200, False))
            if not outside:
                assert (await ended(there, answer["id"])).result["sent"] == {"billing.retry": 1}

    asyncio.run(run())


def test_hostile_letter_and_a_job_of_somebody_else_lead_nowhere() -> None:
    async def run() -> None:
        async with scene() as (there, console):
            ada, bob = [await console.browser(token=TOKENS[name]) for name in ("ada", "bob")]
            headers = {
                "topic": "secrets", "partition": "0", "offset": "0", "group": "billing",
                "message": "a producer wrote this",
            }  # fmt: skip
            async with Producer(bootstrap_servers=there.bootstrap_servers) as producer:
                await producer.send_and_wait(
                    DEAD, b"evil",
                    headers=[(f"__dlq.errors.{n}", v.encode()) for n, v in headers.items()],
                )  # fmt: skip
            claim = {"kind": "redrive", "topic": DEAD, "at": "0:2", "target": "original"}
            plan = await ada.data("/plan", **claim)
            assert (plan["targets"], plan["result"]["refused"][0]["target"]) == ([], "secrets")
            for path in ("/api/v1/plan", "/plan"):
                confirmed = await ada.get(path, **claim, confirm="secrets")
                assert (confirmed.status_code, "secrets" in confirmed.text) == (403, True)
            status, _ = await start(ada, **claim, confirm="secrets", targets="secrets")
            assert status == 403
            # A job of somebody who may send everywhere is not ada's to go on with.
            async with Jobs(bootstrap_servers=there.bootstrap_servers) as jobs:
                for targets in (None, ["orders", "secrets"]):
                    status, answer = await start(bob, **ALL, targets=",".join(targets or ()))
                    job_id = answer["id"]
                    await ended(there, job_id)
                    job = await jobs.show(job_id)
                    assert job.request.options["targets"] == targets
                    answer = await ada.http.post("/api/v1/jobs/resume", json={"id": job_id})
                    assert answer.status_code == 403, answer.text

    asyncio.run(run())
