"""``sharegroup dlq list`` without a topic: which topics have dead letters, and how many."""

from __future__ import annotations

import asyncio

import pytest

from sharegroup.client import AdminClient, AlterConfig, ConfigResource, NewTopic, ResourceType
from tests.integration.cli.conftest import Run, known, produce
from tests.integration.cli.terminal import terminal
from tests.support.chosen_broker import KAFKA, chosen

ENABLED = {} if chosen() == KAFKA else {"errors.deadletterqueue.group.enable": "true"}
"""Apache Kafka has this setting from 4.4 on only."""


@pytest.mark.slow
def test_topics_are_found_by_name_setting_group_and_ledger(run: Run, bootstrap: str) -> None:
    async def set_up() -> None:
        topics = {
            "listed-billing.dead": {},
            "listed-by-setting": ENABLED,
            "listed-by-ledger": {},
            "listed-by-ledger.redriven": {},
            "listed-orders": {},
        }
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([NewTopic(name, 2, configs=c) for name, c in topics.items()])
            if ENABLED:
                group = ConfigResource(ResourceType.GROUP, "listed-group")
                name = AlterConfig("errors.deadletterqueue.topic.name", "listed-by-setting")
                assert await admin.incremental_alter_configs({group: [name]}) == {group: None}
        for name in topics:
            await known(bootstrap, name)
        await produce(bootstrap, "listed-billing.dead")

    asyncio.run(set_up())
    rows = {row["topic"]: row for row in run("dlq list --json").rows}
    listed = {name for name in rows if name.startswith("listed-")}
    expected = {"listed-billing.dead", "listed-by-ledger"}
    assert listed == (expected | {"listed-by-setting"} if ENABLED else expected)
    assert rows["listed-billing.dead"] == {
        "topic": "listed-billing.dead",
        "partitions": 2,
        "letters": 4,
        "last_letter": "1970-01-01T00:00:04.000Z",
        "groups": [],
    }
    assert rows["listed-by-ledger"]["letters"] == 0
    assert rows["listed-by-ledger"]["last_letter"] is None
    with terminal("dlq", "list", "--bootstrap", bootstrap) as shown:
        assert shown.end()[0] == 0
    assert shown.lines[0].startswith("TOPIC")
    assert max(map(len, shown.lines)) <= 80


def test_selecting_options_need_a_topic(run: Run) -> None:
    printed = run("dlq list --reason exhausted")
    assert printed.code == 2
