"""Header names that are not UTF-8 keep their bytes through retries, dead letters and redrives."""

from __future__ import annotations

import asyncio

from sharegroup.client import Producer
from sharegroup.wire.batches.header_names import header_name, name_bytes
from sharegroup.wire.batches.records import DecodedRecord
from sharegroup.worker import App, DeadLetter, Holding, Record, Retry
from tests.integration.worker.collecting import Collected, on_a_loop
from tests.integration.worker.dead import (
    Given,
    NoAnswer,
    bury,
    failed,
    lying_in,
    make_topics,
    until_there,
)
from tests.integration.worker.test_dead_letters import Run, run

__all__ = ["run"]

NAMES = (b"caf\xe9", "café".encode(), b"\xed\xa0\x80", b"\xff")
SHOWN = ["caf\ufffd", "café", "\ufffd", "\ufffd"]
HEADERS = tuple((header_name(name), b"%d" % number) for number, name in enumerate(NAMES))


def own_names(record: DecodedRecord) -> list[bytes]:
    return [name_bytes(name) for name, _ in record.headers if not name.startswith("__")]


@on_a_loop
async def test_retries_and_letters_of_a_worker_have_the_bytes(
    bootstrap: str, group: str, topic: str
) -> None:
    app, runs = App("odd-names", bootstrap_servers=bootstrap, grace="5s"), Collected()
    dead = f"{group}.dead"
    retry = Retry(max_attempts=2, initial_delay="200ms", jitter=0)

    @app.share_group(
        group, topics=topic, retry=retry, retry_tiers=("200ms", "1s"),
        holding=Holding(longest_seconds=0), dead_letter=DeadLetter(dead),
    )  # fmt: skip
    async def fail(value: bytes, record: Record) -> None:
        runs.add("run", [name for name, _ in record.headers])
        raise TimeoutError("again")

    await make_topics(bootstrap, topic)
    async with app:
        async with Producer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait(topic, b"v", headers=HEADERS)
        await until_there(bootstrap, dead, 1)
    assert runs.seen("run") == [(SHOWN,), (SHOWN,)]
    (letter,) = await lying_in(bootstrap, dead)
    assert own_names(letter) == list(NAMES)
    for written in await lying_in(bootstrap, f"{group}.retry"):
        assert own_names(written) == list(NAMES)


def test_redrive_sends_the_bytes(bootstrap: str, group: str, run: Run) -> None:
    dead, target = f"{group}.dead", f"{group}.retry"
    asyncio.run(make_topics(bootstrap, dead, target))
    asyncio.run(
        bury(bootstrap, dead, group, (Given("orders", headers=HEADERS), failed(NoAnswer("x"))))
    )
    row = run(f"export {dead}").rows
    assert [header["name"] for header in row["headers"][: len(NAMES)]] == SHOWN
    assert run(f"redrive {dead} --json --confirm {target}").rows["sent"] == {target: 1}
    (record,) = asyncio.run(lying_in(bootstrap, target))
    assert own_names(record) == list(NAMES)
