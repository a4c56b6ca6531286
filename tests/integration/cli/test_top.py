"""``sharegroup top``: the overview in a terminal, and as lines of JSON."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from sharegroup.cli.console.top import PROBLEMS_MAX
from sharegroup.client import AdminClient, NewTopic
from sharegroup.console.watch.group_reading import REQUEST_SECONDS
from sharegroup.testing import run_broker
from tests.docs.write_docs import JSON_KEYS
from tests.integration.cli.conftest import known, member, produce
from tests.integration.cli.piping import at, sharegroup, watched
from tests.integration.cli.terminal import CTRL_C, ESCAPES, Terminal, terminal

TOPIC = "tall-orders"
GROUP = "tenant-4711.payments-service"
GROUPS = 40
PROBLEMS = 2 * GROUPS
"""Each group has no members, and records that `produce` wrote with times of 1970."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A broker with 40 groups that have waiting records and no members, and one that has both."""

    async def set_up() -> None:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([NewTopic(TOPIC, 1)])
        await known(bootstrap, TOPIC)
        await produce(bootstrap, TOPIC)

    with run_broker() as broker:
        bootstrap = broker.bootstrap_servers
        asyncio.run(set_up())
        for number in range(GROUPS):
            words = f"groups reset-offsets g-{number:02} --topic {TOPIC} --to-earliest --execute"
            assert sharegroup(*at(bootstrap, words)).code == 0
        with member(bootstrap, GROUP, TOPIC):
            yield bootstrap


def last_screen(shown: Terminal) -> list[str]:
    """The lines of the newest picture, without colours."""
    text = shown.text[shown.text.rindex("\x1b[H") :]
    return ESCAPES.sub("", text).replace("\r", "").splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 40])
def test_overview_fits_a_terminal(columns: int, cluster: str) -> None:
    with terminal("top", "--every", "0.2", "--bootstrap", cluster, columns=columns) as shown:
        shown.expect("more lines")
        lines = last_screen(shown)
        shown.type(CTRL_C)
        code, _ = shown.end()
    assert code == 130
    assert max(map(len, lines)) <= columns, lines
    assert len(lines) <= 24, lines
    text = " ".join(" ".join(lines).split())
    assert "share groups" in text
    assert "CRITICAL group g-00: 4 records wait and it has no members; start its workers" in text
    assert f"{PROBLEMS - PROBLEMS_MAX} more problems" in text
    assert any(line.startswith("GROUP") for line in lines)


@pytest.mark.slow
def test_json_has_all_groups_and_problems(cluster: str) -> None:
    words = ("top", "--json", "--every", "0.1", "--bootstrap", cluster)
    first, second = asyncio.run(watched(*words, lines=2))
    assert len(first["rows"]) == GROUPS + 1
    assert len(first["attention"]) == PROBLEMS
    row = next(row for row in second["rows"] if row["group"] == "g-07")
    assert row == {
        "group": "g-07", "state": "Empty", "members": 0, "lag": 4,
        "oldest_age_ms": row["oldest_age_ms"], "rate": 0.0, "topics": [TOPIC], "error": None,
    }  # fmt: skip
    assert row["oldest_age_ms"] > 0
    assert second["rows"][-1]["group"] == GROUP, "the most waiting records come first"
    keys = {key.strip("()") for key in JSON_KEYS["top"].split()}
    assert {*first, *row, *first["attention"][0]} == keys - {"an", "array", "of"}


def test_without_groups_it_says_how_they_come() -> None:
    with (
        run_broker() as broker,
        terminal("top", "--bootstrap", broker.bootstrap_servers) as shown,
    ):
        shown.expect("There are no share groups yet.")
        shown.expect("1 broker, 0 share groups, 0 members, 0 waiting")


def test_without_a_broker_it_ends_with_what_to_do() -> None:
    ended = sharegroup(*at("127.0.0.1:9", "top --timeout 300"))
    assert ended.code == 1
    assert "check that a broker listens there" in ended.err


@pytest.mark.slow
def test_broker_that_is_gone_is_what_needs_attention() -> None:
    with run_broker() as broker:
        words = ("top", "--every", "0.2", "--timeout", "500")
        with terminal(*words, "--bootstrap", broker.bootstrap_servers) as shown:
            shown.expect("1 broker")
            broker.stop()
            began = time.monotonic()
            shown.expect("does not answer")
            assert time.monotonic() - began < REQUEST_SECONDS, "a request alone may take as long"
