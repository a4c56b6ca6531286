"""The command line as a whole: verbs, exit codes, and what `--help` must not load."""

from __future__ import annotations

import subprocess
import sys

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
    printed = capsys.readouterr().out
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
