"""Letters are sent back and purged from the console: dry run, form, job, result."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from sharegroup.client import AdminClient, Producer, ShareConsumer
from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.client_config import ClientOptions
from sharegroup.console.application import application
from sharegroup.console.settings import ConsoleSettings
from sharegroup.jobs import Job, Jobs, JobState
from sharegroup.testing import AsyncTestBroker, broker
from sharegroup.worker import App, Reject
from tests.support.limits import HANGING_SECONDS

LETTERS = 30


@asynccontextmanager
async def changing_console(there: AsyncTestBroker) -> AsyncIterator[httpx.AsyncClient]:
    options = ClientOptions(bootstrap_servers=there.bootstrap_servers)
    app = application(ConsoleSettings(client_options=options, allow_changes=True))
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=transport, base_url="http://localhost", follow_redirects=True
        ) as client,
    ):
        yield client


async def with_letters(there: AsyncTestBroker) -> list[int]:
    """Let a worker reject every record; return the list to which later deliveries go."""
    await there.create_topic("orders")
    app, seen = App("shop", bootstrap_servers=there.bootstrap_servers), list[int]()

    @app.share_group("billing", topics="orders")
    async def bill(order: dict[str, int]) -> None:
        seen.append(order["id"])
        raise Reject("odd" if order["id"] % 2 else "even")

    async with Producer(bootstrap_servers=there.bootstrap_servers) as producer:
        for number in range(LETTERS):
            await producer.send_and_wait("orders", b'{"id": %d}' % number)
    async with app, asyncio.timeout(HANGING_SECONDS):
        while len(seen) < LETTERS:
            await asyncio.sleep(0.02)
    return seen


def form_of(page: str, action: str) -> dict[str, str]:
    """Return the hidden fields of the form with this action, as a browser sends them."""
    (form,) = re.findall(rf'<form[^>]*action="{action}".*?</form>', page, re.DOTALL)
    found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', form)
    return {name: html.unescape(text) for name, text in found}


async def ended(there: AsyncTestBroker, job_id: str) -> Job:
    async with (
        Jobs(bootstrap_servers=there.bootstrap_servers) as jobs,
        asyncio.timeout(HANGING_SECONDS),
    ):
        while not (job := await jobs.show(job_id)).state.is_end:
            await asyncio.sleep(0.05)
        return job


def job_id_of(answer: httpx.Response) -> str:
    (job_id,) = re.findall(r"/job\?id=([0-9a-f]+)", str(answer.url))
    return job_id


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "count"), [({"where": "id < 10"}, 10), ({"everything": "yes"}, LETTERS)]
)
def test_letters_are_sent_back_by_a_job_after_a_dry_run(query: dict[str, str], count: int) -> None:
    async def run() -> None:
        async with broker() as there:
            await with_letters(there)
            async with changing_console(there) as client:
                asked = {"kind": "redrive", "topic": "billing.dead", **query}
                claims = await client.get("/plan", params=asked)
                assert "To be confirmed" in claims.text
                confirmed = form_of(claims.text, "/plan")
                assert confirmed["confirm"] == "billing.retry"
                plan = await client.get("/plan", params=confirmed)
                assert f"Send back {count} letters" in plan.text
                assert (await client.get("/api/v1/jobs")).json()["jobs"] == []
                fields = form_of(plan.text, "/jobs/start-redrive")
                started = await client.post(
                    "/jobs/start-redrive", data=fields, headers={"Origin": "http://localhost"}
                )
                assert started.status_code == 200, started.text
                job = await ended(there, job_id_of(started))
                assert (job.state, job.progress) == (JobState.DONE, (count, count))
                assert job.started_by == "console:local"
                page = (await client.get("/job", params={"id": job.id})).text
                assert "billing.retry" in page
                (row,) = (await client.get("/api/v1/jobs")).json()["jobs"]
                assert (row["state"], row["done"]) == ("done", count)
                # Those letters were sent back: the next plan has none of them.
                again = await client.get("/plan", params=confirmed)
                assert "nothing to start" in again.text

    asyncio.run(run())


def test_purge_of_all_letters() -> None:
    async def run() -> None:
        async with broker() as there:
            await with_letters(there)
            async with changing_console(there) as client:
                asked = {"kind": "purge", "topic": "billing.dead", "everything": "yes"}
                plan = await client.get("/plan", params=asked)
                fields = form_of(plan.text, "/jobs/start-purge")
                started = await client.post("/jobs/start-purge", data=fields)
                job = await ended(there, job_id_of(started))
                assert (job.state, job.result["deleted"]) == (JobState.DONE, LETTERS)
                page = (
                    await client.get("/api/v1/letters", params={"topic": "billing.dead"})
                ).json()
                assert page["letters"] == []

    asyncio.run(run())


@pytest.mark.slow
def test_form_of_one_kind_does_not_start_the_other_and_nothing_starts_without_its_token() -> None:
    async def run() -> None:
        async with broker() as there:
            await with_letters(there)
            async with changing_console(there) as client:
                asked = {"kind": "redrive", "topic": "billing.dead", "confirm": "billing.retry"}
                plan = await client.get("/plan", params={**asked, "everything": "yes"})
                fields = form_of(plan.text, "/jobs/start-redrive")
                without_token = {**fields, "form_token": "x"}
                refused = await client.post("/jobs/start-redrive", data=without_token)
                assert refused.status_code == 403
                foreign = await client.post(
                    "/jobs/start-redrive", data=fields, headers={"Origin": "http://evil.example"}
                )
                assert foreign.status_code in (200, 403)
                as_redrive = await client.post(
                    "/jobs/start-redrive", data={**fields, "kind": "purge"}
                )
                async with Jobs(bootstrap_servers=there.bootstrap_servers) as jobs:
                    kinds = {job.request.kind for job in (await jobs.list()).jobs}
                assert kinds == {"redrive"}, as_redrive.text

    asyncio.run(run())


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        ({}, 400, "expected one of"),
        ({"kind": "redrive"}, 404, "There is no topic"),
        ({"kind": "redrive", "topic": "nobody", "everything": "yes"}, 404, "does not exist"),
        ({"kind": "redrive", "topic": "billing.dead"}, 400, "tick «all letters»"),
        ({"kind": "purge", "topic": "billing.dead", "at": "x"}, 400, "PARTITION:OFFSET"),
    ],
)
def test_plans_say_what_is_missing(query: dict[str, str], status: int, text: str) -> None:
    async def run() -> None:
        async with broker() as there:
            await there.create_topic("billing.dead")
            async with changing_console(there) as client:
                answer: Any = await client.get("/plan", params=query or None)
                assert (answer.status_code, text in answer.text) == (status, True), answer.text

    asyncio.run(run())


def test_start_offsets_are_moved_to_what_the_dry_run_showed() -> None:
    async def run() -> None:
        async with broker() as there:
            await with_letters(there)
            async with changing_console(there) as client:
                asked = {"group": "billing", "to": "offset", "offset": "7", "topic": "orders"}
                page = await client.get("/reset", params=asked)
                fields = form_of(page.text, "/groups/reset")
                assert fields["plan"] == "orders:0:7"
                moved = await client.post("/groups/reset", data=fields)
                assert moved.status_code in (200, 404), moved.text
                async with AdminClient(bootstrap_servers=there.bootstrap_servers) as admin:
                    offsets = (await admin.list_share_group_offsets({"billing": None}))["billing"]
                assert isinstance(offsets, dict)
                found = offsets[TopicPartition("orders", 0)]
                assert getattr(found, "start_offset", None) == 7
                nothing = await client.get("/reset", params=asked)
                assert "Nothing would change" in nothing.text
                bad = await client.post("/groups/reset", data={**fields, "plan": "orders:0:x"})
                assert (bad.status_code, "TOPIC:PARTITION:OFFSET" in bad.text) == (400, True)

    asyncio.run(run())


def test_offsets_and_a_group_are_deleted_after_a_dry_run() -> None:
    async def run() -> None:
        async with broker() as there:
            await with_letters(there)
            async with changing_console(there) as client:
                asked = {"group": "billing", "what": "offsets", "topic": "orders"}
                page = await client.get("/delete", params=asked)
                fields = form_of(page.text, "/groups/delete-offsets")
                async with AdminClient(bootstrap_servers=there.bootstrap_servers) as admin:
                    where = TopicPartition("orders", 0)
                    await admin.alter_share_group_offsets("billing", {where: 5})
                    old = await client.post("/groups/delete-offsets", data=fields)
                    assert (old.status_code, "have changed since" in old.text) == (400, True)
                    assert where in await offsets_of(admin)
                    page = await client.get("/delete", params=asked)
                    fields = form_of(page.text, "/groups/delete-offsets")
                    done = await client.post("/groups/delete-offsets", data=fields)
                    assert done.status_code in (200, 404), done.text
                    assert where not in await offsets_of(admin)
                    nothing = await client.get("/delete", params=asked)
                    assert "Nothing would be deleted" in nothing.text
                    whole = await client.get(
                        "/delete", params={"group": "billing", "what": "group"}
                    )
                    fields = form_of(whole.text, "/groups/delete")
                    gone = await client.post("/groups/delete", data=fields)
                    assert gone.status_code == 200, gone.text
                    assert await admin.list_share_groups() == []
                again = await client.get("/delete", params=asked)
                assert (again.status_code, "no share group" in again.text) == (404, True)

    asyncio.run(run())


async def offsets_of(admin: AdminClient) -> set[TopicPartition]:
    offsets = (await admin.list_share_group_offsets({"billing": None}))["billing"]
    assert isinstance(offsets, dict)
    return set(offsets)


def test_group_with_members_keeps_its_offsets() -> None:
    async def run() -> None:
        async with broker() as there:
            await there.create_topic("orders")
            await there.produce("orders", "x")
            async with (
                ShareConsumer(
                    "orders",
                    bootstrap_servers=there.bootstrap_servers,
                    group_id="billing",
                    start_from="earliest",
                ) as consumer,
                changing_console(there) as client,
            ):
                await consumer.poll(timeout=HANGING_SECONDS)
                await consumer.commit()
                for kind, path in (("offsets", "delete-offsets"), ("group", "delete")):
                    asked = {"group": "billing", "what": kind, "topic": "orders"}
                    page = await client.get("/delete", params=asked)
                    assert "The group has 1 member now" in page.text
                    fields = form_of(page.text, f"/groups/{path}")
                    kept = await client.post(f"/groups/{path}", data=fields)
                    assert (kept.status_code, "refused" in kept.text) == (502, True), kept.text
                async with AdminClient(bootstrap_servers=there.bootstrap_servers) as admin:
                    assert await offsets_of(admin) == {TopicPartition("orders", 0)}

    asyncio.run(run())


def test_a_record_is_produced_and_shown() -> None:
    async def run() -> None:
        async with broker() as there:
            await there.create_topic("orders", 2)
            async with changing_console(there) as client:
                page = await client.get("/produce", params={"topic": "orders"})
                fields = form_of(page.text, "/records/produce")
                record = {"partition": "1", "key": "k", "value": "{\r\n}", "headers": "a=1\r\nb"}
                shown = await client.post("/records/produce", data={**fields, **record})
                assert shown.status_code == 200, shown.text
                where = {"topic": "orders", "partition": 1, "offset": 0}
                found = (await client.get("/api/v1/record", params=where)).json()
                assert (found["key"], found["value"]) == ("k", "{}")
                assert found["headers"] == [["a", "1"], ["b", "null"]]
                bad = await client.post("/records/produce", data={**fields, "partition": "x"})
                assert bad.status_code == 400

    asyncio.run(run())
