"""``from sharegroup.client import ...``: the names that there are."""

from __future__ import annotations

import pytest

import sharegroup.client


def test_every_exported_name_exists_and_is_listed_by_dir() -> None:
    assert [getattr(sharegroup.client, name).__name__ for name in sharegroup.client.__all__] == [
        *sharegroup.client.__all__
    ]
    assert set(sharegroup.client.__all__) <= set(dir(sharegroup.client))


def test_unknown_name_is_named() -> None:
    with pytest.raises(AttributeError, match=r"'sharegroup.client' has no attribute 'Consumers'"):
        _ = sharegroup.client.Consumers
