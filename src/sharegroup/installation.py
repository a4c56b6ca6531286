"""How a user installs sharegroup with an extra: one wording for all messages.

The package is on no index yet, so a name without a path cannot be installed.  `docs/releasing.md`
says when ``ON_AN_INDEX`` changes; pages and examples change with it (`tests.docs.installing`).
"""

from __future__ import annotations

ON_AN_INDEX = False
"""Whether ``pip install sharegroup`` finds this package."""

_SOURCE = "sharegroup" if ON_AN_INDEX else "."


def pip_command(*extras: str, also: str = "") -> str:
    """Return the command that installs sharegroup; ``also`` are packages that it installs, too."""
    source = f"'{_SOURCE}[{','.join(extras)}]'" if extras else _SOURCE
    return " ".join(filter(None, ("pip install", source, also)))


def pip_install(*extras: str) -> str:
    """Return that command with the place where it works, for the text of an error."""
    return pip_command(*extras) + ("" if ON_AN_INDEX else " (in a checkout of sharegroup)")
