"""Documents agree with the code: generated ones are current, links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sharegroup.worker
from sharegroup.broker.dispatch import MODULES
from sharegroup.wire.apis import APIS
from tests.write_docs import DOCS, documents
from tests.write_reference import SECTIONS

ROOT = DOCS.parent
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize(
    "name", ["config.md", "protocol.md", "cli.md", "metrics.md", "worker-reference.md"]
)
def test_generated_document_is_current(name: str) -> None:
    assert (DOCS / name).read_text() == documents()[name], "run: python -m tests.write_docs"


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    targets = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []


def test_every_name_of_the_worker_is_in_its_reference() -> None:
    assert {name for names in SECTIONS.values() for name in names if "." not in name} == set(
        sharegroup.worker.__all__
    )


def test_every_api_has_a_handler_and_the_other_way_round() -> None:
    assert set(MODULES) == set(APIS)
    handlers = ROOT / "src" / "sharegroup" / "broker" / "handlers"
    files = {path.stem for path in handlers.glob("*.py")} - {"__init__"}
    assert files == set(MODULES.values())


def test_readme_is_short_enough_to_be_read() -> None:
    assert (ROOT / "README.md").read_text().count("\n") <= 150
