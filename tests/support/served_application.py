"""An ASGI application in a process of its own, served by uvicorn with its own settings."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.support.limits import HANGING_SECONDS

SERVING = re.compile(r"Uvicorn running on (http://\S+)")


@dataclass(slots=True)
class Served:
    """An application while uvicorn serves it."""

    url: str
    process: subprocess.Popen[str]

    def browser(self, user: str = "") -> httpx.Client:
        """Return a browser of a user of the application."""
        headers = {"x-user": user} if user else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=HANGING_SECONDS)


@contextmanager
def served(folder: Path, text: str) -> Iterator[Served]:
    """Run the application ``app`` of this text; ``log`` in the folder has what it prints."""
    (folder / "shop.py").write_text(text)
    command = [sys.executable, "-m", "uvicorn", "shop:app", "--port", "0", "--app-dir", str(folder)]
    with (
        (folder / "log").open("w+") as log,
        subprocess.Popen(command, stdout=log, stderr=subprocess.PIPE, text=True) as process,
    ):
        try:
            assert process.stderr is not None
            lines = []
            for line in process.stderr:
                lines.append(line)
                if (found := SERVING.search(line)) is not None:
                    break
            else:
                raise AssertionError("".join(lines))
            yield Served(found[1], process)
        finally:
            process.kill()
