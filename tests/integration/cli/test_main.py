"""The command line in a process of its own, and against a broker: pipes, files, the address."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sharegroup.cli.main import main


def test_closed_output_pipe_ends_the_command_quietly(bootstrap: str) -> None:
    """``sharegroup ... | head -0`` must not print a traceback."""
    read, write = os.pipe()
    os.close(read)
    words = ["topics", "list", "--internal", "--json", "--bootstrap", bootstrap]
    done = subprocess.run(
        [sys.executable, "-m", "sharegroup", *words],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_command_config_provides_the_bootstrap_servers(
    bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers: {bootstrap}\nclient.id = me\nmetrics.num.samples=9\n")
    words = ("groups", "list", "--json", "--command-config", str(file))
    with pytest.raises(SystemExit) as end:
        main(words)
    printed = capsys.readouterr()
    assert not end.value.code
    assert printed.out.startswith("[")
    assert printed.err == "Warning: --command-config: metrics.num.samples is ignored\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("closed", "code", "said"),
    [
        ("logs . >&-", 1, "sharegroup: OSError: [Errno 9] Bad file descriptor\n"),
        ("logs . --json <&- >&-", 1, "sharegroup: OSError: [Errno 9] Bad file descriptor\n"),
        ("logs . 2>&-", 0, ""),
        (
            "produce orders --bootstrap 127.0.0.1:9 <&-",
            1,
            "sharegroup: OSError: [Errno 9] Bad file descriptor\n",
        ),
    ],
)
def test_closed_standard_file_fails_as_any_other_and_no_socket_takes_its_place(
    closed: str, code: int, said: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        ["sh", "-c", f"exec '{sys.executable}' -m sharegroup {closed}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (code, said)
