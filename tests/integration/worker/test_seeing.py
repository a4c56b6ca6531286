"""What is seen of queues from outside, on either broker."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from sharegroup.client import AdminClient, Producer
from sharegroup.worker import App, Record, Retry
from sharegroup.worker.infrastructure import prepare
from sharegroup.worker.ports import RealTimeClock
from sharegroup.worker.telemetry.lag import GroupBacklog
from tests.integration.worker.processes import WorkerProcess
from tests.integration.worker.test_life import send
from tests.support.limits import HANGING_SECONDS

WAIT_SECONDS_MAX = HANGING_SECONDS


def test_lag_and_retries_that_wait_are_counted_and_unknown_is_not_zero(
    bootstrap: str, group: str, topic: str
) -> None:
    async def work() -> None:
        failed = asyncio.Event()
        app = App(group, bootstrap_servers=bootstrap, grace="1s")

        @app.share_group(group, topics=topic, retry=Retry(initial_delay="1h"))
        async def handle(text: str, record: Record) -> None:
            failed.set()
            raise TimeoutError(text)

        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            waiting = GroupBacklog(admin, RealTimeClock(), (group,))
            await waiting.ask()
            assert (waiting.lag, waiting.in_tiers) == ({}, {})

            await prepare(app, admin)
            async with app:
                await handle.send("a")
                async with asyncio.timeout(WAIT_SECONDS_MAX):
                    await failed.wait()
                    while waiting.in_tiers != {group: 1}:
                        await waiting.ask()
                    while waiting.lag.get((group, topic)) != 0:
                        await waiting.ask()
            async with Producer(bootstrap_servers=bootstrap) as producer:
                for _ in range(3):
                    await producer.send_and_wait(topic, b"b")
            await waiting.ask()
            assert waiting.lag[group, topic] == 3
            assert waiting.in_tiers == {group: 1}

    asyncio.run(work())


def test_unreachable_cluster_makes_the_backlog_unknown(group: str) -> None:
    async def work() -> None:
        async with AdminClient(bootstrap_servers="127.0.0.1:1", default_api_timeout_ms=50) as admin:
            waiting = GroupBacklog(admin, RealTimeClock(), (group,))
            waiting.lag, waiting.in_tiers = {(group, "orders"): 1}, {group: 1}
            await waiting.ask()
            assert (waiting.lag, waiting.in_tiers) == ({}, {})

    asyncio.run(work())


PROGRAM = """
app = App("{group}", bootstrap_servers="{bootstrap}", grace="1s")

@app.share_group("{group}", topics="{topic}", retry=None, dead_letter=None)
def work(text: str) -> None:
    note(text)
    os.kill(os.getpid(), 15)

if __name__ == "__main__":
    raise SystemExit(app.run())
"""


def test_custom_program_can_run_an_application(
    bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    text = PROGRAM.format(group=group, bootstrap=bootstrap, topic=topic)
    worker = WorkerProcess(tmp_path, text)
    send(bootstrap, topic, ["a"])
    done = subprocess.run(
        [sys.executable, worker.source],
        env=worker.environment,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr
    assert worker.noted() == ["a"]
    ready, stopped = done.stdout.splitlines()
    assert ready.startswith(f"ready app={group} pid=")
    assert stopped.startswith(f"stopped app={group} ")
    assert "event=worker.started" in done.stderr
