"""A store in a table of PostgreSQL, for all processes that reach the server.  Needs psycopg."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from sharegroup.worker.stores.sql_marks import (
    TABLE,
    Dialect,
    Parameters,
    SqlMarks,
    Statements,
    checked_table,
)
from sharegroup.worker.stores.store import NO_TRANSACTION, StoreUnavailable, check_installed

if TYPE_CHECKING:
    import psycopg

Result = TypeVar("Result")

CONNECTIONS_MAX = 8
CALL_SECONDS = 10.0
"""How long a call may take, with the wait for a connection, by default."""
CREATING = 0x5348_4752
"""The number of the advisory lock under which one process at a time creates the table."""

DIALECT = Dialect(
    parameter=lambda name: f"%({name})s",
    # The server's clock, because those of the machines differ.
    now_ms="(extract(epoch from clock_timestamp()) * 1000)::bigint",
    text="text",
    binary="bytea",
    skip_locked="FOR UPDATE SKIP LOCKED",
)


@dataclass(slots=True)
class _Transaction:
    """A `once` block; tasks that its handler started may outlive it, with its context."""

    store: PostgresStore
    connection: psycopg.AsyncConnection[Any] | None
    """None after the block, because other blocks get the connection then."""


_TRANSACTION: ContextVar[_Transaction | None] = ContextVar(
    "sharegroup_postgres_transaction", default=None
)


class PostgresStore(SqlMarks):
    """A store in a table of PostgreSQL, for all processes that reach the server.

    ``conninfo`` is a connection string of psycopg.  The table is created when it is first used, if
    it does not exist.  Times are those of the server's clock.  A call fails after
    ``call_seconds``.
    """

    __slots__ = (
        "_call_seconds",
        "_conninfo",
        "_idle",
        "_is_created",
        "_room",
        "_table",
        "_transactions",
    )

    def __init__(
        self,
        conninfo: str,
        *,
        table: str = TABLE,
        connections_max: int = CONNECTIONS_MAX,
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        check_installed("psycopg", "postgres", "PostgresStore")
        self._call_seconds = call_seconds
        self._table = checked_table(table, "PostgresStore")
        super().__init__(Statements(self._table, DIALECT), self._executed)
        self._conninfo = conninfo
        self._idle: list[psycopg.AsyncConnection[Any]] = []
        self._room = asyncio.Semaphore(connections_max)
        self._transactions = asyncio.Semaphore(connections_max)
        """Apart from the room of other calls, which handlers make in their transactions."""
        self._is_created = False

    async def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    async def _executed(self, statement: str, parameters: Parameters) -> list[tuple[Any, ...]]:
        async def call() -> list[tuple[Any, ...]]:
            async with self._room, self._connection() as connection:
                return await _rows(connection, statement, parameters)

        return await self._repeated(call)

    async def _repeated(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """Call within the time, and again if the server has ended the idle connections."""
        # Imported here, because only applications with this store need it.
        import psycopg

        try:
            async with asyncio.timeout(self._call_seconds):
                while True:
                    is_reused = bool(self._idle)
                    try:
                        return await call()
                    except (psycopg.OperationalError, psycopg.InterfaceError):
                        # The server may have restarted since.  Each call can be repeated.
                        if not is_reused:
                            raise
                        await self.close()
        except (psycopg.Error, TimeoutError) as error:
            raise self._unavailable(error) from error

    @asynccontextmanager
    async def once(self, name: str, *, keep_seconds: float) -> AsyncIterator[bool]:
        """A transaction that confirms a name; its value is False if the name was confirmed before.

        In the block, `connection` returns the connection of the transaction.  StoreUnavailable is
        raised if the block with this name in another process lasts longer than ``call_seconds``.
        """
        # Imported here, because only applications with this store need it.
        import psycopg

        statement, parameters = self._once(name, keep_seconds)
        # Before the transaction, because an error after it would be one of a handler that is done.
        await self._count()

        async def begin() -> tuple[AsyncExitStack, psycopg.AsyncConnection[Any], bool]:
            async with AsyncExitStack() as stack:
                connection = await stack.enter_async_context(self._connection())
                await stack.enter_async_context(connection.transaction())
                is_new = bool(await _rows(connection, statement, parameters))
                return stack.pop_all(), connection, is_new

        async with self._transactions:
            begun, connection, is_new = await self._repeated(begin)
            transaction = _Transaction(self, connection)
            is_done = False
            try:
                async with begun:
                    token = _TRANSACTION.set(transaction)
                    try:
                        yield is_new
                    finally:
                        transaction.connection = None
                        _TRANSACTION.reset(token)
                    self._check_alive(connection)
                    is_done = True
            except psycopg.Error as error:
                if not is_done:
                    raise  # The handler's own.
                raise self._unavailable(error) from error

    def connection(self) -> psycopg.AsyncConnection[Any]:
        """The connection of the transaction in which the handler with ``once_by`` runs."""
        transaction = _TRANSACTION.get()
        if transaction is None or transaction.store is not self or transaction.connection is None:
            raise RuntimeError(NO_TRANSACTION.format("PostgresStore"))
        return transaction.connection

    def _check_alive(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Raise if the server would roll back at the commit, which is no error of the commit."""
        if connection.info.transaction_status.name == "INERROR":
            raise StoreUnavailable(
                f"PostgresStore, table {self._table}: the transaction is rolled back, because a "
                f"statement of the handler failed and the handler went on; expected the error to "
                f"be raised, or the statement in `async with store.connection().transaction()`"
            )

    def _unavailable(self, error: Exception) -> StoreUnavailable:
        what = str(error) or f"no answer within {self._call_seconds:g} s"
        return StoreUnavailable(
            f"PostgresStore, table {self._table}: {what}; expected a server that this process "
            f"reaches, and a user that may write to the table"
        )

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """An idle connection, or a new one; it is closed after any error."""
        connection = self._idle.pop() if self._idle else await self._connect()
        try:
            if not self._is_created:
                await self._create(connection)
                self._is_created = True
            yield connection
        except BaseException:
            await connection.close()
            raise
        self._idle.append(connection)

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        # Imported here, because only applications with this store need it.
        import psycopg

        return await psycopg.AsyncConnection.connect(
            self._conninfo,
            autocommit=True,
            prepare_threshold=None,  # A pooler may give each statement another connection.
        )

    async def _create(self, connection: psycopg.AsyncConnection[Any]) -> None:
        # Looked up first, because a user without the right to create tables may use one.
        if await _rows(connection, "SELECT 1 WHERE to_regclass(%(table)s) IS NOT NULL",
                       {"table": self._table}):  # fmt: skip
            return
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (CREATING,))
            for statement in self._statements.create:
                await _rows(connection, statement, {})


async def _rows(
    connection: psycopg.AsyncConnection[Any], statement: str, parameters: Parameters
) -> list[tuple[Any, ...]]:
    cursor = await connection.execute(statement, parameters)
    return await cursor.fetchall() if cursor.description else []
