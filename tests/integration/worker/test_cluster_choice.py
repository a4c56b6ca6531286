"""A sender, a worker and a command of one App talk to the same one of two brokers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from sharegroup.cli.main import cli
from sharegroup.testing import TestBroker, run_broker
from sharegroup.worker import App
from tests.support.limits import HANGING_SECONDS


class Brokers(NamedTuple):
    """Two brokers: the one that the stronger source names, and that of all weaker ones."""

    right: TestBroker
    wrong: TestBroker


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    """Run two brokers."""
    with run_broker() as right, run_broker() as wrong:
        yield Brokers(right, wrong)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of an empty configuration file; no variable names a cluster."""
    path = tmp_path / "config.toml"
    path.write_text("")
    monkeypatch.setenv("SHAREGROUP_CONFIG", str(path))
    for name in ("SHAREGROUP_BOOTSTRAP", "SHAREGROUP_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return path


def _profile(address: str) -> str:
    return f'default = "p"\n[profiles.p]\nbootstrap.servers = "{address}"\n'


ORIGINS = {
    "argument": "an argument",
    "variable": "SHAREGROUP_BOOTSTRAP",
    "app": "App 'choosing'",
    "profile": "profile 'p' in",
}
"""Each source, in its order, and the origin that the log names."""


@pytest.mark.parametrize("source", ORIGINS)
def test_sender_and_worker_use_the_broker_of_the_same_source(
    brokers: Brokers,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    source: str,
) -> None:
    """``source`` names one broker and the next source of the order names the other one."""
    right, wrong = (broker.bootstrap_servers for broker in brokers)
    sources = list(ORIGINS)
    named = dict.fromkeys(sources[sources.index(source) + 1 :], wrong) | {source: right}
    if "variable" in named:
        monkeypatch.setenv("SHAREGROUP_BOOTSTRAP", named["variable"])
    if "profile" in named:
        file.write_text(_profile(named["profile"]))
    app = App("choosing", bootstrap_servers=named.get("app"))
    topic, handled = f"orders-of-{source}", asyncio.Event()

    @app.share_group(f"group-of-{source}", topics=topic)
    async def bill(order: dict[str, int]) -> None:
        handled.set()

    async def send_and_handle() -> None:
        async with app.client(bootstrap_servers=named.get("argument")):
            await bill.send({"id": 1})
        assert [record.value for record in brokers.right.records(topic)] == [b'{"id":1}']
        async with app, asyncio.timeout(HANGING_SECONDS):
            await handled.wait()

    caplog.set_level(logging.INFO, "sharegroup.client.settings.cluster_choice")
    asyncio.run(send_and_handle())
    lines = [text for text in caplog.messages if text.startswith("event=cluster.chosen")]
    assert len(lines) == 2  # One of the sender, one of the worker.
    for line in lines:
        assert f"bootstrap={right} " in line
        assert ORIGINS[source] in line
    assert topic not in _topics(wrong)


def test_commands_and_worker_verbs_use_the_same_order(
    brokers: Brokers, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, wrong = (broker.bootstrap_servers for broker in brokers)
    (tmp_path / "choosing_app.py").write_text(
        "from sharegroup.worker import App\n"
        f"app = App('choosing', bootstrap_servers={wrong!r})\n"
        "@app.share_group('verbs', topics='verbs', retry=None)\n"
        "async def handle(order: dict) -> None: ...\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    file.write_text(_profile(wrong))
    monkeypatch.setenv("SHAREGROUP_BOOTSTRAP", right)
    _run("worker", "apply", "choosing_app:app")
    assert "verbs" in _topics(right)
    assert "verbs" not in _topics(wrong)
    assert "verbs" in _topics()
    monkeypatch.delenv("SHAREGROUP_BOOTSTRAP")
    none = "There are no differences."
    assert none not in _run("worker", "plan", "choosing_app:app")
    assert none in _run("worker", "plan", "choosing_app:app", "--bootstrap-server", right)
    assert "verbs" not in _topics()


def test_broker_of_the_fixture_is_named_to_all_programs_of_a_test(
    sharegroup_broker: TestBroker,
) -> None:
    sharegroup_broker.create_topic("named")
    assert "named" in _topics()
    assert App("x", bootstrap_servers="production:9092").bootstrap_servers == (
        sharegroup_broker.bootstrap_servers
    )


def test_application_under_test_talks_to_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHAREGROUP_BOOTSTRAP", "127.0.0.1:1")
    app = App("testing")

    @app.share_group("g", topics="t")
    async def handle(number: int) -> None: ...

    async def run() -> None:
        async with app.test() as t:
            await t.send(handle, 1)
            await t.settle()
            assert len(t.accepted) == 1

    asyncio.run(run())


def _run(*words: str) -> str:
    done = CliRunner().invoke(cli, list(words))
    assert done.exit_code == 0, done.output
    return done.output


def _topics(address: str | None = None) -> str:
    """Return what ``topics list`` prints, of this broker or of the one that is chosen."""
    options = () if address is None else ("--bootstrap-server", address)
    return _run("topics", "list", *options)
