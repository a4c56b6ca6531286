"""Templates: a whole page, or its live parts.

Blocks whose names begin with ``live_`` are the live parts.  Each stands in an element whose id is
the block's name, so a page shows the same with and without its script.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sharegroup.escaping import escaped

LIVE = "live_"
MISSING = Markup('<span class="unknown" title="not known">\u2013</span>')


def age(milliseconds: float | None) -> str | Markup:
    """Return a time as people say it: 850 ms, 12 s, 3 min, 5.1 h, 2.3 d."""
    if milliseconds is None:
        return MISSING
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1_000
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} d"


def moment(at_ms: int | None) -> Markup:
    """Return a moment in UTC; the script shows it in the reader's zone."""
    if at_ms is None or not 0 <= at_ms <= MOMENT_MS_MAX:
        return MISSING
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return Markup('<time datetime="{}">{} UTC</time>').format(
        at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), at.strftime("%Y-%m-%d %H:%M:%S")
    )


MOMENT_MS_MAX = 253_402_300_799_000
"""The end of the year 9999."""


def number(value: float | None) -> str | Markup:
    """Return a number with separators."""
    if value is None:
        return MISSING
    return f"{value:,.1f}" if type(value) is float else f"{value:,}"


def printable(text: object) -> str:
    """Return a text from a peer without what changes how a page reads: controls, overrides."""
    return escaped(str(text))


def breakable(text: str) -> Markup:
    """Return a text that breaks after its dots and commas."""
    return Markup("<wbr>").join(part for part in re.split(r"(?<=[.,])", text) if part)


def sentence(text: str) -> str:
    """Return a text that begins with a capital; the names in it stay as they are."""
    return text[:1].upper() + text[1:]


FEW_ROWS = 5
"""Up to this number of rows, a table has no field to find some of them."""
FEW_TOPICS = 30
"""Topics that the page of records offers as links."""


class Renderer:
    """Renders the pages of one console."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader("sharegroup.console", "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            age=age,
            breakable=breakable,
            moment=moment,
            number=number,
            printable=printable,
            sentence=sentence,
        )
        self._environment.globals.update(few_rows=FEW_ROWS, few_topics=FEW_TOPICS)
        self._environment.globals["ui"] = self._environment.get_template("ui.html").module

    def page(self, template: str, context: Mapping[str, Any]) -> str:
        """Return a page."""
        return self._environment.get_template(template).render(context)

    def live_parts(self, template: str, context: Mapping[str, Any]) -> dict[str, str]:
        """Return the live parts of a page, by the ids of their elements."""
        found = self._environment.get_template(template)
        names = self._live_names(template)
        return {
            name: "".join(found.blocks[name](found.new_context(dict(context)))) for name in names
        }

    def _live_names(self, template: str) -> list[str]:
        return [
            name
            for name in self._environment.get_template(template).blocks
            if name.startswith(LIVE)
        ]


def to_json(document: object) -> bytes:
    """Return a page's data as JSON; bytes, times and keys of other types become text.

    A function among the values is called for its value.
    """
    return json.dumps(_plain(document), ensure_ascii=False).encode("utf-8", "backslashreplace")


def _plain(value: Any) -> Any:
    if callable(value):
        value = value()
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no such numbers.
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(inner) for inner in value]
    return str(value)
