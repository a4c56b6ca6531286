"""What keeps a broker from starting is said before anything is touched."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sharegroup.broker.app import start
from sharegroup.broker.config import Config
from sharegroup.errors import InvalidConfig


@pytest.mark.parametrize(
    ("listener", "insecure", "message"),
    [
        ("PLAINTEXT://192.0.2.1:0", False, "--insecure"),
        ("PLAINTEXT://0.0.0.0:0", False, "--insecure"),
        ("PLAINTEXT://0.0.0.0:0", True, r"sharegroup\.advertised\.host"),
        ("SSL://127.0.0.1:0", False, "one PLAINTEXT://host:port"),
    ],
)
def test_listener_that_is_open_or_unknown_is_refused(
    tmp_path: Path, listener: str, insecure: bool, message: str
) -> None:
    config = Config.parse({"listeners": listener, "log.dirs": str(tmp_path / "data")})
    with pytest.raises(InvalidConfig, match=message):
        asyncio.run(start(config, insecure=insecure))
    assert not (tmp_path / "data").exists()
