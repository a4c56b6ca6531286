"""Hostile texts as ids of groups, clients and members, and in records: nothing is executed.

A browser shows each page that has them.  A dialog, an error of a script, or a report of the content
security policy fails the test: the policy is the second wall, and nothing may reach it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode
from urllib.request import urlopen

import pytest

from sharegroup.client import NewTopic, TopicPartition
from sharegroup.client.sync import AdminClient, Producer, ShareConsumer
from sharegroup.testing import run_broker
from tests.support.browser import ALL, Watched
from tests.support.console_scene import console, wait_until_seen
from tests.support.hostile_texts import hostile_texts

TEXTS = list(hostile_texts())
SOME = TEXTS if ALL else TEXTS[::45]
MEMBERS = 12
ROWS_PER_PAGE = 50


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("hostile")
    with run_broker() as broker:
        address = broker.bootstrap_servers
        with AdminClient(bootstrap_servers=address) as admin:
            admin.create_topics([NewTopic("orders", 1)])
            for text in SOME:
                admin.alter_share_group_offsets(text, {TopicPartition("orders", 0): 0})
        with Producer(bootstrap_servers=address) as producer:
            for text in SOME:
                content = text.encode("utf-8", "surrogatepass")
                producer.send(
                    "orders", content, key=content, headers=[(text, content), ("x", b"\xff\xfe")]
                )
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


def test_pages_of_groups_execute_nothing(watched: Watched, url: str) -> None:
    for text in SOME[:: 4 if ALL else 1]:
        page = watched.open(f"{url}/group?{urlencode({'id': text})}")
        assert page.locator("h1").count() == 1
    watched.offences = [told for told in watched.offences if "404" not in told]


def test_members_with_hostile_clients_execute_nothing(watched: Watched, url: str) -> None:
    page = show(watched, f"{url}/group?id=group")
    page.wait_for_selector(".is-live")
    assert page.locator("#live_members tbody tr").count() == MEMBERS


def test_records_execute_nothing(watched: Watched, url: str) -> None:
    page = show(watched, f"{url}/records?topic=orders&order=oldest")
    assert page.locator("tbody tr").count() > 0
    for offset in range(0, len(SOME), 5):
        page = watched.open(f"{url}/record?topic=orders&partition=0&offset={offset}")
        assert page.locator("h1").count() == 1


def test_parameters_execute_nothing(watched: Watched, url: str) -> None:
    for text in SOME[:: 16 if ALL else 2]:
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
