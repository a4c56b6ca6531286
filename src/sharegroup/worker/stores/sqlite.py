"""A store in a file of SQLite, for the processes of one machine."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from sharegroup.worker.stores.sql_marks import (
    TABLE,
    Dialect,
    Parameters,
    SqlMarks,
    Statements,
    checked_table,
)
from sharegroup.worker.stores.store import NO_TRANSACTION, StoreUnavailable

log = logging.getLogger(__name__)

BUSY_SECONDS = 10.0
"""How long a statement waits while another process writes to the file."""

_TRANSACTION: ContextVar[sqlite3.Connection | None] = ContextVar(
    "sharegroup_sqlite_transaction", default=None
)
Result = TypeVar("Result")

DIALECT = Dialect(
    parameter=lambda name: f":{name}",
    now_ms=":now_ms",
    text="text",
    binary="blob",
    skip_locked="",
)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class SqliteStore(SqlMarks):
    """A store in a file of SQLite, for the processes of one machine.

    The file and the table are created when they are first used, and again if the file was deleted.
    ``wall_ms`` returns the milliseconds since 1970, by a clock that all processes share.
    """

    __slots__ = (
        *("_connection", "_file", "_open", "_opened_path", "_path", "_table", "_thread"),
        *("_wall_ms", "_writer"),
    )

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        table: str = TABLE,
        wall_ms: Callable[[], int] = _wall_ms,
    ) -> None:
        self._path = os.fspath(path)
        self._table = checked_table(table, "SqliteStore")
        statements = Statements(self._table, DIALECT)
        super().__init__(statements, self._executed)
        self._wall_ms = wall_ms
        self._writer = asyncio.Lock()
        self._open: sqlite3.Connection | None = None
        """The connection of the `once` block that runs; None if none does."""
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        """The file that `_connection` has open; None if it is not known, as of one in memory."""
        self._opened_path = ""
        """The absolute path of that file; the program may change its folder later."""
        self._thread: ThreadPoolExecutor | None = None
        """One thread, so a call that was cancelled ends before the next one begins."""

    async def close(self) -> None:
        """Close the file; the next call opens it again."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.get_running_loop().run_in_executor(thread, self._disconnect)
            thread.shutdown(wait=False)

    @asynccontextmanager
    async def once(self, name: str, *, keep_seconds: float) -> AsyncIterator[bool]:
        """A transaction that confirms a name; its value is False if the name was confirmed before.

        In the block, `connection` returns the connection of the transaction.  SQLite has one writer
        at a time, so other blocks wait until this one has ended.
        """
        statement, parameters = self._once(name, keep_seconds)
        # One waiting thread for each process, because a block may last.
        async with self._writer:
            # Before the transaction, because an error after it would be one of a handler that is
            # done.
            await self._count()
            self._open = connection = await _finished(self._begun)
            try:
                is_new = bool(self._rows(connection, statement, parameters))
                token = _TRANSACTION.set(connection)
                try:
                    yield is_new
                finally:
                    _TRANSACTION.reset(token)
                try:
                    await _finished(connection.commit)
                except sqlite3.Error as error:
                    raise self._unavailable(error) from error
            finally:
                self._open = None
                connection.close()  # Rolls back what is not committed.

    def connection(self) -> sqlite3.Connection:
        """The connection of the transaction in which the handler with ``once_by`` runs."""
        connection = _TRANSACTION.get()
        if connection is None or connection is not self._open:
            raise RuntimeError(NO_TRANSACTION.format("SqliteStore"))
        return connection

    def _begun(self) -> sqlite3.Connection:
        try:
            connection = self._connect()
            try:
                connection.execute("BEGIN IMMEDIATE")
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            raise self._unavailable(error) from error
        return connection

    def _unavailable(self, error: sqlite3.Error) -> StoreUnavailable:
        return StoreUnavailable(
            f"SqliteStore {self._path!r}, table {self._table}: {error}; expected a file of SQLite "
            f"that this user may write to"
        )

    async def _executed(self, statement: str, parameters: Parameters) -> list[tuple[Any, ...]]:
        if self._open is not None and _TRANSACTION.get() is self._open:
            # It would wait for the end of the transaction in which it is called.
            raise StoreUnavailable(
                f"SqliteStore {self._path!r}: a handler with once_by calls the store whose file "
                f"its own transaction writes to; expected another store, such as a second file"
            )
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="sqlite-store")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._in_thread, statement, parameters)

    def _in_thread(self, statement: str, parameters: Parameters) -> list[tuple[Any, ...]]:
        # A deleted file that is still open takes no writes, and other processes use another one.
        if self._connection is not None and self._file not in (None, self._file_now()):
            log.warning(
                "event=store.file_replaced path=%r effect='the file was deleted or replaced while "
                "it was open; the names in the old one are not known any more'",
                self._path,
            )
            self._disconnect()
        if self._connection is None:
            self._opened_path = os.path.abspath(self._path)
            try:
                self._connection = self._connect()
            except sqlite3.Error as error:
                raise self._unavailable(error) from error
            self._file = self._file_now()
        return self._rows(self._connection, statement, parameters)

    def _file_now(self) -> tuple[int, int] | None:
        """Return what identifies the file that has the path; None if there is none."""
        try:
            status = os.stat(self._opened_path)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _rows(
        self, connection: sqlite3.Connection, statement: str, parameters: Parameters
    ) -> list[tuple[Any, ...]]:
        try:
            return connection.execute(
                statement, {**parameters, "now_ms": self._wall_ms()}
            ).fetchall()
        except sqlite3.Error as error:
            raise self._unavailable(error) from error

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            for statement in self._statements.create:
                connection.execute(statement)
        except BaseException:
            connection.close()
            raise
        return connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


async def _finished(function: Callable[[], Result]) -> Result:
    """Call a function in a thread, and wait for its end even if this is cancelled."""
    call = asyncio.ensure_future(asyncio.to_thread(function))
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        await asyncio.wait((call,))
        if call.exception() is None and isinstance(opened := call.result(), sqlite3.Connection):
            opened.close()
        raise
