"""docs/kafka-tools.md, word for word: its commands print what it says, on a broker of their own."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from sharegroup.broker.configuration.authorizer_settings import STANDARD_AUTHORIZER
from tests.interop.transcripts import Terminal
from tests.support.chosen_broker import LONG_WITH_A_JVM
from tests.support.kafka_tools import SCRIPTS, why_missing, write_scripts
from tests.support.processes import ServeProcess

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "kafka-tools.md").read_text()
WITH_ACLS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
"""The settings that the page gives for its section on ACLs; they change nothing in the others."""

needs_tools = pytest.mark.skipif(why_missing() is not None, reason=str(why_missing()))


def test_page_shows_every_script_that_is_made() -> None:
    shown = set(re.findall(r"(kafka-[a-z-]+)\.sh", PAGE))
    assert sorted(set(SCRIPTS) - shown) == ["kafka-broker-api-versions"]
    assert sorted(shown - set(SCRIPTS)) == []


@pytest.mark.kafka
@needs_tools
@LONG_WITH_A_JVM
def test_commands_of_the_page_work_as_documented(tmp_path: Path) -> None:
    with ServeProcess(tmp_path / "serve", settings=WITH_ACLS) as broker:
        folder = tmp_path / "here"
        folder.mkdir()
        Terminal(broker.bootstrap_servers, folder, is_kafka=False).play(PAGE)


@pytest.mark.kafka
@needs_tools
def test_scripts_run_the_tools(tmp_path: Path) -> None:
    write_scripts(tmp_path)
    command = [str(tmp_path / "kafka-topics.sh"), "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert re.fullmatch(r"4\.\d+\.\d+\S*\n", done.stdout)
