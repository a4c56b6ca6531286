"""The lines of a function that is being generated, each with the field that it belongs to.

If the generated function fails, the number of the line tells the field (`decoder`, `encoder`).
"""

from __future__ import annotations

Owner = tuple[str, bool]
"""The field that a line of source belongs to, and whether the line is in the loop over it."""


class SourceLines:
    """The lines of one generated function."""

    __slots__ = ("lines", "owner", "owners")

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.owners: list[Owner] = []
        self.owner: Owner = ("", False)
        """The owner of the lines that are added next."""

    def add(self, indent: int, *lines: str) -> None:
        """Add lines with one indentation."""
        for line in lines:
            self.lines.append("    " * indent + line)
            self.owners.append(self.owner)
