"""Hostile texts as ids of groups and clients, in records, letters and jobs: nothing is executed.

A browser shows each page that has them.  A dialog, an error of a script, or a report of the content
security policy fails the test: the policy is the second wall, and nothing may reach it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote, urlencode
from urllib.request import urlopen

import pytest

from sharegroup.client import (
    NewTopic,
    TopicPartition,
)
from sharegroup.client.sync import AdminClient, Producer, ShareConsumer
from sharegroup.dead_letters.letter_headers import DEAD
from sharegroup.dead_letters.story import Attempt, RecordOrigin, Story
from sharegroup.dead_letters.story_headers import story_headers
from sharegroup.jobs import Job, JobRequest, JobState
from sharegroup.jobs.job_log import JOBS_TOPIC
from sharegroup.jobs.job_records import encoded_job, job_key
from sharegroup.testing import run_broker
from tests.support.browser import ALL, Watched
from tests.support.console_scene import console, wait_until_seen
from tests.support.hostile_texts import hostile_texts

TEXTS = list(hostile_texts())
SOME = TEXTS if ALL else TEXTS[::45]
MEMBERS = 12
IN_LETTER = 9
IN_JOB = 8
"""The number of texts that one letter and one job have."""
ROWS_PER_PAGE = 50


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("hostile")
    with run_broker() as broker:
        address = broker.bootstrap_servers
        with AdminClient(bootstrap_servers=address) as admin:
            admin.create_topics(
                [NewTopic(name, 1) for name in ("orders", "grouped", "dead", JOBS_TOPIC)]
            )
            for text in SOME:
                admin.alter_share_group_offsets(text, {TopicPartition("grouped", 0): 0})
        with Producer(bootstrap_servers=address) as producer:
            for text in SOME:
                content = text.encode("utf-8", "surrogatepass")
                producer.send(
                    "orders", content, key=content, headers=[(text, content), ("x", b"\xff\xfe")]
                )
            producer.flush()
            for place, texts in enumerate(batched(SOME, IN_LETTER)):
                producer.send("dead", b"{}", headers=letter_headers(place, texts))
            for number, texts in enumerate(batched(SOME, IN_JOB)):
                job = hostile_job(number, texts)
                producer.send(JOBS_TOPIC, encoded_job(job), key=job_key(job.id))
            producer.flush()
        members = [
            ShareConsumer("orders", group_id="group", client_id=text, bootstrap_servers=address)
            for text in SOME[:MEMBERS]
        ]
        for member in members:
            member.poll(timeout=0.5)
        try:
            with console(address, log=folder / "console.log") as console_url:
                wait_until_seen(console_url, "group", SOME[-1])
                yield console_url
        finally:
            for member in members:
                member.close()


def batched(texts: Sequence[str], count: int) -> Iterator[list[str]]:
    """Yield all texts, each time this number of them; the last ones again with the first."""
    for first in range(0, len(texts), count):
        yield [*texts[first : first + count], *texts][:count]


def letter_headers(place: int, texts: Sequence[str]) -> list[tuple[str, bytes | None]]:
    """Return the headers of a worker's letter, whose texts are all hostile."""
    name, message, traceback, handler, group, member, number, error, topic = texts
    attempt = Attempt(1, 1_700_000_000_000, error, message, member)
    origin = RecordOrigin(topic[:60], 0, place, 1_700_000_000_000)
    told = {
        "id": number, "reason": "exhausted", "error.class": name, "error.message": message,
        "error.traceback": traceback, "handler": handler, "group": group, "member": member,
    }  # fmt: skip
    return [
        *story_headers(Story(failures=1, attempts=(attempt,)), origin),
        *((DEAD + key, text.encode("utf-8", "surrogatepass")) for key, text in told.items()),
    ]


