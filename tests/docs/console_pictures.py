"""Writes docs/console/*.png: each screen of the console, on a desk and on a phone in the dark.

make console-pictures
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support.browser import browser, missing
from tests.support.console_scene import Scene, shop

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "console"
SCREENS = {
    "overview": "/",
    "share-groups": "/groups",
    "share-group": "/group?id=billing",
    "dead-letters": "/letters",
    "letters": "/letters?topic=dlq.orders",
    "letter": "/letter?topic=dlq.orders&partition=0&offset=0",
    "jobs": "/jobs",
    "records": "/records?topic=orders",
    "record": "/record?topic=orders&partition=0&offset=3",
    "topics": "/topics",
    "topic": "/topic?name=orders",
    "consumer-groups": "/consumer-groups",
    "consumer-group": "/group?id=warehouse",
    "brokers": "/brokers",
}
LOOKS = {
    "light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "dark-phone": {"viewport": {"width": 390, "height": 800}, "color_scheme": "dark"},
}
HISTORY_SECONDS = 30.0
"""How long the shop works before the pictures, so that lines have a shape."""


def main() -> int:
    """Write the pictures; return the exit code."""
    if (reason := missing()) is not None:
        print(f"expected a browser: {reason}", file=sys.stderr)
        return 1
    FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        shop(Path(folder)) as scene,
        browser() as chromium,
    ):
        _work(scene, chromium.new_page())
        for look, options in LOOKS.items():
            page = chromium.new_context(**options, locale="en-GB", timezone_id="UTC").new_page()
            for name, path in SCREENS.items():
                page.goto(scene.url + path)
                page.wait_for_timeout(1_500)  # The first live values.
                page.screenshot(path=str(FOLDER / f"{name}-{look}.png"), full_page=True)
    return 0


def _work(scene: Scene, page: Any) -> None:
    """Let the shop work while a page looks, so that each second is a point of its history."""
    page.goto(scene.url)
    end = time.monotonic() + HISTORY_SECONDS
    step = 0
    while time.monotonic() < end:
        scene.produce("orders", 40 + 35 * (step % 5))
        scene.work()
        page.wait_for_timeout(700)
        step += 1


if __name__ == "__main__":
    raise SystemExit(main())
