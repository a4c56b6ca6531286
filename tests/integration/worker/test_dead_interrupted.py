"""A redrive that ends in the middle: nothing is lost, and at most what was under way is doubled."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from sharegroup.client import AdminClient, Producer
from sharegroup.client.admin.types import AlterConfig, ConfigResource
from sharegroup.dead_letters.story_headers import story_of
from sharegroup.protocol_enums import ResourceType
from sharegroup.wire.batches.records import DecodedRecord
from sharegroup.worker.dead_letters import Burier
from sharegroup.worker.declarations.topics import DeadLetter
from tests.integration.worker.dead import (
    Given,
    NoAnswer,
    Sending,
    WallClock,
    bury,
    failed,
    lying_in,
    make_topics,
    route,
    until_there,
)
from tests.support.chosen_broker import chosen, running

LETTERS = 1_500
RATE = 1_000
CHUNK = RATE // 10
"""What a redrive at this rate sends at a time."""
UNDER_WAY_MAX = 4 * CHUNK
"""Two lots are under way, each of one chunk, or of one and a part: a read ends where it ends."""
SECONDS_MAX = 60


async def set_up(bootstrap: str, group: str) -> str:
    dead = f"{group}.dead"
    await make_topics(bootstrap, dead, f"{group}.retry")
    step = failed(NoAnswer("late"))
    async with Producer(bootstrap_servers=bootstrap) as producer:
        burier = Burier(Sending(producer), WallClock(), route(group, DeadLetter(dead)), "m")
        burials = [
            burier.bury(Given("orders", offset=n, value=b"%d" % n), step) for n in range(LETTERS)
        ]
        await asyncio.gather(*burials)
    return dead


def start(bootstrap: str, dead: str, *more: str) -> subprocess.Popen[str]:
    target = f"{dead.removesuffix('.dead')}.retry"
    words = ["dlq", "redrive", dead, "--confirm", target, "--bootstrap-server", bootstrap, *more]
    return subprocess.Popen(
        [sys.executable, "-m", "sharegroup", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=SECONDS_MAX)
    return process.returncode, out, err


def in_the_middle(bootstrap: str, group: str, dead: str, number: signal.Signals) -> tuple[int, str]:
    """Send a signal to a redrive when a part of the copies is there; its exit code and output."""
    process = start(bootstrap, dead, "--rate", str(RATE), "--no-job")
    try:
        asyncio.run(until_there(bootstrap, f"{group}.retry", 6 * CHUNK))
        process.send_signal(number)
        code, out, _ = ended(process)
    finally:
        process.kill()
    return code, out


def copies(bootstrap: str, group: str) -> list[DecodedRecord]:
    return asyncio.run(lying_in(bootstrap, f"{group}.retry"))


def doubled(records: list[DecodedRecord]) -> list[bytes]:
    """The values that came twice, after it was seen that none is missing."""
    counts = Counter(record.value or b"" for record in records)
    assert counts.keys() == {b"%d" % number for number in range(LETTERS)}
    assert max(counts.values()) <= 2
    return [value for value, count in counts.items() if count == 2]


@pytest.mark.slow
def test_kill_9_loses_no_letter_and_repeats_only_letters_in_flight(
    bootstrap: str, group: str
) -> None:
    dead = asyncio.run(set_up(bootstrap, group))
    in_the_middle(bootstrap, group, dead, signal.SIGKILL)
    before = len(copies(bootstrap, group))
    assert 0 < before < LETTERS
    assert ended(start(bootstrap, dead))[0] == 0
    records = copies(bootstrap, group)
    again = doubled(records)
    assert len(again) <= UNDER_WAY_MAX
    ids: dict[bytes, set[str | None]] = {value: set() for value in again}
    for record in records:
        if record.value in ids:
            ids[record.value].add(story_of(record.headers).redrive_id)
    assert all(len(id_) == 1 for id_ in ids.values()), "a handler can tell a double by its id"
    code, out, _ = ended(start(bootstrap, dead, "--json"))
    assert (code, json.loads(out)["left"]) == (0, {"redriven-before": LETTERS})


@pytest.mark.slow
def test_signal_ends_a_redrive_after_the_letters_in_flight(bootstrap: str, group: str) -> None:
    dead = asyncio.run(set_up(bootstrap, group))
    code, out = in_the_middle(bootstrap, group, dead, signal.SIGINT)
    assert code == 130
    assert "interrupted; run the same command again to continue" in out
    assert len(copies(bootstrap, group)) < LETTERS
    code, out, _ = ended(start(bootstrap, dead, "--json"))
    assert (code, json.loads(out)["interrupted"]) == (0, False)
    assert doubled(copies(bootstrap, group)) == []


@pytest.mark.slow
def test_broker_that_starts_again_is_waited_for(tmp_path: Path) -> None:
    with running(chosen(), tmp_path) as broker:
        dead = asyncio.run(set_up(broker.bootstrap_servers, "billing"))
        process = start(broker.bootstrap_servers, dead, "--rate", str(RATE))
        try:
            asyncio.run(until_there(broker.bootstrap_servers, "billing.retry", CHUNK))
            broker.kill()
            broker.start()
            code, _, err = ended(process)
        finally:
            process.kill()
        assert (code, err) == (0, "")
        assert doubled(copies(broker.bootstrap_servers, "billing")) == []


@pytest.mark.slow
def test_redrive_ends_with_a_report_if_the_broker_does_not_return(tmp_path: Path) -> None:
    with running(chosen(), tmp_path) as broker:
        dead = asyncio.run(set_up(broker.bootstrap_servers, "billing"))
        process = start(broker.bootstrap_servers, dead, "--rate", str(RATE), "--timeout", "3000")
        try:
            asyncio.run(until_there(broker.bootstrap_servers, "billing.retry", CHUNK))
            broker.kill()
            code, _, err = ended(process)
        finally:
            process.kill()
        assert code == 1
        assert "processed; sharegroup jobs resume" in err
        assert "no response from" in err
        broker.start()
        assert ended(start(broker.bootstrap_servers, dead))[0] == 0
        assert len(doubled(copies(broker.bootstrap_servers, "billing"))) <= UNDER_WAY_MAX


@pytest.mark.slow
def test_copy_that_the_topic_refuses_is_not_remembered_as_sent(bootstrap: str, group: str) -> None:
    dead, step = f"{group}.dead", failed(NoAnswer("late"))
    values = [b"first", b"x" * 20_000, b"last"]

    async def give_room() -> None:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            topic = ConfigResource(ResourceType.TOPIC, f"{group}.retry")
            changes = {topic: [AlterConfig("max.message.bytes", "1000000")]}
            assert await admin.incremental_alter_configs(changes) == {topic: None}

    async def arrange() -> None:
        await make_topics(bootstrap, dead)
        await make_topics(bootstrap, f"{group}.retry", max_message_bytes="10000")
        given = [Given("orders", offset=n, value=value) for n, value in enumerate(values)]
        await bury(bootstrap, dead, group, *((record, step) for record in given))

    asyncio.run(arrange())
    code, out, err = ended(start(bootstrap, dead, "--rate", "10"))
    assert (code, "MessageTooLarge" in out) == (1, True), err
    asyncio.run(give_room())
    assert ended(start(bootstrap, dead))[0] == 0
    assert {record.value for record in copies(bootstrap, group)} == set(values)
