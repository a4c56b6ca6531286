"""Debian's Chromium, driven by Playwright's Python package.

Neither is installed by `make setup`: `make console-test` and `make console-pictures` add Playwright
to the environment, and Chromium comes from the system.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")

ALL = os.environ.get("CONSOLE") == "all"
"""`make console-test`: every screen and a thousand payloads.  `make test` takes a sample."""
LIMIT_MS = 30_000
"""Time for everything that a test waits for in a page."""


def missing() -> str | None:
    """Return what is missing to drive a browser, and how to get it; None if it is there."""
    if find_spec("playwright") is None:
        return "Playwright's Python package is not installed: make console-test"
    if CHROMIUM is None:
        return "no Chromium is in the PATH: install it, or set CHROMIUM to its path"
    return None


@contextmanager
def browser() -> Iterator[Any]:
    """Run a Chromium, and yield Playwright's `Browser`."""
    # Imported here because `make setup` does not install it.
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # A container's root has no sandbox, and a small /dev/shm.
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        try:
            yield chromium
        finally:
            chromium.close()


class Watched:
    """A page in a context of its own, which notes whatever must not happen in it.

    Errors of scripts and on the console (reports of the content security policy are among them),
    dialogs, requests that fail and requests to other hosts are offences.
    """

    def __init__(self, chromium: Any, **options: Any) -> None:
        self._context = chromium.new_context(**{"locale": "en-GB", **options})
        self.offences: list[str] = []
        self.page = self._context.new_page()
        self.page.set_default_timeout(LIMIT_MS)
        self.page.on("console", self._note_console)
        self.page.on("pageerror", lambda error: self.offences.append(f"error: {error}"))
        self.page.on("dialog", self._note_dialog)

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        self._context.close()

    def open(self, url: str) -> Any:
        """Go to an address, and return Playwright's `Page`."""
        self.page.goto(url, wait_until="load")
        return self.page

    def _note_console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.offences.append(f"{message.type}: {message.text}")

    def _note_dialog(self, dialog: Any) -> None:
        self.offences.append(f"dialog: {dialog.message}")
        dialog.dismiss()
