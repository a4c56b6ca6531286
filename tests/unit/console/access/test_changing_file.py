"""A file of tokens or roles that is read again when it has changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sharegroup.console.access.changing_file import ChangingFile
from sharegroup.console.access.tokens import Tokens, digest_of, read_tokens
from sharegroup.errors import InvalidConfig

ADA, EVE = "ada-0123456789abcdef", "eve-0123456789abcdef"


def test_content_is_returned_once_for_each_change(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"ada:{ADA}\n")
    file = ChangingFile("file of tokens", path, read_tokens)
    first = file.look()
    assert first is not None
    assert first.knows("ada", digest_of(ADA))
    assert file.look() is None
    # Another file under the same name, of the same size and time, as Kubernetes replaces secrets.
    other = tmp_path / "other"
    other.write_text(f"eve:{EVE}\n")
    status = path.stat()
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(path)
    second = file.look()
    assert isinstance(second, Tokens)
    assert not second.knows("ada", digest_of(ADA))
    assert not second.knows("eve", digest_of(ADA))
    assert second.knows("eve", digest_of(EVE))


def test_file_that_is_wrong_or_gone_says_so(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    file = ChangingFile("file of tokens", path, read_tokens)
    for _ in range(2):
        with pytest.raises(InvalidConfig, match=r"the file of tokens .*tokens: No such file"):
            file.look()
    path.write_text("ada:short\n")
    with pytest.raises(InvalidConfig, match="line 1: expected a token of 16"):
        file.look()
    assert file.look() is None, "it is the same mistake"
    path.write_text(f"ada:{ADA}\n")
    assert file.look() is not None
    path.unlink()
    with pytest.raises(InvalidConfig, match="No such file"):
        file.look()
    path.write_text(f"ada:{ADA}\n")
    assert file.look() is not None
