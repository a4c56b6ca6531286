"""What a worker of many groups logs when it starts: a summary, and details at level DEBUG."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Iterator

import pytest

from sharegroup.worker import App
from sharegroup.worker.telemetry import logs
from tests.support.limits import HANGING_SECONDS

GROUPS = 3
TOPICS = GROUPS * (1 + 8 + 1)
"""Its own, those for retries and that for dead letters of each group."""


@pytest.fixture
def restored_loggers() -> Iterator[None]:
    """The loggers as they were: a worker's program configures them for its whole process."""
    loggers = [logging.getLogger(name) for name in (None, *logs.TALKATIVE, *logs.DETAILED)]
    before = [(logger, logger.handlers[:], logger.level) for logger in loggers]
    yield
    for logger, handlers, level in before:
        logger.handlers[:] = handlers
        logger.setLevel(level)


@pytest.mark.parametrize(("level", "details"), [("info", 0), ("debug", TOPICS)])
def test_start_of_many_groups_is_a_summary_with_details_at_debug(
    bootstrap: str, group: str, restored_loggers: None, level: str, details: int
) -> None:
    app, stream = App("many", bootstrap_servers=bootstrap), io.StringIO()
    for number in range(GROUPS):

        @app.share_group(f"{group}{number}", topics=f"{group}.topic{number}")
        async def handle(order: dict[str, int]) -> None: ...

    async def start_until_all_is_owned() -> None:
        async with app, asyncio.timeout(HANGING_SECONDS):
            assert app.worker is not None
            # Each group has eight retry topics of two partitions.
            while not all(len(part.snapshot()) == 14 for part in app.worker.schedulers):
                await asyncio.sleep(0.01)

    logs.configure(level, "text", stream)
    asyncio.run(start_until_all_is_owned())
    lines = stream.getvalue().splitlines()
    created = [line for line in lines if "event=infrastructure.created topic=" in line]
    assert len(created) == details
    (summary,) = [line for line in lines if "event=infrastructure.prepared" in line]
    assert f"app=many topics_created={TOPICS} settings_made=" in summary
    if level == "info":
        assert len(lines) <= 10, lines
