"""A broker that lies: hostile texts in everything that it says of others.

Members with any id and host, topics with names that Kafka forbids, principals, users, quotas,
racks, settings, transactional ids and error texts: a browser shows them all, and executes nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen
from uuid import UUID

import pytest

from sharegroup.client import NewTopic, TopicPartition
from sharegroup.client.sync import AdminClient, Consumer
from sharegroup.testing import run_broker
from sharegroup.wire.codec.apis import response_module
from tests.integration.console.test_hostile_texts import ROWS_PER_PAGE, SOME, show
from tests.support import lying_broker as lying
from tests.support.browser import ALL, Watched
from tests.support.console_scene import console, wait_until_seen
from tests.support.limits import HANGING_SECONDS

SAMPLE = SOME[:: 40 if ALL else 8]
"""Texts that have a page of their own."""
ASKED_FOR_ALL_MIN = 2
REFUSED = 29
"""The error code of what an ACL does not allow."""


def part(message: Any, name: str, **fields: Any) -> Any:
    """Make a part of a response, in the version of the response."""
    return getattr(response_module(message.__api_key__, message.__version__), name)(**fields)


def with_members(message: Any) -> Any:
    """Give each group a member for each text."""

    def assignment(text: str) -> Any:
        places = part(
            message,
            "TopicPartitions",
            topic_id=UUID(int=1),
            topic_name=text,
            partitions=(0, 1),
        )
        return part(message, "Assignment", topic_partitions=(places,))

    def member(text: str) -> Any:
        only_consumers = {
            "instance_id": text,
            "subscribed_topic_regex": text,
            "target_assignment": assignment(text),
            "member_type": 1,
        }
        is_share = message.__api_key__ == lying.SHARE_GROUP_DESCRIBE
        return part(
            message,
            "Member",
            member_id=text,
            rack_id=text,
            member_epoch=1,
            client_id=text,
            client_host=text,
            subscribed_topic_names=(text,),
            assignment=assignment(text),
            **({} if is_share else only_consumers),
        )

    members = tuple(map(member, SOME))
    groups = (replace(group, group_state=SOME[0], members=members) for group in message.groups)
    return replace(message, groups=tuple(groups))


def with_errors(message: Any) -> Any:
    """Say of each group why it cannot be described."""
    groups = (
        replace(group, error_code=REFUSED, error_message=text, members=())
        for group, text in zip(message.groups, SOME * len(message.groups), strict=False)
    )
    return replace(message, groups=tuple(groups))


def with_topics(message: Any) -> Any:
    """List topics with names that Kafka forbids, and without leaders, so the overview has them."""
    if len(message.topics) < ASKED_FOR_ALL_MIN:
        return message  # One topic was asked for.
    pattern = message.topics[0]
    partitions = tuple(replace(found, leader_id=-1) for found in pattern.partitions)
    ghosts = (
        replace(pattern, name=text, topic_id=UUID(int=number), partitions=partitions)
        for number, text in enumerate(SOME, 1)
    )
    return replace(message, topics=(*message.topics, *ghosts))


def with_brokers(message: Any) -> Any:
    ghosts = (
        replace(message.brokers[0], broker_id=number, host=text, rack=text)
        for number, text in enumerate(SOME, 2)
    )
    return replace(message, cluster_id=SOME[-1], brokers=(*message.brokers, *ghosts))


def with_settings(message: Any) -> Any:
    def configs(result: Any) -> tuple[Any, ...]:
        return tuple(
            replace(result.configs[number % len(result.configs)], name=text, value=text)
            for number, text in enumerate(SOME[:: 8 if ALL else 1])  # One page shows them all.
        )

    results = (
        replace(result, configs=configs(result)) if result.configs else result
        for result in message.results
    )
    return replace(message, results=tuple(results))


def with_acls(message: Any) -> Any:
    resources = (
        part(
            message,
            "DescribeAclsResource",
            resource_type=2,
            resource_name=text,
            pattern_type=3,
            acls=(
                part(
                    message,
                    "AclDescription",
                    principal=f"User:{text}",
                    host=text,
                    operation=3,
                    permission_type=3,
                ),
            ),
        )
        for text in SOME
    )
    return replace(message, error_code=0, error_message=None, resources=tuple(resources))


def with_users(message: Any) -> Any:
    credential = part(message, "CredentialInfo", mechanism=1, iterations=4096)
    results = (
        part(
            message,
            "DescribeUserScramCredentialsResult",
            user=text,
            error_code=0,
            error_message=None,
            credential_infos=(credential,),
        )
        for text in SOME
    )
    return replace(message, error_code=0, error_message=None, results=tuple(results))


def with_quotas(message: Any) -> Any:
    entries = (
        part(
            message,
            "EntryData",
            entity=(part(message, "EntityData", entity_type="user", entity_name=text),),
            values=(part(message, "ValueData", key=text, value=7.0),),
        )
        for text in SOME
    )
    return replace(message, error_code=0, error_message=None, entries=tuple(entries))


def with_transactions(message: Any) -> Any:
    states = (
        part(
            message, "TransactionState",
            transactional_id=text, producer_id=7, transaction_state="Ongoing",
        )
        for text in SOME[:: 3 if ALL else 1]  # The page describes 500.
    )  # fmt: skip
    return replace(message, transaction_states=tuple(states))


def with_open_transactions(message: Any) -> Any:
    """Describe each as open, with its id as the name of a topic."""
    states = (
        replace(
            state,
            error_code=0, transaction_state="Ongoing", producer_id=7,
            topics=(
                part(message, "TopicData", topic=state.transactional_id, partitions=(0,)),
            ),
        )
        for state in message.transaction_states
    )  # fmt: skip
    return replace(message, transaction_states=tuple(states))


LIES = {
    lying.CONSUMER_GROUP_DESCRIBE: with_members,
    lying.DESCRIBE_ACLS: with_acls,
    lying.DESCRIBE_CLUSTER: with_brokers,
    lying.DESCRIBE_CONFIGS: with_settings,
    lying.DESCRIBE_QUOTAS: with_quotas,
    lying.DESCRIBE_TRANSACTIONS: with_open_transactions,
    lying.DESCRIBE_USERS: with_users,
    lying.LIST_TRANSACTIONS: with_transactions,
    lying.METADATA: with_topics,
    lying.SHARE_GROUP_DESCRIBE: with_members,
}


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    """A broker with a consumer group, and a share group for each of a few texts."""
    with run_broker() as there:
        address = there.bootstrap_servers
        with AdminClient(bootstrap_servers=address) as admin:
            admin.create_topics([NewTopic("orders", 1)])
            for group in ("group", *SAMPLE):
                admin.alter_share_group_offsets(group, {TopicPartition("orders", 0): 0})
        there.produce("orders", b"{}")
        with Consumer(
            "orders", group_id="consumers", auto_offset_reset="earliest",
            bootstrap_servers=address,
        ) as consumer:  # fmt: skip
            while not consumer.poll(timeout=1):
                pass
            consumer.commit()
            yield address


@pytest.fixture(scope="module")
def url(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("lying") / "console.log"
    with lying.LyingBroker(broker, LIES) as address, console(address, log=log) as console_url:
        wait_until_seen(console_url, "group", "consumers")
        yield console_url


PAGES = -(-len(SOME) // ROWS_PER_PAGE)
TABLES = {
    "/group?id=group&members-page={}": PAGES,
    "/group?id=consumers&members-page={}": PAGES,
    "/topics?topics-page={}": PAGES,
    "/brokers?brokers-page={}": PAGES,
    "/access?acls-page={0}&users-page={0}&quotas-page={0}": PAGES,
    "/transactions?transactions-page={}": -(-PAGES // 3),
    "/?groups-page={}": 1,
    "/topic?name=orders&partitions-page={}": 1,
}
"""The addresses of tables, and how many pages each has."""


@pytest.mark.parametrize("table", TABLES)
def test_tables_execute_nothing(watched: Watched, url: str, table: str) -> None:
    for number in range(1, TABLES[table] + 1):
        page = show(watched, url + table.format(number))
        assert page.locator("[role=alert]").count() == 0
        assert page.locator("tbody tr").count() > 0


@pytest.mark.parametrize("path", ["/topic?name=", "/records?topic=", "/letters?topic="])
def test_pages_of_hostile_topics_execute_nothing(watched: Watched, url: str, path: str) -> None:
    for text in SAMPLE:
        page = watched.open(f"{url}{path}{quote(text)}")
        assert page.locator("h1").count() == 1
    # What the broker does not have is told by its status, which the browser's console notes.
    watched.offences = [told for told in watched.offences if "Failed to load resource" not in told]


@pytest.mark.slow
def test_why_groups_cannot_be_described_executes_nothing(
    watched: Watched, broker: str, tmp_path: Any
) -> None:
    lies = {lying.SHARE_GROUP_DESCRIBE: with_errors}
    with (
        lying.LyingBroker(broker, lies) as address,
        console(address, log=tmp_path / "console.log") as url,
    ):
        wait_until_seen(url, "consumers")
        page = show(watched, url)
        page.wait_for_selector("text=could not be described")
        for text in SAMPLE:
            page = watched.open(f"{url}/group?id={quote(text)}")
            assert "It could not be described" in page.locator("main").inner_text()
        page.goto("about:blank")  # The console ends before the browser.


def test_json_has_the_texts_as_they_are(url: str) -> None:
    end = time.monotonic() + HANGING_SECONDS
    members: list[Any] = []
    while not members and time.monotonic() < end:  # It was listed as empty at first.
        with urlopen(f"{url}/api/v1/group?id=group") as answer:
            members = json.load(answer)["group"]["members"]
    assert {member["member_id"] for member in members} == set(SOME)
    assert {member["host"] for member in members} == set(SOME)
    with urlopen(f"{url}/api/v1/topics") as answer:
        assert {row["name"] for row in json.load(answer)["topics"]} > set(SOME)
    with urlopen(f"{url}/api/v1/access") as answer:
        rows = json.load(answer)["acls"]
    assert {row["principal"] for row in rows} == {f"User:{text}" for text in SOME}
