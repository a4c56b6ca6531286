"""Reads the JAAS configuration of a SASL mechanism, as Kafka's files have it.

    org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";

Only the users of PLAIN have a meaning here.  For other mechanisms the text is checked, so that a
file made for Kafka is accepted, and a mistake is found.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from sharegroup.errors import InvalidConfig

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USER_PREFIX = "user_"

_FORM = '`org.apache...LoginModule required name="value" ...;`'
_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r"""\s*(?://[^\n]*|/\*.*?\*/|(?P<sign>[=;])|(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    r"""|(?P<word>[^\s=;"']+))""",
    re.DOTALL,
)


class LoginModule(NamedTuple):
    """A login module and its options."""

    name: str
    options: dict[str, str]


def parse_jaas(key: str, text: str) -> LoginModule:
    """Return the login module of a JAAS configuration; raise InvalidConfig if it has another form.

    ``key`` is named in the error.  The text is not quoted, because it contains passwords.
    """
    tokens = _tokens(key, text)
    if len(tokens) < 3 or tokens[1].lower() not in _FLAGS or tokens[-1] != ";":
        raise _malformed(key, "one module with a flag, and a semicolon at the end")
    options: dict[str, str] = {}
    rest = tokens[2:-1]
    if ";" in rest:
        raise _malformed(key, "exactly one login module")
    if len(rest) % 3:
        raise _malformed(key, "options of the form name=value")
    for name, sign, value in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        if sign != "=":
            raise _malformed(key, "options of the form name=value")
        options[name] = value
    return LoginModule(tokens[0], options)


def plain_users(key: str, text: str) -> dict[str, str]:
    """Return the passwords of PLAIN by user; raise InvalidConfig if there is no user."""
    if not text.strip():
        raise InvalidConfig(
            f"{key} is not set, and PLAIN has its users there: expected for example "
            f'{PLAIN_MODULE} required user_NAME="...";. Set it, or leave PLAIN out of '
            "sasl.enabled.mechanisms"
        )
    module = parse_jaas(key, text)
    if module.name != PLAIN_MODULE:
        raise InvalidConfig(f"{key} must have the login module {PLAIN_MODULE}, not {module.name}")
    users = {
        name.removeprefix(USER_PREFIX): password
        for name, password in module.options.items()
        if name.startswith(USER_PREFIX) and len(name) > len(USER_PREFIX)
    }
    if not users or not all(users.values()):
        raise InvalidConfig(
            f'{key} must have at least one user, and a password for each: user_alice="..."'
        )
    return users


def _tokens(key: str, text: str) -> list[str]:
    tokens, position, text = [], 0, text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _malformed(key, f"a closing quotation mark after character {position}")
        position = match.end()
        quoted = match["quoted"]
        if quoted is not None:
            tokens.append(re.sub(r"\\(.)", r"\1", quoted[1:-1], flags=re.DOTALL))
        elif match["sign"] or match["word"]:
            tokens.append(match["sign"] or match["word"])
    return tokens


def _malformed(key: str, expected: str) -> InvalidConfig:
    return InvalidConfig(f"{key} must have the form {_FORM}: expected {expected}")
