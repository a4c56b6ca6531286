"""Fixtures for pytest, available when sharegroup is installed.

- ``sharegroup_broker``: a broker for one test.
- ``sharegroup_session_broker``: one broker for the whole session; each test needs its own topics.

Both return an object with ``bootstrap_servers``. To change broker settings, define a fixture named
``sharegroup_settings``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sharegroup.testing.embedded import TestBroker


@pytest.fixture(scope="session")
def sharegroup_settings() -> dict[str, str]:
    """Return broker settings by Kafka's names; override this fixture to change settings."""
    return {}


@pytest.fixture
def sharegroup_broker(sharegroup_settings: dict[str, str]) -> Iterator[TestBroker]:
    """Run a broker with an empty data directory for one test."""
    # Imported here because pytest loads this module for tests that use no broker, too.
    from sharegroup.testing.embedded import run_broker

    with run_broker(sharegroup_settings) as running:
        yield running


@pytest.fixture(scope="session")
def sharegroup_session_broker(sharegroup_settings: dict[str, str]) -> Iterator[TestBroker]:
    """Run one broker that all tests of the session share."""
    # Imported here because pytest loads this module for tests that use no broker, too.
    from sharegroup.testing.embedded import run_broker

    with run_broker(sharegroup_settings) as running:
        yield running
