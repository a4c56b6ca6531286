"""Keeps the credentials in the address of a schema registry out of logs and errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

_CREDENTIALS = re.compile(r"//[^/,]*@")
"""Users and passwords in addresses; Confluent's client takes several, with commas between."""
BASIC_AUTH = "basic.auth.user.info"


def without_credentials(url: str) -> str:
    """Return the addresses of a registry for messages, without the users and passwords in them.

    A message may become a row's ``error``, and be written to a dead-letter topic.

    >>> without_credentials("https://app:secret@one:8081/path,http://two")
    'https://one:8081/path,http://two'
    """
    return _CREDENTIALS.sub("//", url)


def client_conf(url: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of Confluent's client, with the credentials beside the addresses.

    The client uses those of its first address for all, but its HTTP library logs each address as
    it is.  Credentials that have no other form stay in the address.
    """
    first = urlsplit(url.partition(",")[0])
    user, password = first.username, first.password
    if user is None or password is None or ":" in unquote(user) or BASIC_AUTH in options:
        return {"url": url, **options}
    credentials = f"{unquote(user)}:{unquote(password)}"
    return {"url": without_credentials(url), BASIC_AUTH: credentials, **options}
