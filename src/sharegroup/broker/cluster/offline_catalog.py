"""Changes the catalog of a data directory whose broker does not run, such as its first user."""

from __future__ import annotations

from collections.abc import Callable

from sharegroup.broker.clock import wall_ms
from sharegroup.broker.cluster.catalog import CATALOG_FILE, Catalog
from sharegroup.broker.cluster.catalog_part import Event
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.configuration.config import Config
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.storage.directory.log_directory import LogDirectory


async def change_catalog(path: str, event_of: Callable[[Catalog], Event]) -> None:
    """Write the event that ``event_of`` returns; a missing directory is created.

    Raises BlockingIOError if a broker runs on the directory.  After a crash the directory stays
    marked as unclean, so the next start of the broker checks its logs.
    """
    directory = LogDirectory.open(path, wall_ms=wall_ms)
    is_closed = False
    try:
        journal = directory.journal(CATALOG_FILE)
        # A directory that is made here has no logs that a crash could have damaged.
        may_be_marked = directory.was_clean or journal.payload_count == 0
        topics = Topics(LiveConfig(Config.parse({"log.dirs": path})), directory, journal)
        await topics.start()
        await topics.alter(lambda: event_of(topics.catalog))
        if may_be_marked:
            is_closed = True
            await directory.close()
    finally:
        if not is_closed:
            directory.abandon()


def read_catalog(path: str) -> Catalog:
    """Return the catalog of a data directory, which is not changed."""
    catalog = Catalog()
    directory = LogDirectory.open(path, wall_ms=wall_ms)
    try:
        catalog.load(directory.journal(CATALOG_FILE).payloads())
    finally:
        directory.abandon()
    return catalog
