"""``--reload``: new code runs as soon as its file is saved, and wrong code ends nothing."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.integration.worker.processes import WorkerProcess
from tests.integration.worker.test_life import send

APP = """
app = App("{group}", bootstrap_servers="{bootstrap}", grace="1s")

@app.share_group("{group}", topics="{topic}")
async def work(text: str) -> None:
    note("{word} " + text)
"""


@pytest.mark.slow
def test_a_change_restarts_the_worker_and_a_syntax_error_waits_for_the_next_one(
    bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    def application(word: str) -> str:
        return APP.format(bootstrap=bootstrap, group=group, topic=topic, word=word)

    with WorkerProcess(tmp_path, application("first"), "--reload") as worker:
        worker.wait_ready()
        send(bootstrap, topic, ["a"])
        worker.wait_noted("first a")

        worker.write("this is no Python\n")
        worker.wait_until(lambda: "ended code=1" in worker.printed(), "the end of wrong code")
        assert "SyntaxError" in worker.log.read_text()
        assert "reloading changed=shop.py" in worker.printed()

        worker.write(application("second"))
        worker.wait_ready(count=2)
        send(bootstrap, topic, ["b"])
        worker.wait_noted("second b")

        # Ctrl-C goes to the watcher and to the worker; it is the watcher that passes it on.
        worker.signal(signal.SIGINT)
        assert worker.wait() == 0
        assert worker.printed().splitlines()[-1].startswith(f"stopped app={group} ")


@pytest.mark.slow
def test_worker_whose_watcher_was_killed_stops(
    bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    text = APP.format(bootstrap=bootstrap, group=group, topic=topic, word="only")
    with WorkerProcess(tmp_path, text, "--reload") as worker:
        pid = int(worker.wait_ready()["pid"])
        assert pid != worker.pid
        worker.signal(signal.SIGKILL)
        worker.wait()
    folder = tmp_path / "run" / "sharegroup"
    worker.wait_gone(lambda: not any(folder.iterdir()), f"the end of {pid}")
    assert "stopped " in worker.printed()
