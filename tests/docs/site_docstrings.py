"""Docstrings as the site shows them: examples with ``>>>`` become blocks of code.

Markdown would read them as quotations, and their lists as links.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_SESSION = re.compile(r"^(?P<indent> *)>>> (?:.*\n?)(?:^(?! *$).*\n?)*", re.MULTILINE)


class Sessions(Extension):
    """Puts interactive sessions of docstrings into fences."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Change the docstring of an object that was read."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """The text with each interactive session, up to an empty line, in a fence."""
    return _SESSION.sub(
        lambda match: f"{match['indent']}```pycon\n{match[0].rstrip()}\n{match['indent']}```\n",
        text,
    )
