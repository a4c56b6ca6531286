"""docs/clusters.md: its settings have these defaults, and what it tells to look for is there.

The tables of rights are executed by `tests.interop.test_rights` and its neighbours, the manifests
by `tests.docs.test_kubernetes`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from sharegroup.cli.main import main
from sharegroup.client import AdminClient, ConfigResource, NewTopic, ResourceType
from sharegroup.client.settings.client_config import ClientConfig, ProducerConfig
from tests.support.chosen_broker import KAFKA, LONG_WITH_A_JVM, chosen
from tests.support.kafka_peer import KafkaPeer, why_missing

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "clusters.md").read_text()
DEFAULTS = re.findall(
    r"^\| `(\S+)` \| (broker|topic|group|client|producer) \| (\S+) \|$", PAGE, re.MULTILINE
)
missing = why_missing() if chosen() == KAFKA else "make interop-kafka runs it"


def test_settings_of_clients_have_these_defaults() -> None:
    configs = {"client": ClientConfig(), "producer": ProducerConfig()}
    ours = [(name, of, value) for name, of, value in DEFAULTS if of in configs]
    assert len(ours) == 4
    for name, of, value in ours:
        assert str(getattr(configs[of], name)) == value, name


@LONG_WITH_A_JVM
@pytest.mark.kafka
@pytest.mark.skipif(missing is not None, reason=missing or "")
def test_settings_of_kafka_have_these_defaults(tmp_path: Path) -> None:
    theirs = [
        (name, of, value) for name, of, value in DEFAULTS if of in ("broker", "topic", "group")
    ]
    assert len(theirs) == 14
    kafka = KafkaPeer(tmp_path, heap="384m")
    for name, _, _ in theirs:
        kafka.properties.pop(name, None)  # What a node of the tests is started with.
    with kafka:
        found = asyncio.run(configs(kafka.bootstrap_servers))
    assert {(name, of): found[of].get(name) for name, of, _ in theirs} == {
        (name, of): value for name, of, value in theirs
    }


async def configs(bootstrap: str) -> Mapping[str, Mapping[str, str | None]]:
    """Values by name, of the broker, a new topic, and a group that nobody knows yet."""
    resources = {
        "broker": ConfigResource(ResourceType.BROKER, "1"),
        "topic": ConfigResource(ResourceType.TOPIC, "orders"),
        "group": ConfigResource(ResourceType.GROUP, "billing"),
    }
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic("orders", 1)])
        described = await admin.describe_configs(resources.values())
    values = {}
    for of, resource in resources.items():
        entries = described[resource]
        assert isinstance(entries, dict)
        values[of] = {name: entry.value for name, entry in entries.items()}
    return values


@pytest.mark.parametrize(
    "name",
    [
        "member.idle", "member.resumed", "idle-seconds", "assigned-partitions", "outbox.blocked",
        "tiers_unreadable",
    ],
)  # fmt: skip
def test_documented_log_events_and_metrics_exist_in_the_code(name: str) -> None:
    assert f"`{name}`" in PAGE
    sources = (path.read_text() for path in (ROOT / "src").rglob("*.py"))
    assert any(name in source for source in sources)


VERBS = sorted(set(re.findall(r"`sharegroup ((?:\w+ )?[a-z][\w-]*)[^`]*`", PAGE)))


@pytest.mark.parametrize("verb", VERBS)
def test_documented_commands_exist(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([*verb.split(), "--help"])
    assert (end.value.code, "Usage: sharegroup" in capsys.readouterr().out) == (0, True)


def test_documented_options_exist(capsys: pytest.CaptureFixture[str]) -> None:
    for line in re.findall(r"`sharegroup (groups describe [^`]*)`", PAGE):
        with pytest.raises(SystemExit):
            main(["groups", "describe", "--help"])
        shown = capsys.readouterr().out
        assert all(option in shown for option in re.findall(r"--[a-z-]+", line)), line
