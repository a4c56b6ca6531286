"""The first message of OAUTHBEARER (RFC 7628), which has the token; and the answer to a bad one."""

from __future__ import annotations

import re
from typing import NamedTuple

from sharegroup.core.security.login import LoginRefused

_NAME = r"(?:[^=,\0]|=2C|=3D)+"
_HEADER = re.compile(rf"n,(?:a=(?P<authzid>{_NAME}))?,")
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_PAIR = re.compile(r"(?P<key>[A-Za-z]+)=(?P<value>[!-~ \t\r\n]+)")
_SEPARATOR = "\x01"

INVALID_TOKEN = b'{"status":"invalid_token"}'
"""The challenge after a token that is not accepted; the client answers it, and then is refused."""


class Bearer(NamedTuple):
    """The content of the first message."""

    token: str
    authzid: str
    """The authorization id, empty if the client names none."""


def parse_bearer(message: bytes) -> Bearer:
    """Return token and authorization id; raise LoginRefused if the message has another form."""
    try:
        text = message.decode()
    except UnicodeDecodeError:
        text = ""
    header, *pairs = text.split(_SEPARATOR)
    match = _HEADER.fullmatch(header)
    if match is None or pairs[-2:] != ["", ""]:
        raise LoginRefused("the first message is not that of OAUTHBEARER")
    auth = None
    for pair in pairs[:-2]:  # Others than `auth` are extensions, which have no meaning here.
        found = _PAIR.fullmatch(pair)
        if found is None:
            raise LoginRefused("the first message has a malformed attribute")
        if found["key"] == "auth":
            auth = _AUTH.fullmatch(found["value"])
    if auth is None or auth["scheme"].lower() != "bearer":
        raise LoginRefused("the first message has no bearer token")
    authzid = (match["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
    return Bearer(auth["token"], authzid)
