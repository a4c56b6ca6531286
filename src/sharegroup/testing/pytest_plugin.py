"""Fixtures for pytest, there as soon as sharegroup is installed.

- ``sharegroup_broker``: a broker for one test.
- ``sharegroup_session_broker``: one broker for the whole session; use topics of your own.

Both give an object with ``bootstrap``.  Broker settings come from a fixture of yours named
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
    """Broker settings by Kafka's names; override it to set some."""
    return {}


@pytest.fixture
def sharegroup_broker(sharegroup_settings: dict[str, str]) -> Iterator[TestBroker]:
    """A broker with an empty data directory, for this test alone."""
    from sharegroup.testing.embedded import run_broker  # Loaded only by tests that use it.

    with run_broker(sharegroup_settings) as running:
        yield running


@pytest.fixture(scope="session")
def sharegroup_session_broker(sharegroup_settings: dict[str, str]) -> Iterator[TestBroker]:
    """A broker that all tests of the session share."""
    from sharegroup.testing.embedded import run_broker

    with run_broker(sharegroup_settings) as running:
        yield running
