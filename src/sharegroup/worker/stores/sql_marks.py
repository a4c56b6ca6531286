"""The calls of a store as statements for one SQL table, for SQLite and PostgreSQL.

One statement reserves, extends and confirms: it writes the row of a name if there is none, if it
has expired, or if it belongs to the same token.  So each call is atomic without a transaction, and
can be repeated if its answer was lost.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sharegroup.errors import InvalidConfig
from sharegroup.worker.stores.store import (
    Confirmed,
    Held,
    Reservation,
    Reserved,
    check_name,
    check_value,
)

SWEPT_MAX = 1_000
"""Expired rows that one sweep deletes."""
SWEEP_EVERY = 500
"""Written rows of a process after which it sweeps, so it deletes more than it writes."""
RESERVE_TRIES_MAX = 10
TABLE = "sharegroup_store"
_TABLE_NAME = re.compile(r"([a-z_][a-z0-9_]{0,50}\.)?[a-z_][a-z0-9_]{0,50}")

Parameters = Mapping[str, str | int | bytes | bool]


class Execute(Protocol):
    """Executes one statement, commits it and returns its rows."""

    async def __call__(self, statement: str, parameters: Parameters) -> list[tuple[Any, ...]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What differs between databases in the statements below."""

    parameter: Callable[[str], str]
    """Returns the placeholder of a named parameter."""
    now_ms: str
    """An expression for the milliseconds since 1970, by a clock that all processes share."""
    text: str
    binary: str
    skip_locked: str
    """The clause with which a sweep passes over rows that another transaction writes."""


class Statements:
    """The statements for a table in a dialect."""

    __slots__ = ("create", "find", "mark", "put", "release", "sweep")

    def __init__(self, table: str, dialect: Dialect) -> None:
        # The table's name is checked; everything else of a caller is a parameter.
        now, parameter = dialect.now_ms, dialect.parameter
        name, token, value = parameter("name"), parameter("token"), parameter("value")
        until = f"{now} + {parameter('keep_ms')}"
        self.create = (
            (
                f"CREATE TABLE IF NOT EXISTS {table} (name {dialect.text} PRIMARY KEY, "
                f"token {dialect.text} NOT NULL, confirmed boolean NOT NULL, "
                f"value {dialect.binary} NOT NULL, until_ms bigint NOT NULL)"
            ),
            f"CREATE INDEX IF NOT EXISTS {table.rpartition('.')[2]}_until ON {table} (until_ms)",
        )
        insert = (
            f"INSERT INTO {table} AS kept (name, token, confirmed, value, until_ms) "  # noqa: S608
            f"VALUES ({name}, {token}, {parameter('confirmed')}, {value}, {until}) "
            f"ON CONFLICT (name) DO UPDATE SET token = excluded.token, "
            f"confirmed = excluded.confirmed, value = excluded.value, until_ms = excluded.until_ms"
        )
        self.put = insert
        self.mark = (
            f"{insert} WHERE kept.until_ms <= {now} OR (kept.token = excluded.token "
            f"AND (excluded.confirmed OR NOT kept.confirmed)) RETURNING name"
        )
        self.find = (
            f"SELECT confirmed, value, until_ms - {now} FROM {table} "  # noqa: S608
            f"WHERE name = {name} AND until_ms > {now}"
        )
        self.release = (
            f"DELETE FROM {table} "  # noqa: S608
            f"WHERE name = {name} AND token = {token} AND NOT confirmed"
        )
        self.sweep = (
            f"DELETE FROM {table} WHERE name IN (SELECT name FROM {table} "  # noqa: S608
            f"WHERE until_ms <= {now} ORDER BY until_ms LIMIT {SWEPT_MAX} {dialect.skip_locked})"
        )


class SqlMarks:
    """The calls of a `Store`, made of statements that ``execute`` executes.

    The stores of SQLite and PostgreSQL inherit from it: by composition each would repeat the five
    calls of the protocol only to pass them on.
    """

    __slots__ = ("_execute", "_statements", "_written")

    def __init__(self, statements: Statements, execute: Execute) -> None:
        self._statements = statements
        self._execute = execute
        self._written = 0

    async def reserve(self, name: str, token: str, *, lease_seconds: float) -> Reservation:
        """Reserve a name for a time; for the same token again, extend its lease."""
        check_name(name)
        for _ in range(RESERVE_TRIES_MAX):
            if await self._mark(name, token, None, lease_seconds):
                return Reserved()
            rows = await self._execute(self._statements.find, {"name": name})
            for confirmed, value, ms_left in rows:
                return Confirmed(bytes(value)) if confirmed else Held(ms_left / 1000)
            # The name became free in between: try again.
        return Held(0.0)

    async def confirm(self, name: str, token: str, value: bytes, *, keep_seconds: float) -> bool:
        """Confirm a reservation for a time; False if another token has the name by now."""
        check_name(name)
        check_value(name, value)
        return await self._mark(name, token, value, keep_seconds)

    async def release(self, name: str, token: str) -> None:
        """Free a name that this token has reserved."""
        check_name(name)
        await self._execute(self._statements.release, {"name": name, "token": token})

    async def put(self, name: str, value: bytes, *, keep_seconds: float) -> None:
        """Keep a value by its name for a time, in place of an earlier one."""
        check_name(name)
        check_value(name, value)
        await self._write(self._statements.put, row(name, "", value, keep_seconds))

    async def get(self, name: str) -> bytes | None:
        """Return the value that was put or confirmed; None if there is none, or no longer."""
        check_name(name)
        for confirmed, value, _ in await self._execute(self._statements.find, {"name": name}):
            return bytes(value) if confirmed else None
        return None

    def _once(self, name: str, seconds: float) -> tuple[str, Parameters]:
        """The statement that confirms a name in a transaction; it has a row if the name was free.

        The token is no token of a reservation, so a repeated call does not find its own mark.
        """
        check_name(name)
        return self._statements.mark, row(name, secrets.token_hex(16), b"", seconds)

    async def _mark(self, name: str, token: str, value: bytes | None, seconds: float) -> bool:
        return bool(await self._write(self._statements.mark, row(name, token, value, seconds)))

    async def _write(self, statement: str, parameters: Parameters) -> list[tuple[Any, ...]]:
        rows = await self._execute(statement, parameters)
        await self._count()
        return rows

    async def _count(self) -> None:
        """Count a written row, and sweep if it is time to."""
        self._written += 1
        if self._written % SWEEP_EVERY == 0:
            await self._execute(self._statements.sweep, {})


def row(name: str, token: str, value: bytes | None, seconds: float) -> Parameters:
    """The parameters of a row; ``value`` is None for a reservation."""
    return {
        "name": name,
        "token": token,
        "confirmed": value is not None,
        "value": value or b"",
        "keep_ms": max(1, round(seconds * 1000)),
    }


def checked_table(table: str, whose: str) -> str:
    """Return the table's name; raise InvalidConfig unless it needs no quotes in SQL."""
    if not _TABLE_NAME.fullmatch(table):
        raise InvalidConfig(
            f"{whose}: table {table!r:.80}; expected a name, or schema.name, of up to 51 of the "
            f"characters a-z 0-9 _ each, not beginning with a digit"
        )
    return table
