"""Runs a test inside of ``app.test()``, with an event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from sharegroup.worker import App
from sharegroup.worker.testing.app_test import AppTest


def run(app: App, test: Callable[[AppTest], Awaitable[None]], **settings: Any) -> None:
    """Run an application in virtual time, with these settings of `App.test`, and a test in it."""

    async def inside() -> None:
        async with app.test(**settings) as t:
            await test(t)

    asyncio.run(inside())
