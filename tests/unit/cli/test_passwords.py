"""The password of a new user, from a file or from standard input."""

from __future__ import annotations

import io
from pathlib import Path

import click
import pytest

from sharegroup.cli.access.users import new_password


@pytest.mark.parametrize(
    "line",
    [
        b"geh\xc3\xa4im\n",
        b"geh\xc3\xa4im",
        b"geh\xc3\xa4im\r\nmore",
        b"\xef\xbb\xbfgeh\xc3\xa4im\n",
    ],
    ids=["line", "no line end", "Windows", "byte order mark"],
)
@pytest.mark.parametrize("is_file", [True, False])
def test_password_is_the_first_line_in_utf_8(
    line: bytes, is_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the locale; a mark of an editor is no part of the password."""
    file = tmp_path / "password"
    file.write_bytes(line)
    stdin = io.TextIOWrapper(io.BytesIO(line), encoding="latin-1")
    monkeypatch.setattr("sys.stdin", stdin)
    assert new_password("alice", file if is_file else None) == "gehäim"


def test_password_that_is_not_utf_8_is_refused_and_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"hunter\xe42\n")
    with pytest.raises(click.ClickException, match="password is not UTF-8") as caught:
        new_password("alice", file)
    assert "hunter" not in caught.value.message
    assert caught.value.__cause__ is None
