"""A record's lock, as a handler in a thread or in a process sees it, on either broker."""

from __future__ import annotations

from typing import Any

import pytest

from sharegroup.worker import App, Call, Proceed
from tests.integration.worker import handlers
from tests.integration.worker.test_running import SHORT_LOCK, app_of, run, send, until

WHERE = pytest.mark.parametrize("processes", [0, 1], ids=["thread", "process"])


def results_of(app: App) -> list[tuple[float, float, float]]:
    """What the handlers return."""
    found: list[tuple[float, float, float]] = []

    @app.middleware
    async def keep(call: Call, proceed: Proceed) -> Any:
        found.append(await proceed(call))

    return found


def looked(
    bootstrap: str, group: str, topic: str, value: bytes, **options: Any
) -> tuple[float, float, float]:
    """What the handler saw: its deadline, the one after that, and what was left then."""

    async def test(bootstrap: str, group: str, topic: str) -> None:
        app.share_group(group, topics=topic, handler=handlers.look_at_lock, **options)
        async with app:
            await send(bootstrap, topic, value)
            await until(lambda: found)

    app, _ = app_of(bootstrap)
    found = results_of(app)
    run(test)(bootstrap, group, topic)
    return found[0]


@WHERE
def test_deadline_advances_while_the_worker_renews_the_lock(
    bootstrap: str, group: str, topic: str, processes: int
) -> None:
    first, then, left = looked(
        bootstrap, group, topic, b"wait", processes=processes, group_configs=SHORT_LOCK
    )
    assert first < then
    assert 0 < left <= 1


@WHERE
def test_handler_can_renew_its_lock(bootstrap: str, group: str, topic: str, processes: int) -> None:
    first, then, left = looked(bootstrap, group, topic, b"renew", processes=processes)
    assert first < then
    assert 20 < left <= 30
