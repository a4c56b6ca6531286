"""``from sharegroup.client import ...``: what is there, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import sharegroup.client

CODEC = "aiokafka.record.default_records"
"""What packages it stands in are there from the start, and empty (`wire.light_imports`)."""


def test_every_name_is_there_and_is_shown() -> None:
    assert [getattr(sharegroup.client, name).__name__ for name in sharegroup.client.__all__] == [
        *sharegroup.client.__all__
    ]
    assert set(sharegroup.client.__all__) <= set(dir(sharegroup.client))


def test_unknown_name_is_named() -> None:
    with pytest.raises(AttributeError, match=r"'sharegroup.client' has no attribute 'Consumer'"):
        _ = sharegroup.client.Consumer


def test_administration_loads_neither_consumer_nor_record_codec() -> None:
    program = "import sys, sharegroup.client.admin; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    loaded = set(done.stdout.decode().split())
    assert "sharegroup.client.cluster" in loaded
    absent = {"sharegroup.client.share_consumer", "sharegroup.client.producer", CODEC}
    assert not loaded & absent
