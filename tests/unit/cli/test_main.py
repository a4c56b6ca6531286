"""The command line as a whole: verbs, exit codes, and what `--help` must not load."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sharegroup import __version__
from sharegroup.cli.main import VERBS, main

HEAVY = ("asyncio", "kio", "aiokafka", "rich", "sharegroup.client", "sharegroup.broker")


def outcome(words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(words.split())
    return int(end.value.code or 0)


def test_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome("--help") == 0
    printed = " ".join(capsys.readouterr().out.split())
    for verb, purpose in VERBS.items():
        assert verb in printed
        assert purpose in printed


@pytest.mark.parametrize("verb", list(VERBS))
def test_help_of_a_verb_begins_as_the_list_of_verbs_says(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(f"{verb} --help") == 0
    first_word = VERBS[verb].split()[0]
    assert first_word in capsys.readouterr().out


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome("--version") == 0
    assert __version__ in capsys.readouterr().out


def test_unknown_verb_is_a_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome("explode") == 2
    assert "No such command 'explode'" in capsys.readouterr().err


def test_help_loads_nothing_that_takes_time() -> None:
    """What keeps `sharegroup --help` under 0.4 s, on every machine alike."""
    program = (
        "import sys\n"
        "from sharegroup.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr == "[]\n"


def test_reader_that_has_enough_ends_it_quietly(bootstrap: str) -> None:
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


def test_command_config_says_where_the_cluster_is(
    bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers: {bootstrap}\nclient.id = me\nsend.buffer.bytes=9\n")
    words = ("groups", "list", "--json", "--command-config", str(file))
    with pytest.raises(SystemExit) as end:
        main(words)
    printed = capsys.readouterr()
    assert not end.value.code
    assert printed.out.startswith("[")
    assert printed.err == "Warning: --command-config: send.buffer.bytes is not used\n"


def test_unusable_command_config_is_a_misuse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=TLS\n")
    with pytest.raises(SystemExit) as end:
        main(["groups", "list", "--command-config", str(file)])
    assert end.value.code == 2
    assert "security_protocol='TLS'" in capsys.readouterr().err


def test_verb_does_without_hypothesis() -> None:
    """kio loads it where it is installed, unless `wire.light_imports` comes first."""
    program = (
        "import sys\n"
        "sys.argv = ['sharegroup', 'topics', '--help']\n"
        "from sharegroup.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([name for name in sys.modules if name.startswith('hypothesis.')], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr == "[]\n"


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
