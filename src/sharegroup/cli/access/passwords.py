"""Asks for a new password: never on the command line, which other users of the machine can read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

PASSWORD_CHARACTERS_MAX = 1_024

password_file_option = click.option(
    "--password-file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="File with the password in its first line; - for standard input.  [default: ask on a "
    "terminal, otherwise standard input]",
)


def new_password(user: str, file: Path | None) -> str:
    """Return the password from a file, from standard input, or from the terminal."""
    if file is None and sys.stdin.isatty():
        prompted: Any = click.prompt(
            f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True
        )
        return _checked(str(prompted), "the terminal")
    if file is None or str(file) == "-":
        return _checked(sys.stdin.readline(), "standard input")
    with file.open(encoding="utf-8") as lines:
        return _checked(lines.readline(PASSWORD_CHARACTERS_MAX + 2), str(file))


def _checked(line: str, origin: str) -> str:
    password = line.rstrip("\r\n")
    if not password or len(password) > PASSWORD_CHARACTERS_MAX:
        raise click.ClickException(
            f"expected a password of 1 to {PASSWORD_CHARACTERS_MAX} characters in the first line "
            f"of {origin}, found {len(password)}"
        )
    return password
