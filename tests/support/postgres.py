"""A PostgreSQL server as a process, for the tests that write to one.

It needs the server's programs (Debian: ``apt-get install postgresql``).  The server refuses to run
as root, so root starts it as the user ``postgres``.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_SECONDS_MAX = 60
USER = "postgres"
DEBIAN = Path("/usr/lib/postgresql")


def programs() -> Path | None:
    """Return the folder with ``initdb`` and ``postgres``, or None."""
    found = shutil.which("initdb")
    # Debian keeps them out of PATH, by version.
    folders = [Path(found).parent] if found else DEBIAN.glob("*/bin")
    names = ("initdb", "pg_ctl", "postgres")
    usable = [path for path in folders if all((path / name).exists() for name in names)]
    return max(usable, default=None)


def why_missing() -> str | None:
    """Return why no server can run here, or None if one can."""
    if programs() is None:
        return "no PostgreSQL server is installed (Debian: apt-get install postgresql)"
    if os.geteuid() == 0 and not _has_user():
        return f"PostgreSQL does not run as root, and there is no user {USER}"
    return None


@contextmanager
def running() -> Iterator[str]:
    """Run a server, and yield the text that says how to connect to it."""
    # Not in a folder of pytest, which other users cannot enter.
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder, _running(Path(folder)) as place:
        yield place


@contextmanager
def _running(folder: Path) -> Iterator[str]:
    bin_folder = programs()
    assert bin_folder is not None, why_missing()
    port = _free_port()
    log = folder / "log"
    owner = USER if os.geteuid() == 0 else None
    if owner is not None:
        shutil.chown(folder, owner)

    def run(*command: str) -> None:
        done = subprocess.run(
            command,
            user=owner,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=START_SECONDS_MAX,
            check=False,
        )
        found = log.read_text() if log.exists() else ""
        assert done.returncode == 0, f"{command[0]}: {done.stdout}{done.stderr}{found}"

    data = str(folder / "data")
    run(str(bin_folder / "initdb"), "-D", data, "-U", USER, "-A", "trust", "--no-sync")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
    pg_ctl = str(bin_folder / "pg_ctl")
    run(pg_ctl, "-D", data, "-l", str(log), "-o", options, "-w", "start")
    try:
        yield f"host=127.0.0.1 port={port} user={USER} dbname={USER}"
    finally:
        run(pg_ctl, "-D", data, "-m", "immediate", "-w", "stop")


def _has_user() -> bool:
    try:
        pwd.getpwnam(USER)
    except KeyError:
        return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
