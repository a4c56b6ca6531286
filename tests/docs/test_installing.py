"""One way to install sharegroup, that of `sharegroup.installation`, in messages and pages."""

from __future__ import annotations

import re

import pytest

from sharegroup.installation import ON_AN_INDEX, pip_command, pip_install
from tests.docs.installing import ROOT, installing, pages


def test_pages_and_examples_say_it_as_messages_do() -> None:
    texts = {path: path.read_text(errors="replace") for path in pages()}
    assert sum("pip install" in text for text in texts.values()) > 20
    wrong = [path for path, text in texts.items() if installing(text) != text]
    assert wrong == [], "run `python -m tests.docs.installing`"


def test_no_message_says_it_in_its_own_words() -> None:
    own = re.compile(r"pip install '?(?:sharegroup|\.)[\['\s]")
    sources = [path for path in (ROOT / "src").rglob("*.py") if path.name != "installation.py"]
    assert [path for path in sources if own.search(path.read_text())] == []


@pytest.mark.parametrize(
    ("checkout", "index"),
    [
        ("pip install '.[worker]'", "pip install 'sharegroup[worker]'"),
        ("pip install .\n", "pip install sharegroup\n"),
        ("pip install '.[spark,java]' duckdb", "pip install 'sharegroup[spark,java]' duckdb"),
        ("`pip install . pytest`", "`pip install sharegroup pytest`"),
        ("pip install --quiet '.[tls]'", "pip install --quiet 'sharegroup[tls]'"),
    ],
)
def test_commands_change_when_it_is_on_an_index(checkout: str, index: str) -> None:
    assert installing(index, on_an_index=False) == checkout
    assert installing(checkout, on_an_index=True) == index


@pytest.mark.parametrize(
    "other",
    ["pip install ./wheel.whl", "pip install sharegroup-tools", "pip install 'pyspark[connect]'"],
)
def test_other_packages_stay(other: str) -> None:
    assert installing(other, on_an_index=False) == installing(other, on_an_index=True) == other


def test_a_message_says_where_the_command_works() -> None:
    assert not ON_AN_INDEX
    assert pip_command("spark", "java", also="duckdb") == "pip install '.[spark,java]' duckdb"
    assert pip_command() == "pip install ."
    assert pip_install("tls") == "pip install '.[tls]' (in a checkout of sharegroup)"


def test_the_extras_that_are_named_exist() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    named = set()
    for path in [*pages(), *(ROOT / "src").rglob("*.py")]:
        text = path.read_text(errors="replace")
        for extras in re.findall(r"pip install '(?:sharegroup|\.)\[([a-z,]+)\]'", text):
            named |= set(extras.split(","))
        for extras in re.findall(r"pip_install\(([^)]*)\)", text):
            named |= set(re.findall(r"['\"](\w+)['\"]", extras))
    assert {"tls", "worker", "spark", "java"} <= named
    assert [
        extra for extra in named if not re.search(rf"^{extra} = \[", project, re.MULTILINE)
    ] == []
