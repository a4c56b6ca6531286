"""The addresses of a schema registry in messages, which may be written to a dead-letter topic."""

from __future__ import annotations

import pytest

from sharegroup.spark.registry.schemas import without_credentials


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://app:hunter2@registry:8081", "http://registry:8081"),
        ("https://app:a@b@registry/path?x=@", "https://registry/path?x=@"),
        ("http://a:1@one:8081,http://b:2@two:8081", "http://one:8081,http://two:8081"),
        ("http://registry:8081/path@1", "http://registry:8081/path@1"),
    ],
)
def test_messages_name_a_registry_without_its_credentials(url: str, shown: str) -> None:
    assert without_credentials(url) == shown
