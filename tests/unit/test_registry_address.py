"""The addresses of a schema registry in messages, which may be written to a dead-letter topic."""

from __future__ import annotations

import pytest

from sharegroup.registry_address import client_conf, without_credentials


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


@pytest.mark.parametrize(
    ("url", "options", "conf"),
    [
        ("http://one:8081", {}, {"url": "http://one:8081"}),
        (
            "https://app:p%40%3Aw@one/path,http://b:2@two",
            {"timeout": 3},
            {
                "url": "https://one/path,http://two",
                "basic.auth.user.info": "app:p@:w",
                "timeout": 3,
            },
        ),
        # Confluent's client refuses both, and takes these as they are.
        (
            "http://a:1@one",
            {"basic.auth.user.info": "b:2"},
            {"url": "http://a:1@one", "basic.auth.user.info": "b:2"},
        ),
        ("http://a%3Ab:1@one", {}, {"url": "http://a%3Ab:1@one"}),
        ("http://a@one", {}, {"url": "http://a@one"}),
    ],
)
def test_a_client_gets_the_credentials_beside_the_address(
    url: str, options: dict[str, object], conf: dict[str, object]
) -> None:
    assert client_conf(url, options) == conf
