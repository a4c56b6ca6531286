"""The file of roles and masks, in TOML or JSON.

    [[grants]]
    users = ["ada", "ops-*"]
    role = "operator"
    groups = ["billing-*"]
    topics = ["orders", "orders.*"]
    values = true

    [[masks]]
    topics = ["orders*"]
    values = ["$.card.number", "$..email"]
    headers = ["authorization"]
    keys = false

A name that is missing in a grant means: all users, viewer, all groups, all topics, no values.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sharegroup.console.access.bounded_file import read_bounded
from sharegroup.console.access.masks import BadPath, Mask, Masks, parsed_path
from sharegroup.console.access.roles import EVERYTHING, Grant, Role, Roles, UserGrant
from sharegroup.errors import InvalidConfig
from sharegroup.suggestions import did_you_mean

FILE_BYTES_MAX = 1024 * 1024
ENTRIES_MAX = 1_000
"""Grants, and masks, of a file."""
GRANT = ("users", "role", "groups", "topics", "values")
MASK = ("topics", "values", "headers", "keys")
TABLES = ("grants", "masks")


def read_roles(path: Path) -> Roles:
    """Read a file of roles; InvalidConfig says which line or key is wrong."""
    subject = f"the file of roles {path}"
    content = read_bounded(path, FILE_BYTES_MAX, subject=subject)
    try:
        document = _document(content.decode(), is_json=path.suffix == ".json")
        return parsed_roles(document)
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"{subject}: {error}") from error


def _document(text: str, *, is_json: bool) -> Any:
    return json.loads(text) if is_json else tomllib.loads(text)


class BadRoles(ValueError):
    """A key of the file is not as expected; the text names it."""


def parsed_roles(document: object) -> Roles:
    """Return the roles of a document; `BadRoles` names the key that is wrong."""
    whole = _table(document, "the document", TABLES)
    grants = tuple(
        UserGrant(
            users=_texts(entry, where, "users", EVERYTHING),
            grant=Grant(
                role=_role(entry, where),
                groups=_texts(entry, where, "groups", EVERYTHING),
                topics=_texts(entry, where, "topics", EVERYTHING),
                values=_flag(entry, where, "values"),
            ),
        )
        for where, entry in _entries(whole, "grants", GRANT)
    )
    masks = tuple(
        Mask(
            topics=_texts(entry, where, "topics", EVERYTHING),
            values=tuple(
                _path(text, f"{where}.values") for text in _texts(entry, where, "values", ())
            ),
            headers=_texts(entry, where, "headers", ()),
            keys=_flag(entry, where, "keys"),
        )
        for where, entry in _entries(whole, "masks", MASK)
    )
    if not grants:
        raise BadRoles("expected at least one [[grants]]: without one, nobody sees anything")
    return Roles(grants=grants, masks=Masks(masks))


def _entries(
    whole: Mapping[str, Any], name: str, keys: Sequence[str]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    entries = whole.get(name, [])
    if not isinstance(entries, list) or len(entries) > ENTRIES_MAX:
        raise BadRoles(f"{name}: expected a list of at most {ENTRIES_MAX} tables, as [[{name}]]")
    for number, entry in enumerate(entries, start=1):
        where = f"{name} {number}"
        yield where, _table(entry, where, keys)


def _table(value: object, where: str, keys: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadRoles(f"{where}: expected a table with {', '.join(keys)}")
    for key in value:
        if key not in keys:
            raise BadRoles(
                f"{where}: there is no key {key[:100]!r}; expected {', '.join(keys)}"
                f"{did_you_mean(key, keys)}"
            )
    return value


def _texts(
    entry: Mapping[str, Any], where: str, key: str, default: tuple[str, ...]
) -> tuple[str, ...]:
    value = entry.get(key)
    if value is None:
        return default
    is_list = isinstance(value, list) and len(value) <= ENTRIES_MAX
    if not is_list or not all(isinstance(text, str) and text for text in value):
        raise BadRoles(f'{where}.{key} = {value!r:.200}: expected a list of texts, as ["a", "b"]')
    return tuple(value)


def _flag(entry: Mapping[str, Any], where: str, key: str) -> bool:
    value = entry.get(key, False)
    if not isinstance(value, bool):
        raise BadRoles(f"{where}.{key} = {value!r:.200}: expected true or false")
    return value


def _role(entry: Mapping[str, Any], where: str) -> Role:
    value = entry.get("role", Role.VIEWER)
    if value not in list(Role):
        expected = ", ".join(Role)
        raise BadRoles(f"{where}.role = {value!r:.200}: expected one of {expected}")
    return Role(value)


def _path(text: str, where: str) -> tuple[Any, ...]:
    try:
        return parsed_path(text)
    except BadPath as error:
        raise BadRoles(f"{where}: {error}") from None
