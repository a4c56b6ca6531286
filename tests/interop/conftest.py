"""One broker process for all interop tests; every test has a topic and a group of its own.

``SHAREGROUP_INTEROP=kafka`` runs the same tests against a real Apache Kafka: what they state
is then Kafka's behaviour and not only ours.
"""

from __future__ import annotations

import gc
import re
import warnings
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.support import confluent_calls
from tests.support.chosen_broker import RunningBroker, chosen, running

_names = count(1)


@pytest.fixture(scope="module", autouse=True)
def left_sockets() -> Iterator[None]:
    """Take away what a module's clients left open, lest another test answers for it.

    kafka-python and aiokafka leave sockets to the garbage collector when their broker goes.
    """
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running(chosen(), tmp_path_factory.mktemp("interop")) as there:
        yield there
        confluent_calls.admin.cache_clear()


@pytest.fixture(scope="session")
def bootstrap(broker: RunningBroker) -> str:
    """Where the broker listens."""
    return broker.bootstrap_servers


@pytest.fixture(scope="session")
def data_directory(broker: RunningBroker) -> Path:
    """Where the broker keeps its files."""
    return broker.data


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses; the topic is not created yet."""
    return _name(request, "topic")


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    """A group id that no other test uses."""
    return _name(request, "group")


def _name(request: pytest.FixtureRequest, kind: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    return f"{plain[:80].strip('-')}.{kind}{next(_names)}"
