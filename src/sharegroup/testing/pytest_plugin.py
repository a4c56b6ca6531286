"""Fixtures for pytest, available when sharegroup is installed.

- ``sharegroup_broker``: a `TestBroker` for one test.
- ``sharegroup_session_broker``: one for the whole session; each test needs its own topics.
- ``sharegroup_async_broker``, ``sharegroup_async_session_broker``: the same brokers as an
  `AsyncTestBroker`, for tests that are coroutines. They work with every plugin that runs such tests
  on asyncio, on the loop of the test.
- ``sharegroup_schema_registry``: an empty schema registry for one test, at its ``url``.

The options of `run_broker` for one test are those of a marker::

    @pytest.mark.sharegroup(settings={"num.partitions": "3"}, clock=ManualClock())
    def test_orders(sharegroup_broker): ...

While a fixture's broker runs, the variable SHAREGROUP_BOOTSTRAP names it.  An App without an
explicit address, a command and a process of the test therefore talk to this broker, never to the
cluster that the developer's shell names.

To change the settings of all brokers, define a fixture named ``sharegroup_settings``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from sharegroup.testing.embedded import AsyncTestBroker, TestBroker
    from sharegroup.testing.registry.server import SchemaRegistry


MARKER = "sharegroup"


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, so that ``--strict-markers`` accepts it."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(settings=None, data=None, port=0, clock=None, files=None, security=None): the "
        "options of the broker that sharegroup_broker runs for this test",
    )


@pytest.fixture(scope="session")
def sharegroup_settings() -> dict[str, str]:
    """Return broker settings by Kafka's names; override this fixture to change settings."""
    return {}


@pytest.fixture
def sharegroup_broker(
    sharegroup_settings: dict[str, str], request: pytest.FixtureRequest
) -> Iterator[TestBroker]:
    """Run a broker with an empty data directory for one test."""
    # Imported here because pytest loads this module for tests that use no broker, too.
    from sharegroup.testing.embedded import run_broker

    with run_broker(**_options(request, sharegroup_settings)) as running, _named(running):
        yield running


@pytest.fixture(scope="session")
def sharegroup_session_broker(sharegroup_settings: dict[str, str]) -> Iterator[TestBroker]:
    """Run one broker that all tests of the session share."""
    # Imported here because pytest loads this module for tests that use no broker, too.
    from sharegroup.testing.embedded import run_broker

    with run_broker(sharegroup_settings) as running, _named(running):
        yield running


@pytest.fixture
def sharegroup_async_broker(sharegroup_broker: TestBroker) -> AsyncTestBroker:
    """Return the broker of the test for coroutines."""
    return sharegroup_broker.asynchronous


@pytest.fixture(scope="session")
def sharegroup_async_session_broker(sharegroup_session_broker: TestBroker) -> AsyncTestBroker:
    """Return the broker of the session for coroutines."""
    return sharegroup_session_broker.asynchronous


@pytest.fixture
def sharegroup_schema_registry() -> Iterator[SchemaRegistry]:
    """Run an empty schema registry for one test."""
    # Imported here because pytest loads this module for tests that use no registry, too.
    from sharegroup.testing.registry.server import run_schema_registry

    with run_schema_registry() as registry:
        yield registry


@contextmanager
def _named(running: TestBroker) -> Iterator[None]:
    """Name the broker in the variable that all programs of the test read."""
    # Imported here because pytest loads this module for tests that use no broker, too.
    from sharegroup.client.settings.cluster_choice import BOOTSTRAP_VARIABLE

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(BOOTSTRAP_VARIABLE, running.bootstrap_servers)
        yield


def _options(request: pytest.FixtureRequest, settings: dict[str, str]) -> dict[str, Any]:
    """Return the options of `run_broker` for a test; its marker's settings extend ``settings``."""
    marker = request.node.get_closest_marker(MARKER)
    if marker is None:
        return {"settings": settings}
    if marker.args:
        raise pytest.UsageError(
            f"{request.node.nodeid}: @pytest.mark.{MARKER} takes keyword arguments, such as "
            f"settings={{...}}, not {marker.args!r}"
        )
    return {**marker.kwargs, "settings": {**settings, **(marker.kwargs.get("settings") or {})}}
