"""A record's lock, as a handler in a process of its own sees it, on either broker."""

from __future__ import annotations

from typing import Any

from sharegroup.worker import App, Call, Proceed
from tests.worker import handlers
from tests.worker.test_running import SHORT_LOCK, app_of, run, send, until


def results_of(app: App) -> list[tuple[float, float, float]]:
    """What the handlers return."""
    found: list[tuple[float, float, float]] = []

    @app.middleware
    async def keep(call: Call, proceed: Proceed) -> Any:
        found.append(await proceed(call))

    return found


@run
async def test_its_deadline_moves_while_the_worker_renews_it(
    bootstrap: str, group: str, topic: str
) -> None:
    app, _ = app_of(bootstrap)
    found = results_of(app)
    app.share_group(
        group, topics=topic, handler=handlers.look_at_lock, processes=1, group_configs=SHORT_LOCK
    )
    async with app:
        await send(bootstrap, topic, b"wait")
        await until(lambda: found)
    ((first, then, left),) = found
    assert first < then
    assert 0 < left <= 1


@run
async def test_it_is_renewed_when_the_handler_asks(bootstrap: str, group: str, topic: str) -> None:
    app, _ = app_of(bootstrap)
    found = results_of(app)
    app.share_group(group, topics=topic, handler=handlers.look_at_lock, processes=1)
    async with app:
        await send(bootstrap, topic, b"renew")
        await until(lambda: found)
    ((first, then, left),) = found
    assert first < then
    assert 20 < left <= 30
