"""The console on a cluster of three brokers while one of them dies and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sharegroup.client import Producer, ShareConsumer
from sharegroup.client.settings.client_config import ClientOptions
from sharegroup.console.web.job_runs import OF_THE_CONSOLE
from sharegroup.jobs import Jobs
from tests.cluster.clients import LIMIT_SECONDS, begin_at_the_start, broken, create_topic
from tests.integration.console.access_scene import Browser, console
from tests.integration.worker.jobs_scene import committed, request, set_up
from tests.support.kafka_cluster import KafkaCluster

LETTERS = 1_000
LETTERS_PER_SECOND = 50.0
"""So slow that the job of these letters runs before, while and after a broker is away."""
RECORDS = 60


async def problems_of(browser: Browser, subject: str) -> list[str]:
    """What the overview says about a subject."""
    found = (await browser.data("/"))["attention"]
    return [each["problem"] for each in found if each["subject"] == subject]


async def brokers_with_versions(browser: Browser) -> set[int]:
    """The brokers that say which share groups they support."""
    features = (await browser.data("/brokers"))["features"]
    found = next(each["by_broker"] for each in features if each["name"] == "share.version")
    return {int(node_id) for node_id in found}


async def send(producer: Producer, topic: str, count: int) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        for number in range(count):
            await producer.send_and_wait(topic, b"{}", key=b"%d" % number)


async def taken(consumer: ShareConsumer, count: int) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while count > 0:
            count -= len(await consumer.poll(timeout=1))
            await consumer.commit()


async def until(browser: Browser, path: str, holds: Callable[[Any], bool], **query: Any) -> Any:
    """Return the data of a page when a condition holds; a page may fail meanwhile."""
    said = ""
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                answer = await browser.get(f"/api/v1{path}", **query)
                said = answer.text
                if answer.status_code == 200 and holds(answer.json()):
                    return answer.json()
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"{path} said at last: {said}") from None


def subjects(data: Any) -> set[str]:
    """What needs attention on the overview."""
    return {each["subject"] for each in data["attention"]}


@pytest.mark.slow
def test_death_of_a_broker_is_told_and_groups_and_jobs_go_on(
    cluster: KafkaCluster, topic: str
) -> None:
    """The broker that dies coordinates the group and leads a partition with one replica.

    The overview names the broker and the partition.  The group goes on with its lag and members,
    a job sends each letter once and in order, and when the broker is back the overview is quiet.
    """
    group, alone, letters = f"{topic}.group", f"{topic}.alone", f"{topic}.letters"
    options = ClientOptions(bootstrap_servers=cluster.bootstrap_servers)

    async def run() -> None:
        await create_topic(cluster, topic)
        await create_topic(cluster, alone, partitions=3, replicas=1)
        await begin_at_the_start(cluster, [group])
        await set_up(cluster.bootstrap_servers, letters, LETTERS)
        victim = await broken(cluster.coordinator_of, group)
        subject = f"broker {victim}"

        def is_settled(data: Any) -> bool:
            found = data["group"]
            lags = [part["lag"] for part in found["partitions"]]
            return len(found["members"]) == 1 and not found["error"] and set(lags) == {0}

        async with (
            console(options, allow_changes=True) as scene,
            Producer(**options) as producer,
            Jobs(**options) as jobs,
        ):
            browser = await scene.browser()
            async with ShareConsumer(topic, group_id=group, **options) as consumer:
                await asyncio.gather(send(producer, topic, RECORDS), taken(consumer, RECORDS))
                await until(browser, "/group", is_settled, id=group)
                assert await problems_of(browser, subject) == []
                assert await brokers_with_versions(browser) == {1, 2, 3}
                started = await jobs.start(
                    request(letters, rate=LETTERS_PER_SECOND), started_by=f"{OF_THE_CONSOLE} test"
                )
                await until(browser, "/job", lambda data: data["job"]["done"] > 0, id=started.id)

                await broken(cluster.kill, victim)
                await asyncio.gather(send(producer, topic, RECORDS), taken(consumer, RECORDS))
                await until(browser, "/group", is_settled, id=group)
                gone = {subject, f"topic {alone}"}
                await until(browser, "/", lambda data: gone <= subjects(data))
                (text,) = await problems_of(browser, subject)
                assert "does not answer" in text
                brokers = (await browser.data("/brokers"))["brokers"]
                assert [row["node_id"] for row in brokers] == [1, 2, 3]
                assert await brokers_with_versions(browser) == {1, 2, 3} - {victim}
                done = (await browser.data("/job", id=started.id))["job"]["done"]
                await until(browser, "/job", lambda data: data["job"]["done"] > done, id=started.id)

                await broken(cluster.start, victim)
                await until(browser, "/", lambda data: gone.isdisjoint(subjects(data)))
                await asyncio.gather(send(producer, topic, RECORDS), taken(consumer, RECORDS))
                await until(browser, "/group", is_settled, id=group)
            await send(producer, topic, 7)
            await until(browser, "/", lambda data: (0, 7) in [
                (row["members"], row["lag"]) for row in data["groups"] if row["group"] == group
            ])  # fmt: skip
            await until(browser, "/job", lambda data: data["job"]["state"] == "done", id=started.id)
        numbers = [b"%d" % number for number in range(LETTERS)]
        assert await committed(cluster.bootstrap_servers, f"{letters}.dead") == numbers
        assert await committed(cluster.bootstrap_servers, f"{letters}.retry") == numbers

    asyncio.run(run())