def hostile_job(number: int, texts: Sequence[str]) -> Job:
    """Return a job as anybody with access to the topic of jobs can write it."""
    group, handler, topic, user, runner, error, target, reason = texts
    return Job(
        id=f"job{number}",
        request=JobRequest(
            kind="redrive", topic=topic, filter={"group": group, "handler": handler}
        ),
        started_by=user,
        created_ms=1_700_000_000_000,
        state=JobState.FAILED,
        runner=runner,
        error=error,
        result={
            "sent": {target: 3},
            "refused": [{"target": target, "reason": reason, "letters": 2}],
        },
    )


def show(watched: Watched, address: str) -> Any:
    """Show a page until its live values have come, and touch what could react to it."""
    page = watched.open(address)
    page.wait_for_timeout(300)
    for details in page.locator("details > summary").all():
        details.click()
    return page


def test_tables_of_groups_execute_nothing(watched: Watched, url: str) -> None:
    for path in ("/", "/groups"):
        for number in range(1, -(-(len(SOME) + 1) // ROWS_PER_PAGE) + 1):
            page = show(watched, f"{url}{path}?groups-page={number}")
            assert page.locator("tbody tr").count() > 0


@pytest.mark.slow
def test_pages_of_groups_execute_nothing(watched: Watched, url: str) -> None:
    for text in SOME[:: 12 if ALL else 1]:
        page = watched.open(f"{url}/group?{urlencode({'id': text})}")
        assert page.locator("h1").count() == 1
    watched.offences = [told for told in watched.offences if "404" not in told]


@pytest.mark.slow
def test_members_with_hostile_clients_execute_nothing(watched: Watched, url: str) -> None:
    page = show(watched, f"{url}/group?id=group")
    page.wait_for_selector(".is-live")
    assert page.locator("#live_members tbody tr").count() == MEMBERS


@pytest.mark.slow
def test_records_execute_nothing(watched: Watched, url: str) -> None:
    page = show(watched, f"{url}/records?topic=orders&order=oldest")
    assert page.locator("tbody tr").count() > 0
    for offset in range(0, len(SOME), 12 if ALL else 5):
        page = watched.open(f"{url}/record?topic=orders&partition=0&offset={offset}")
        assert page.locator("h1").count() == 1


def test_letters_execute_nothing(watched: Watched, url: str) -> None:
    for number in range(1, -(-len(SOME) // IN_LETTER // ROWS_PER_PAGE) + 1):
        page = show(watched, f"{url}/letters?topic=dead&kinds-page={number}&letters-page={number}")
        assert page.locator("tbody tr").count() > 1
    for offset in range(-(-len(SOME) // IN_LETTER)):
        page = watched.open(f"{url}/letter?topic=dead&partition=0&offset={offset}")
        assert page.locator(".attempts li").count() == 1


def test_jobs_execute_nothing(watched: Watched, url: str) -> None:
    count = -(-len(SOME) // IN_JOB)
    for number in range(1, -(-count // ROWS_PER_PAGE) + 1):
        page = show(watched, f"{url}/jobs?jobs-page={number}")
        assert page.locator("tbody tr").count() > 0
    for number in range(count):
        page = watched.open(f"{url}/job?id=job{number}")
        assert page.locator("tbody tr").count() == 1


@pytest.mark.slow
def test_parameters_execute_nothing(watched: Watched, url: str) -> None:
    for text in SOME[:: 32 if ALL else 2]:
        for address in (
            *(f"groups?groups-find={quote(text)}", f"groups?{quote(text)}=1"),
            *(f"records?topic={quote(text)}", f"groups?groups-sort={quote(text)}"),
        ):
            watched.page.goto(f"{url}/{address}")
    # Refused addresses are told by their status, which the browser's console notes.
    told = [offence for offence in watched.offences if "Failed to load resource" not in offence]
    watched.offences.clear()
    assert told == []


def test_json_has_the_texts_as_they_are(url: str) -> None:
    with urlopen(f"{url}/api/v1/groups") as answer:
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"
        names = {row["group"] for row in json.load(answer)["groups"]}
    assert names == {*SOME, "group"}
