"""Connections of Django in threads that live as long as a worker: stale ones are closed."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from django.db import InterfaceError, OperationalError, close_old_connections, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from sharegroup.backoff import Backoff
from sharegroup.worker import Release

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


class ThreadConnections:
    """The connections of the threads of a worker, to be closed when it stops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_thread: dict[int, list[BaseDatabaseWrapper]] = {}
        """No more than the threads of the handlers: those that end are replaced in the count."""

    def note(self) -> None:
        """Note the connections that this thread has."""
        of_thread = connections.all(initialized_only=True)
        with self._lock:
            self._by_thread[threading.get_ident()] = of_thread

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
