"""Colour on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_terminal_gets_colour_unless_its_user_wants_none(
    environment: dict[str, str], coloured: bool
) -> None:
    program = "from sharegroup.cli.common.output import in_colour; print(in_colour())"
    variables = {**os.environ, "TERM": "xterm", **environment}
    if "NO_COLOR" not in environment:
        variables.pop("NO_COLOR", None)
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal, os.fdopen(theirs, "wb") as stdout:
        subprocess.run([sys.executable, "-c", program], stdout=stdout, env=variables, check=True)
        assert terminal.read(100).decode().strip() == str(coloured)
