"""How fast dead letters go back: ``sharegroup dlq redrive`` on a broker of its own.

    python -m tests.bench.redrive [--letters N] [--attempts N] [--rounds N]

A broker process holds N letters as a worker writes them: 100 bytes of JSON, a key, two headers of
the application, a story of so many attempts, a traceback.  Each round is one run of the
whole command, from the start of its process to the last entry of the ledger.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sharegroup.client import AdminClient, Producer
from sharegroup.client.admin.types import NewTopic
from sharegroup.dead_letters.reasons import DeadLetterReason
from sharegroup.dead_letters.story import Attempt, Story
from sharegroup.worker.dead_letters import Buried, letter_headers
from sharegroup.worker.decisions.decide import Bury
from tests.integration.worker.dead import Given, NoAnswer
from tests.support.processes import ServeProcess

DEAD = "orders.dead"
GROUP = "billing"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--letters", type=int, default=200_000)
    parser.add_argument("--attempts", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="sharegroup-redrive-") as folder,
        ServeProcess(Path(folder) / "data") as broker,
    ):
        asyncio.run(fill(broker.bootstrap_servers, options.letters, options.attempts))
        for _ in range(options.rounds):
            print(measured(broker, options.letters))


def measured(broker: ServeProcess, letters: int) -> str:
    """One run of the command: records by second, and CPU time of both sides for each."""
    used, brokers, began = children_seconds(), broker.cpu_seconds(), time.perf_counter()
    words = [
        "dlq",
        "redrive",
        DEAD,
        "--again",
        "--confirm",
        f"{GROUP}.retry",
        "--json",
        "--bootstrap-server",
        broker.bootstrap_servers,
    ]
    printed = subprocess.run(
        [sys.executable, "-m", "sharegroup", *words], check=True, capture_output=True
    ).stdout
    took = time.perf_counter() - began
    assert json.loads(printed)["sent"] == {f"{GROUP}.retry": letters}, printed
    each = 1e6 * (children_seconds() - used) / letters
    theirs = 1e6 * (broker.cpu_seconds() - brokers) / letters
    return (
        f"redrive: {letters / took:,.0f} records/s; CPU of each {each:.1f} us, broker {theirs:.1f}"
    )


def children_seconds() -> float:
    """CPU time of all processes that ended and were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def fill(bootstrap: str, letters: int, attempts: int) -> None:
    """Write the letters, as fast as they can be."""
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        made = await admin.create_topics(
            [NewTopic(DEAD, num_partitions=4), NewTopic(f"{GROUP}.retry", num_partitions=4)]
        )
        assert set(made.values()) == {None}
    tried = tuple(
        Attempt(number, 1_700_000_000_000 + number, "builtins.TimeoutError", "no answer in 3 s",
                "worker-1-6f1c2f52") for number in range(1, attempts + 1)
    )  # fmt: skip
    step = Bury(
        Story(failures=attempts, attempts=tried), DeadLetterReason.ATTEMPTS_EXHAUSTED, raised()
    )
    by = Buried(GROUP, "bill", "worker-1-6f1c2f52")
    value = b'{"order":12345678,"customer":"c-1234","total":99.5,"country":"DE","text":"%s"}' % (
        b"x" * 20
    )
    given = Given("orders", headers=[("trace", b"0af7651916cd43dd"), ("source", b"web")])
    now_ms = time.time_ns() // 1_000_000
    every = letter_headers(given, step, by, now_ms=now_ms, shrunk=False)
    async with Producer(bootstrap_servers=bootstrap, compression="zstd") as producer:
        for number in range(letters):
            await producer.send(DEAD, value, key=b"c-%d" % (number % 1000), headers=every)


def raised() -> BaseException:
    try:
        raise NoAnswer("no answer in 3 s")  # noqa: TRY301  For its traceback.
    except NoAnswer as error:
        return error


if __name__ == "__main__":
    main()
