"""README's worker, run as a reader does: `sharegroup serve`, `sharegroup worker`, `produce`.

The installed program is used, in a folder of its own and on a free port.
"""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

from tests.packaging.environments import ROOT, Environment, Failed

PYTHON_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
ADDRESS = "127.0.0.1:9092"
ORDER = '{"id": 1, "total": 30}\n'
BILLED = "billed Order(id=1, total=30)"
SECONDS_MAX = 60.0


def worker_source() -> str:
    """Return the block of README.md that declares an application."""
    (source,) = (
        block for block in PYTHON_BLOCK.findall((ROOT / "README.md").read_text()) if "App(" in block
    )
    assert ADDRESS in source
    return str(source)


def run_readme_worker(environment: Environment, folder: Path) -> None:
    """Bill one order with README's worker; raises Failed if it is not billed."""
    program = environment.folder / "bin" / "sharegroup"
    port = _free_port()
    (folder / "orders.py").write_text(worker_source().replace(ADDRESS, f"127.0.0.1:{port}"))
    bootstrap = ["--bootstrap-server", f"127.0.0.1:{port}"]
    serve = [str(program), "serve", "--data", "./queue", "--port", str(port)]
    with (
        _running(serve, folder) as broker,
        _running([str(program), "worker", "orders:app"], folder) as worker,
    ):
        _wait_for(broker, "ready ")
        produced = subprocess.run(
            [str(program), "produce", "orders", *bootstrap],
            cwd=folder,
            input=ORDER,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        if produced.returncode != 0:
            raise Failed(f"sharegroup produce: {produced.stderr}")
        _wait_for(worker, BILLED)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def _running(command: list[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process; its standard error is kept in a file.  It is killed after `SECONDS_MAX`."""
    log = folder / f"{command[1]}.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        alarm = Timer(SECONDS_MAX, process.kill)
        alarm.start()
        try:
            yield process
        except Failed as error:
            raise Failed(f"{error}; {log.name}:\n{log.read_text()[-2000:]}") from error
        finally:
            alarm.cancel()
            process.terminate()


def _wait_for(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    printed = []
    for line in process.stdout:
        if text in line:
            return
        printed.append(line)
    raise Failed(f"expected {text!r} from {process.args}, found {''.join(printed)!r}")
