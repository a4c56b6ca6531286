"""Dead letters that can't be written, because there is no such topic: on either broker.

Both get brokers of their own here, which make no topic because somebody writes to it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroup.worker import App, DeadLetter, Reject
from sharegroup.worker.events import Event
from tests.integration.worker.conftest import SETTINGS
from tests.integration.worker.dead import lying_in, make_topics, set_group
from tests.integration.worker.test_running import SECONDS_MAX, named, send, until
from tests.support.kafka_peer import KafkaPeer
from tests.support.processes import ServeProcess

STRICT = {**SETTINGS, "auto.create.topics.enable": "false"}
LOCK_MS = "1000"


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a broker listens that makes no topics unasked."""
    folder: Path = tmp_path_factory.mktemp("strict")
    if os.environ.get("SHAREGROUP_INTEROP") == "kafka":
        with KafkaPeer(folder, STRICT) as kafka:
            yield kafka.bootstrap_servers
    else:
        with ServeProcess(folder / "data", settings=STRICT) as process:
            yield process.bootstrap_servers


async def blocked_and_mended(bootstrap: str, group: str, topic: str, dead: str) -> None:
    await make_topics(bootstrap, topic, f"{group}.retry")
    await set_group(
        bootstrap, group,
        share_auto_offset_reset="earliest", share_record_lock_duration_ms=LOCK_MS,
        share_isolation_level="read_committed",
    )  # fmt: skip
    app = App("blocked", bootstrap_servers=bootstrap, prepare=False)
    events, runs = list[Event](), list[str]()
    app.on("*", events.append)

    @app.share_group(group, topics=topic, retry=None, dead_letter=DeadLetter(dead))
    async def bill(order: str) -> None:
        runs.append(order)
        if order == "bad":
            raise Reject("no")

    async with app:
        await send(bootstrap, topic, b"bad")
        await until(lambda: named(events, "outbox.blocked"))
        await send(bootstrap, topic, b"good")
        await until(lambda: len(named(events, "record.succeeded")) == 1)
        assert app.worker is not None
        assert app.worker.state.groups[0].blocked_writes == 1
        assert named(events, "record.dead_lettered") == []
        await make_topics(bootstrap, dead)
        await until(lambda: named(events, "record.dead_lettered"))
        assert named(events, "outbox.unblocked")
    assert runs == ["bad", "good"]  # Its lock was kept, many times as long as one lives.
    assert [letter.value for letter in await lying_in(bootstrap, dead)] == [b"bad"]


@pytest.mark.slow
def test_unwritable_dead_letter_keeps_its_lock_and_blocks_no_other_record(
    strict: str, group: str, topic: str
) -> None:
    work = blocked_and_mended(strict, group, topic, f"{group}.dead")
    asyncio.run(asyncio.wait_for(work, 2 * SECONDS_MAX))
