"""What mkdocs changes on the pages, so that they read well in the repository and on the site.

The pages of the project's root (CONTRIBUTING.md and others) become pages of the site.  Links to
source files, which the site does not have, become plain text.  Comments for `tests.docs.snippets`
are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
ROOT_PAGES = {
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
}
_SOURCE_LINK = re.compile(
    r"\[([^\]]+)\]\((?:\.\./)*(?:(?:src|tests|examples|container)/[^)]*|Dockerfile)\)"
)
_CODE_IN_TABLE = re.compile(r"<t[dh].*?</t[dh]>", re.DOTALL)
_CODE = re.compile(r"<code>([^<]*)</code>")
_AFTER_PART = re.compile(r"(?<=\w[.:_])(?=\w{3})")
_OPTION = re.compile(r"(?<![\w.-])-{1,2}[a-z][\w-]*")
_COMMENT = re.compile(r"^ *<!-- (?:not )?(?:run|output)\b.*-->\n", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the project's root, and to the navigation the pages that it leaves out."""
    for name, place in ROOT_PAGES.items():
        text = _to_root_pages((ROOT / name).read_text().replace("](docs/", "](../"), "")
        files.append(File.generated(config, place, content=text))
    assert config.nav is not None, "mkdocs.yml has a navigation"
    named = set(_pages_in(config.nav))
    others = [file.src_uri for file in files.documentation_pages() if file.src_uri not in named]
    decisions = [name for name in others if name.startswith("adr/")]
    if decisions:
        config.nav.append({"Decisions": decisions})
    if further := sorted(set(others) - set(decisions)):
        config.nav.append({"More": further})
    return files


def _pages_in(nav: object) -> Iterator[str]:
    """Every page that a navigation names, at any depth."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, list | dict):
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from _pages_in(entry)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the text of a page as the site shows it."""
    depth = page.file.src_uri.count("/")
    text = _to_root_pages(markdown, "../" * (depth + 1))
    return _COMMENT.sub("", _SOURCE_LINK.sub(r"\1", text))


def _to_root_pages(text: str, up: str) -> str:
    """Point links to pages of the project's root, which is ``up`` from here, to the site's."""
    below = up.removeprefix("../")
    for name, place in ROOT_PAGES.items():
        target = f"{below}{place}" if up else Path(place).name
        text = text.replace(f"]({up}{name}", f"]({target}")
    return text


def on_post_build(config: MkDocsConfig) -> None:
    """Write the index of the search as a script, too, which a page of a folder can load."""
    index = Path(config.site_dir, "search", "search_index.json")
    index.with_suffix(".js").write_text(f"var __index = {index.read_text()}")


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the content of a page.

    Docstrings mark examples as reStructuredText does.  A long identifier in a table may be broken
    after a dot, a colon or an underscore, and nowhere else.
    """
    html = html.replace("Example::", "Example:")
    return _CODE_IN_TABLE.sub(lambda row: _CODE.sub(_breakable, row[0]), html)


def _breakable(code: re.Match[str]) -> str:
    parts = _AFTER_PART.sub("<wbr>", code[1])
    return f"<code>{_OPTION.sub(_whole, parts)}</code>"


def _whole(option: re.Match[str]) -> str:
    return f'<span class="option">{option[0]}</span>'
