"""Writes docs/console/*.png: each screen of the console, on a desk and on a phone in the dark.

make console-pictures

Pictures are as high as a screen that was scrolled once, and have a palette, so they stay small.
"""

from __future__ import annotations

import io
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

from tests.support.browser import browser, missing
from tests.support.console_scene import Scene, console, shop

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "console"
SCREENS = {
    "overview": "/",
    "share-groups": "/groups",
    "share-group": "/group?id=billing",
    "reset-plan": "/reset?group=mailer&to=latest",
    "dead-letters": "/letters",
    "letters": "/letters?topic=dlq.orders",
    "letter": "/letter?topic=dlq.orders&partition=0&offset=0",
    "job-plan": "/plan?kind=redrive&topic=dlq.orders&target=original&where=city+%3D%3D+%22Oslo%22",
    "jobs": "/jobs",
    "records": "/records?topic=orders",
    "record": "/record?topic=orders&partition=0&offset=3",
    "produce": "/produce?topic=orders",
    "topics": "/topics",
    "topic": "/topic?name=orders",
    "consumer-groups": "/consumer-groups",
    "consumer-group": "/group?id=warehouse",
    "transactions": "/transactions",
    "access": "/access",
    "brokers": "/brokers",
}
CITIES = ("Lagos", "Quito", "Hanoi")
"""A job sends back the letters of each of these."""
LOOKS = {
    "light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "dark-phone": {"viewport": {"width": 390, "height": 800}, "color_scheme": "dark"},
}
HEIGHT_MAX = 1_700
COLOURS = 256
HISTORY_SECONDS = 30.0
"""How long the shop works before the pictures, so that lines have a shape."""
TOKEN = "a-token-of-the-pictures"


def main() -> int:
    """Write the pictures; return the exit code."""
    if (reason := missing()) is not None:
        print(f"expected a browser: {reason}", file=sys.stderr)
        return 1
    FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as name,
        shop(Path(name), "--allow-changes") as scene,
        _login(scene, Path(name)) as login,
        browser() as chromium,
    ):
        page = chromium.new_page()
        _work(scene, page, HISTORY_SECONDS)
        job = [_send_back(scene, page, city) for city in CITIES][-1]
        screens = {name: scene.url + path for name, path in SCREENS.items()}
        for look, options in LOOKS.items():
            page = chromium.new_context(**options, locale="en-GB", timezone_id="UTC").new_page()
            for name, address in {**screens, "job": job, "login": login}.items():
                _work(scene, page, 0.5)
                page.goto(address)
                page.wait_for_timeout(1_500)  # The first live values.
                _write(FOLDER / f"{name}-{look}.png", page.screenshot(full_page=True))
    return 0


def _work(scene: Scene, page: Any, seconds: float) -> None:
    """Let the shop work while a page looks, so that each second is a point of its history."""
    page.goto(scene.url)
    end = time.monotonic() + seconds
    step = 0
    while time.monotonic() < end:
        scene.produce("orders", 40 + 35 * (step % 5))
        scene.work()
        page.wait_for_timeout(700)
        step += 1


def _send_back(scene: Scene, page: Any, city: str) -> str:
    """Send back the letters of a city as a user does; return the address of the job."""
    page.goto(f"{scene.url}/letters?topic=dlq.orders")
    page.get_by_label("JSON where").fill(f'city == "{city}"')
    page.get_by_role("button", name="Select").click()
    page.locator("select[name=target]").select_option("original")
    page.get_by_role("button", name="Send back…").click()
    page.get_by_role("button", name="Send back").click()
    page.wait_for_url("**/job?id=*")
    page.wait_for_selector(".state.done")
    return str(page.url)


@contextmanager
def _login(scene: Scene, folder: Path) -> Iterator[str]:
    """Run a console with a login; yield the address of its form."""
    tokens = folder / "tokens"
    tokens.write_text(f"ada:{TOKEN}\n")
    options = ("--token-file", str(tokens), "--history", "none")
    with console(scene.bootstrap_servers, *options, log=folder / "login.log") as url:
        yield f"{url}/login"


def _write(path: Path, png: bytes) -> None:
    """Write a picture with a palette, and cut what is below the screen."""
    with Image.open(io.BytesIO(png)) as picture:
        cut = picture.convert("RGB").crop((0, 0, picture.width, min(picture.height, HEIGHT_MAX)))
        # Exactly the colours of surfaces and legends; those of the edges of letters become alike.
        counted = sorted(cut.getcolors(cut.width * cut.height), reverse=True)
        palette = Image.new("P", (1, 1))
        palette.putpalette([part for _, colour in counted[:COLOURS] for part in colour])
        few = cut.quantize(palette=palette, dither=Image.Dither.NONE)
        few.save(path, optimize=True)


if __name__ == "__main__":
    raise SystemExit(main())
