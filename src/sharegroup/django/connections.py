"""Connections of Django in threads that live as long as a worker: stale ones are closed."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from django.db import (
    Error as DatabaseError,
    InterfaceError,
    OperationalError,
    close_old_connections,
    connections,
)
from django.db.backends.base.base import BaseDatabaseWrapper

from sharegroup.backoff import Backoff
from sharegroup.worker import Release
from sharegroup.worker.executors.threads import Interrupted

log = logging.getLogger(__name__)

Result = TypeVar("Result")

WAIT_SECONDS_MAX = 3600.0
"""How long a record waits for its database before it is released to another worker."""
PAUSE_MS, PAUSE_MS_MAX = 100, 5_000
AWAY = (InterfaceError, OperationalError)


def renew_connections() -> None:
    """Close the connections of this thread that are too old, or that the database has closed.

    Django does so at the begin and the end of a request, and looks for closed ones only with
    CONN_HEALTH_CHECKS.  A task may come hours after the one before.
    """
    close_old_connections()
    for connection in connections.all(initialized_only=True):
        if (
            connection.connection is not None
            and not connection.in_atomic_block
            and not connection.is_usable()
        ):
            connection.close()


def drop_connections() -> None:
    """Close the connections of this thread, and forget what Django knows of their transactions."""
    for connection in connections.all(initialized_only=True):
        del connections[connection.alias]
        with suppress(DatabaseError):  # The database closes what cannot be closed from here.
            connection.close()


class ThreadConnections:
    """The connections of the threads of a worker, to be closed when it stops.

    An interruption is raised at any bytecode, also where Django begins or ends a transaction.  The
    connection would remain in a transaction that nobody commits, with the work of all later tasks
    of its thread.  So an interrupted run drops its connections, at the latest when the next begins.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_thread: dict[int, list[BaseDatabaseWrapper]] = {}
        """No more than the threads of the handlers: those that end are replaced in the count."""
        self._of_thread = threading.local()

    @contextmanager
    def of_run(self) -> Iterator[None]:
        """Renew the connections of this thread for a run, and drop them if it is interrupted."""
        if getattr(self._of_thread, "is_in_run", False):
            drop_connections()  # The end of the last run was interrupted, too.
        self._of_thread.is_in_run = True
        renew_connections()
        try:
            yield
        except BaseException as error:
            if isinstance(error, Interrupted):
                drop_connections()
            self._end()
            raise
        self._end()

    def _end(self) -> None:
        if any(connection.in_atomic_block for connection in connections.all(initialized_only=True)):
            drop_connections()  # The task has caught its interruption.
        close_old_connections()
        with self._lock:
            self._by_thread[threading.get_ident()] = connections.all(initialized_only=True)
        self._of_thread.is_in_run = False

    def close(self) -> None:
        """Close the connections of all threads; none of them may run a task."""
        with self._lock:
            noted = [connection for found in self._by_thread.values() for connection in found]
            self._by_thread.clear()
        for connection in noted:
            connection.inc_thread_sharing()  # Its thread waits for a task that will not come.
            try:
                if not connection.in_atomic_block:
                    connection.close()
            finally:
                connection.dec_thread_sharing()


def when_available(database: str, call: Callable[[], Result], what: str) -> Result:
    """Call a function that uses the database, again and again while the database is away.

    The record stays locked meanwhile, and costs no attempt.  Raises Release after
    `WAIT_SECONDS_MAX`.
    """
    began = time.monotonic()
    backoff = Backoff(PAUSE_MS, PAUSE_MS_MAX, chance=random.random)
    while True:
        try:
            return call()
        except AWAY as error:
            connections[database].close()
            if time.monotonic() - began >= WAIT_SECONDS_MAX:
                raise Release(f"database {database!r} is away: {error}") from error
            log.warning("event=database_away database=%s of=%r error=%r", database, what, error)
        time.sleep(backoff.next_ms() / 1000)
