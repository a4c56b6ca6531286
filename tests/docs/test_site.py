"""The site of `make docs`: builds without a warning and a network, and has the whole reference."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path

import pytest

from tests.docs.write_docs import DOCS
from tests.support.limits import HANGING_SECONDS

pytest.importorskip("mkdocs", reason="needs the extra docs")
pytest.importorskip("mkdocstrings", reason="needs the extra docs")

ROOT = DOCS.parent
CHROMIUM = shutil.which("chromium")
NO_NETWORK = "http://127.0.0.1:9"
"""A proxy that is not there."""
IN_THE_REFERENCE = ("client", "client.sync", "spark", "testing")
LOADS = {"audio", "embed", "iframe", "img", "link", "object", "script", "source", "video"}
"""The elements that make a browser load something; a link of `a` is only followed by a reader."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={
            **os.environ,
            "HTTP_PROXY": NO_NETWORK,
            "HTTPS_PROXY": NO_NETWORK,
            "NO_MKDOCS_2_WARNING": "1",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


class Loaded(HTMLParser):
    """Collects what a page makes a browser load."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in LOADS:
            self.addresses += [
                value for name, value in attrs if name in ("src", "href", "data") and value
            ]


def loaded(site: Path) -> Iterator[str]:
    for page in site.rglob("*.html"):
        parser = Loaded()
        parser.feed(page.read_text())
        yield from parser.addresses
    for sheet in site.rglob("*.css"):
        yield from re.findall(r"(?:url\(|@import )['\"]?([^'\")\s]+)", sheet.read_text())


@pytest.mark.slow
def test_pages_load_nothing_from_another_host(site: Path) -> None:
    addresses = list(loaded(site))
    assert len(addresses) > 100
    assert [address for address in addresses if re.match(r"(https?:)?//", address)] == []
    # The theme's script loads a drawing library from another host for these blocks alone.
    assert [page for page in site.rglob("*.html") if 'class="mermaid"' in page.read_text()] == []


def documented(site: Path) -> set[str]:
    """The last parts of the names that the site describes, from its inventory."""
    inventory = (site / "objects.inv").read_bytes()
    lines = zlib.decompress(inventory.split(b"zlib.\n", 1)[1]).decode().splitlines()
    return {line.split(" ")[0].rpartition(".")[2] for line in lines}


@pytest.mark.slow
@pytest.mark.parametrize("package", IN_THE_REFERENCE)
def test_reference_has_every_public_name(site: Path, package: str) -> None:
    module = import_module(f"sharegroup.{package}")
    # Spark makes these from the names of their formats.
    from_elsewhere = {
        *("KafkaShareDataSource", "KafkaShareLettersDataSource", "KafkaShareStateDataSource"),
    }
    defined = {name for name in module.__all__ if name not in from_elsewhere}
    assert defined - documented(site) == set()


@pytest.mark.slow
def test_reference_shows_methods_with_their_texts(site: Path) -> None:
    page = (site / "reference" / "client.html").read_text()
    assert "Queue one record, waiting for buffer space if necessary" in page
    assert "Example::" not in page


@pytest.mark.slow
@pytest.mark.parametrize("page", ["client", "client-sync"])
def test_reference_shows_methods_that_are_made_of_functions(site: Path, page: str) -> None:
    text = (site / "reference" / f"{page}.html").read_text()
    assert "Create topics; the result is None or an error, such as TopicAlreadyExists" in text
    assert "validate_only" in text


@pytest.mark.slow
def test_interactive_sessions_of_docstrings_are_blocks_of_code(site: Path) -> None:
    page = (site / "reference" / "testing.html").read_text()
    assert 'class="gp"' in page  # The prompt, as the highlighter marks it.
    assert "<blockquote>" not in page


@pytest.mark.slow
def test_comments_for_the_runner_of_examples_are_left_out(site: Path) -> None:
    assert not any("<!-- run" in page.read_text() for page in site.rglob("*.html"))


@pytest.mark.slow
def test_pages_of_the_root_are_part_of_the_site(site: Path) -> None:
    page = (site / "project" / "contributing.html").read_text()
    assert 'href="../glossary.html"' in page


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: apt-get install chromium)")
def test_search_works_on_pages_that_are_opened_from_a_folder(site: Path) -> None:
    address = f"{(site / 'index.html').as_uri()}?q=acquisition+lock"
    page = rendered(address)
    found = re.search(r"(\d+) matching documents", page)
    assert found is not None
    assert int(found[1]) > 10
    assert page.count('class="md-search-result__item"') >= 10


def rendered(address: str) -> str:
    """The elements of a page after its scripts have run."""
    assert CHROMIUM is not None
    words = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu"]
    words += ["--virtual-time-budget=20000", "--dump-dom", address]
    done = subprocess.run(words, capture_output=True, text=True, timeout=HANGING_SECONDS)
    return done.stdout


@pytest.mark.slow
def test_links_have_titles_and_no_names_of_files(site: Path) -> None:
    named = re.compile(r"<a [^>]*>(?:<code>)?[\w./-]+\.md(?:</code>)?</a>")
    pages = {page: named.findall(page.read_text()) for page in site.rglob("*.html")}
    assert {str(page): links for page, links in pages.items() if links} == {}


@pytest.mark.slow
def test_identifiers_of_tables_break_between_their_words(site: Path) -> None:
    limits = (site / "limits.html").read_text()
    assert "<code>sharegroup.<wbr>tls.<wbr>handshakes.<wbr>max</code>" in limits
