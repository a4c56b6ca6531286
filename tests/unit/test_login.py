"""Who gives a command, as its record names them."""

from __future__ import annotations

import getpass
import os
import socket

import pytest

from sharegroup.login import login


def test_a_user_is_named_with_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "anna")

    assert login() == f"anna@{socket.gethostname()}"


def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """In many containers the number of the user has no entry in /etc/passwd."""

    def getuser() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr(getpass, "getuser", getuser)

    assert login() == f"{os.getuid()}@{socket.gethostname()}"
