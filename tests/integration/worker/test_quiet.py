"""A quiet worker keeps what its handlers are at, and nothing else: others get the rest.

Each test is two applications in this process, on either broker (`conftest`).
"""

from __future__ import annotations

import asyncio

import pytest

from sharegroup.worker import App, Record, Retry
from tests.integration.worker.test_running import app_of, run, send, until


def quieted(app: App) -> None:
    assert app.worker is not None
    app.worker.quiet()
    assert str(app.worker.state.phase) == "quiet"


@pytest.mark.slow
@run
async def test_held_retries_of_a_quiet_worker_are_done_by_others(
    bootstrap: str, group: str, topic: str
) -> None:
    quiet, events = app_of(bootstrap)
    other, _ = app_of(bootstrap)
    begun, failing, retried = asyncio.Event(), asyncio.Event(), list[tuple[str, int]]()

    async def fail(value: str, record: Record) -> None:
        if value == "late":
            begun.set()
            await failing.wait()
        raise TimeoutError

    async def work(value: str, record: Record) -> None:
        retried.append((value, record.attempt))

    soon = Retry(initial_delay="3s", jitter=0)
    quiet.share_group(group, topics=topic, retry=soon, handler=fail)
    other.share_group(group, topics=topic, retry=soon, name="fail", handler=work)
    async with quiet:
        await send(bootstrap, topic, b"held", b"late")
        await until(lambda: any(event.name == "record.held" for event in events))
        await begun.wait()
        quieted(quiet)
        failing.set()  # This one fails while its worker is quiet.
        async with other:
            await until(lambda: len(retried) == 2)
        assert quiet.worker is not None
        assert quiet.worker.state.groups[0].held == 0
        quiet.worker.resume()
        await send(bootstrap, topic, b"again")
        await until(lambda: sum(event.name == "record.held" for event in events) == 2)
    assert sorted(retried) == [("held", 2), ("late", 2)]


@run
async def test_records_waiting_for_their_key_are_redelivered_to_others(
    bootstrap: str, group: str, topic: str
) -> None:
    quiet, _ = app_of(bootstrap)
    other, _ = app_of(bootstrap)
    go_on, ended, others = asyncio.Event(), list[str](), list[str]()

    async def hang(value: str) -> None:
        await go_on.wait()
        ended.append(value)

    async def work(value: str) -> None:
        others.append(value)

    quiet.share_group(group, topics=topic, order_by="key", handler=hang)
    other.share_group(group, topics=topic, order_by="key", name="hang", handler=work)
    async with quiet:
        await send(bootstrap, topic, b"1", b"2", b"3", key=b"customer")
        worker = quiet.worker
        assert worker is not None
        await until(lambda: worker.state.groups[0].waiting == 2)
        quieted(quiet)
        async with other:
            await until(lambda: len(others) == 2)
            go_on.set()
            await until(lambda: ended)
        worker.resume()
        await send(bootstrap, topic, b"4", b"5", key=b"customer")
        await until(lambda: len(ended) == 3)
        report = await quiet.stop()
        assert report is not None
        assert dict(report.released) == {}  # What went back before it took records again is past.
    assert (others, ended) == (["2", "3"], ["1", "4", "5"])
